//go:build linux

package interop

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// row is what is told of one judge at the end.
type row struct {
	t     *testing.T
	j     *judge
	what  []string
	fault bool
}

var table struct {
	sync.Mutex
	rows []*row
}

func newRow(t *testing.T, j *judge) *row {
	r := &row{t: t, j: j}
	table.Lock()
	defer table.Unlock()
	table.rows = append(table.rows, r)
	t.Cleanup(func() { r.fault = t.Failed() })
	return r
}

// run runs one scenario. What it says goes into the table.
func (r *row) run(name string, scenario func(*testing.T) string) {
	r.t.Run(name, func(t *testing.T) {
		said := "FAILED"
		defer func() { r.what = append(r.what, name+": "+said) }()
		if text := scenario(t); !t.Failed() {
			said = text
		}
	})
}

func TestMain(m *testing.M) {
	code := m.Run()
	passed := 0
	fmt.Println("\n| client | version | what | result |\n|---|---|---|---|")
	for _, r := range table.rows {
		result := "passed"
		if r.fault {
			result = "FAILED"
		} else {
			passed++
		}
		fmt.Printf("| %s | %s | %s | %s |\n", r.j.name, r.j.version, strings.Join(r.what, "; "), result)
	}
	fmt.Printf("\n%d judges passed, %d failed\n", passed, len(table.rows)-passed)
	os.Exit(code)
}
