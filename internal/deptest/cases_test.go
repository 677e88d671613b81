package deptest

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var (
	caseTest = regexp.MustCompile("`([a-z/]+) (Test[A-Za-z0-9_]+)`")
	caseRow  = regexp.MustCompile(`(?m)^\| (BR-\d+) \|[^|]+\|([^|]+)\|$`)
)

// Each case of docs/cases.md names a test, or says why there is none, and the tests that it names exist.
func TestCases_nameTestsThatExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "cases.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := caseRow.FindAllStringSubmatch(string(text), -1)
	if len(rows) < 60 {
		t.Errorf("%d cases were read", len(rows))
	}
	seen := map[string]bool{}
	for _, row := range rows {
		if seen[row[1]] {
			t.Errorf("%s is there twice", row[1])
		}
		seen[row[1]] = true
		named := caseTest.FindAllStringSubmatch(row[2], -1)
		if len(named) == 0 && !regexp.MustCompile(`Not yet|planted fault`).MatchString(row[2]) {
			t.Errorf("%s names no test and no reason", row[1])
		}
		for _, m := range named {
			if !defined(t, m[1], m[2]) {
				t.Errorf("%s names %s of package %s, which is not there", row[1], m[2], m[1])
			}
		}
	}
}

// defined tells whether a package has a test of that name.
func defined(t *testing.T, pkg, name string) bool {
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pkg), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	def := regexp.MustCompile(`(?m)^func ` + name + `\(`)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if def.Match(text) {
			return true
		}
	}
	return false
}
