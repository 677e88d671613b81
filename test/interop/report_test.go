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
	t       *testing.T
	j       *judge
	what    []string
	fault   bool
	skipped bool
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
	t.Cleanup(func() { r.fault, r.skipped = t.Failed(), t.Skipped() })
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
	count := map[string]int{}
	if len(table.rows) == 0 { // another test was asked for
		os.Exit(code)
	}
	fmt.Println("\n| client | version | what | result |\n|---|---|---|---|")
	for _, r := range table.rows {
		result := "passed"
		switch {
		case r.fault:
			result = "FAILED"
		case r.skipped:
			result = "NOT RUN"
			r.what = []string{"what it needs is not installed and cannot be installed here"}
		}
		count[result]++
		fmt.Printf("| %s | %s | %s | %s |\n", r.j.name, r.j.version, strings.Join(r.what, "; "), result)
	}
	fmt.Printf("\n%d clients passed, %d failed, %d not run\n", count["passed"], count["FAILED"], count["NOT RUN"])
	if len(table.rows) == count["NOT RUN"] {
		fmt.Println("no client has judged anything")
		code = max(code, 1)
	}
	os.Exit(code)
}
