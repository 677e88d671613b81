// Package manual is for the tests that make manual pages from the code and hold the shipped ones to it.
package manual

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the manual pages that are made from the code")

// Dir is where the pages are, seen from a package two levels below the root.
var Dir = filepath.Join("..", "..", "deploy", "man")

// Golden holds a page to what was made from the code; -update writes it.
func Golden(t *testing.T, name string, want []byte) {
	t.Helper()
	file := filepath.Join(Dir, name)
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("deploy/man/%s is out of date; run: make docs (%v)", name, err)
	}
}

// Quote makes text safe for a manual page.
func Quote(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...").Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
