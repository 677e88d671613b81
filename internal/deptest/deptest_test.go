package deptest

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"edged/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

const module = "edged"

// TestArrows reads the import lines of every file whatever its build tags, so that what
// only the ARM build imports counts too.
func TestArrows(t *testing.T) {
	uses, err := readImports(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if len(uses) < 100 {
		t.Fatalf("only %d imports found: the reader of imports is broken", len(uses))
	}
	for _, u := range uses {
		if problem := judge(u); problem != "" {
			t.Error(problem)
		}
	}
}

func judge(u use) string {
	if ours, ok := strings.CutPrefix(u.imports, module+"/"); ok {
		u.imports = ours
		return judgeOurs(u)
	}
	return judgeLibrary(u)
}

func readImports(root string) (uses []use, err error) {
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		return nil, fmt.Errorf("the module's root is not where the test looks: %w", err)
	}
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if name == "testdata" || file != root && strings.HasPrefix(name, ".") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(file, "go.mod")); err == nil && file != root {
				return fs.SkipDir // another module
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			uses = append(uses, use{pkg: path.Dir(rel), file: rel, test: strings.HasSuffix(name, "_test.go"), imports: imported})
		}
		return nil
	})
	return uses, err
}

// The tables are only worth something if a wrong arrow fails. Each row below is one that
// somebody could be tempted to draw.
func TestJudge_refusesWrongArrows(t *testing.T) {
	for _, c := range []struct {
		pkg, imports string
		test, bad    bool
	}{
		{"record", "edged/storage", false, true},
		{"record", "edged/internal/leak", false, true},
		{"record", "edged/internal/leak", true, false},
		{"record", "net", false, true},
		{"storage", "edged/record", false, false},
		{"storage", "edged/partition", false, true},
		{"storage", "edged/partition", true, true},
		{"storage", "github.com/cockroachdb/pebble/v2", false, false},
		{"partition", "edged/node", false, true},
		{"partition", "edged/gossip", false, true},
		{"partition", "edged/transport/peer", false, true},
		{"partition", "edged/storage", false, false},
		{"partition", "github.com/cockroachdb/pebble/v2", false, true},
		{"partition", "github.com/cockroachdb/pebble/v2/vfs", false, false},
		{"partition", "go.etcd.io/raft/v3/raftpb", false, false},
		{"node", "go.etcd.io/raft/v3", false, true},
		{"node", "edged/transport/wire", false, false},
		{"node", "edged/transport", false, false},
		{"node", "edged/client", false, true},
		{"node", "edged/client", true, false},
		{"node", "edged/cmd/edged", true, true},
		{"gossip", "edged/partition", false, true},
		{"gossip", "github.com/hashicorp/memberlist", false, false},
		{"partition", "github.com/hashicorp/memberlist", false, true},
		{"transport/wire", "edged/node", false, true},
		{"transport/wire", "edged/transport/kafka", false, true},
		{"transport/kafka", "edged/partition", false, true},
		{"transport/kafka", "edged/transport", false, false},
		{"transport/kafka", "github.com/twmb/franz-go/pkg/kmsg", false, false},
		{"transport/wire", "github.com/twmb/franz-go/pkg/kmsg", false, true},
		{"transport/kafka", "github.com/twmb/franz-go/pkg/kgo", false, true},
		{"transport/kafka", "github.com/twmb/franz-go/pkg/kgo", true, false},
		{"transport", "edged/transport/wire", false, true},
		{"client", "edged/transport/wire", false, false},
		{"client", "edged/node", false, true},
		{"metadata", "edged/storage", false, true},
		{"metadata", "os", false, true},
		{"metadata", "math/rand/v2", false, true},
		{"metadata", "time", false, false},
		{"cmd/edged", "edged/node", false, false},
		{"cmd/edged", "edged/storage", false, true},
		{"cmd/edgectl", "edged/storage", false, false},
		{"cmd/edgectl", "edged/node", false, true},
		{"cmd/edgectl", "edged/transport/wire", false, false},
		{"cmd/edgectl", "go.uber.org/goleak", false, true},
		{"internal/sim", "edged/node", false, false},
		{"a/new/package", "edged/record", false, true},
	} {
		problem := judge(use{pkg: c.pkg, file: c.pkg + "/file.go", test: c.test, imports: c.imports})
		if (problem != "") != c.bad {
			t.Errorf("%s imports %s (test %v): judged %q", c.pkg, c.imports, c.test, problem)
		}
		if c.bad && (!strings.Contains(problem, "file.go") || !strings.Contains(problem, strings.TrimPrefix(c.imports, module+"/")) && c.pkg != "a/new/package") {
			t.Errorf("%q does not name the file and the import", problem)
		}
	}
}

func TestReadImports_seesAWrongFileWhateverItsBuildTags(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module edged\n")
	write("record/a_linux_arm.go", "//go:build linux && arm\n\npackage record\n\nimport _ \"edged/node\"\n")
	write("record/testdata/b.go", "package b\n\nimport _ \"edged/node\"\n")
	write(".hidden/c.go", "package c\n\nimport _ \"edged/node\"\n")
	uses, err := readImports(root)
	if err != nil || len(uses) != 1 || judge(uses[0]) == "" {
		t.Errorf("found %v, error %v", uses, err)
	}
}
