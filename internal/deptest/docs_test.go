package deptest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	makeCall   = regexp.MustCompile("(?m)(?:`|^)make ([a-z][a-z0-9-]*)")
	makeTarget = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
	link       = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// What the documents tell people to run and to read has to be there.
func TestDocuments_nameTargetsAndFilesThatExist(t *testing.T) {
	root := filepath.Join("..", "..")
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range makeTarget.FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	seen := 0
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || file != root && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case filepath.Ext(file) != ".md":
			return nil
		}
		seen++
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, m := range makeCall.FindAllStringSubmatch(string(text), -1) {
			if !targets[m[1]] {
				t.Errorf("%s: names `make %s`, which the Makefile does not have", file, m[1])
			}
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			to, _, _ := strings.Cut(m[1], "#")
			if to == "" || strings.Contains(to, ":") {
				continue // to a heading of the same file, or to the web
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), to)); err != nil {
				t.Errorf("%s: links to %s, which is not there", file, m[1])
			}
		}
		return nil
	})
	if err != nil || seen == 0 {
		t.Fatalf("%d documents read, error %v", seen, err)
	}
}
