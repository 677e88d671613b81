package deptest

import (
	"fmt"
	"slices"
	"strings"
)

// arrows says for each package which of ours it may import, and why no more. "x/..." is x
// and all below it. A package that no row names fails the test: its place has to be
// decided once, here. Tests may also import internal/... and what their row adds.
var arrows = []arrow{
	{pkg: "record", why: "it is the leaf that everyone imports, so an import here is a cycle sooner or later"},
	{pkg: "storage", may: []string{"record"}, why: "it knows entries and bytes, not who leads or who asks"},
	{pkg: "metadata", may: []string{"record"}, why: "it is pure: the same commands must give the same state on every node"},
	{pkg: "groups", may: []string{"record"}, why: "it is pure: the same commands must give the same state on every node"},
	{pkg: "gossip", may: []string{"record"}, why: "it finds and spreads but never decides; node carries its news on"},
	{pkg: "partition", may: []string{"storage", "record"}, why: "it is run by a simulator too, so everything else reaches it by messages"},
	{pkg: "transport", may: []string{"record"}, why: "it accepts connections for any protocol and knows none"},
	{pkg: "transport/*", may: []string{"transport", "record"}, why: "a protocol declares the few methods it calls; node happens to have them"},
	{pkg: "client", may: []string{"transport/wire", "record"}, why: "it is what others build into their programs"},
	{pkg: "node", may: []string{"gossip", "partition", "metadata", "groups", "storage", "transport/...", "record"},
		tests: []string{"client"}, why: "it wires the parts of a server; clients and commands stand outside"},
	{pkg: "cmd/edged", may: []string{"node"}, tests: []string{"client", "record"},
		why: "it parses, calls node and prints"},
	{pkg: "cmd/edgectl", may: []string{"client", "transport/wire", "storage", "record"}, tests: []string{"node", "transport/..."},
		why: "it talks to a node as any client does; storage is for dump alone"},
	{pkg: "test", tests: []string{"client", "record", "storage", "transport/wire"},
		why: "it tries processes from outside, as users do; storage is for comparing what they left on disk"},
	{pkg: "test", may: []string{"client", "record", "transport/wire"}, tests: []string{"...", "internal/..."}, why: "it knocks at built programs from outside"},
	{pkg: "internal/...", may: []string{"..."}, why: "tests and tools may use everything"},
}

// libraries says which packages may import a library, and why no others. Tests may use
// any. The first row that fits decides; libraries that no row names are free.
var libraries = []library{
	{path: "github.com/cockroachdb/pebble/v2/vfs", may: []string{"storage", "node", "partition", "cmd/edgectl"},
		why: "it is the file system that storage.Open takes"},
	{path: "github.com/cockroachdb/pebble/...", may: []string{"storage"},
		why: "plain segment files shall be able to replace it without a change elsewhere"},
	{path: "go.etcd.io/raft/...", may: []string{"partition"},
		why: "one place translates between Raft's words and ours"},
	{path: "github.com/hashicorp/memberlist", may: []string{"gossip", "node"},
		why: "its callbacks have traps that one package knows; node only hands through the transport that tests replace"},
	{path: "github.com/twmb/franz-go/pkg/kgo/...", why: "it is the client that tests use; a broker has no need of it"},
	{path: "github.com/twmb/franz-go/...", may: []string{"transport/kafka"},
		why: "Kafka's messages end where its protocol ends"},
	{path: "github.com/vmihailenco/msgpack/...", may: []string{"transport/wire", "metadata", "groups", "node"},
		why: "it encodes frames, commands and calls between nodes; values on disk have an encoding of their own"},
	{path: "github.com/BurntSushi/toml", may: []string{"node"}, why: "settings are read in one place"},
	{path: "github.com/urfave/cli/v2/...", may: []string{"cmd/*"}, why: "command lines are parsed in commands, with this library in both: it was chosen by those whom edged is for"},
	{path: "github.com/anishathalye/porcupine", why: "it checks histories in tests"},
	{path: "github.com/rogpeppe/go-internal/...", why: "it drives commands in tests"},
	{path: "go.uber.org/goleak", why: "it finds leaks in tests"},
}

// pure names what a package that must be deterministic may not import: with the same
// input it has to give the same result on every node and in every run of the simulator.
var pure = []struct {
	pkgs, not []string
	why       string
}{
	{pkgs: []string{"metadata", "groups"}, not: []string{"net", "net/...", "os", "os/...", "math/rand/...", "crypto/rand", "log/..."},
		why: "all nodes apply the same commands and must reach the same state: ids, times and chance come in the command"},
	{pkgs: []string{"record"}, not: []string{"net", "net/...", "os", "os/...", "log/..."},
		why: "the vocabulary does no I/O"},
}

type arrow struct {
	pkg        string
	may, tests []string
	why        string
}

type library struct {
	path string
	may  []string
	why  string
}

// use is one import statement: which file of which of our packages imports what.
// Ours are named without the module.
type use struct {
	pkg, file string
	test      bool
	imports   string
}

// matches tells whether name falls under pattern: "a/..." is a and all below it, "..." is
// all, "a/*" is what stands directly below a, anything else is itself.
func matches(pattern, name string) bool {
	if pattern == "..." {
		return true
	}
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == base || strings.HasPrefix(name, base+"/")
	}
	if base, ok := strings.CutSuffix(pattern, "/*"); ok {
		rest, below := strings.CutPrefix(name, base+"/")
		return below && !strings.Contains(rest, "/")
	}
	return pattern == name
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, name) })
}

// judgeOurs gives what is wrong with the import of one of our packages, or "".
func judgeOurs(u use) string {
	i := slices.IndexFunc(arrows, func(a arrow) bool { return matches(a.pkg, u.pkg) })
	if i < 0 {
		return fmt.Sprintf("%s: no row of arrows in internal/deptest says what package %s may import: add one", u.file, u.pkg)
	}
	a := arrows[i]
	allowed := a.may
	if u.test {
		allowed = slices.Concat(allowed, a.tests, []string{u.pkg, "internal/..."})
	}
	if matchesAny(allowed, u.imports) {
		return ""
	}
	return fmt.Sprintf("%s: imports %s, but %s may import %s: %s", u.file, u.imports, u.pkg, list(allowed), a.why)
}

// judgeLibrary gives what is wrong with the import of anybody else's package, or "".
func judgeLibrary(u use) string {
	if u.test || matches("internal/...", u.pkg) {
		return ""
	}
	for _, p := range pure {
		if slices.Contains(p.pkgs, u.pkg) && matchesAny(p.not, u.imports) {
			return fmt.Sprintf("%s: imports %s, which %s may not: %s", u.file, u.imports, u.pkg, p.why)
		}
	}
	for _, l := range libraries {
		if !matches(l.path, u.imports) {
			continue
		}
		if matchesAny(l.may, u.pkg) {
			return ""
		}
		return fmt.Sprintf("%s: imports %s, which is for %s: %s", u.file, u.imports, list(l.may), l.why)
	}
	return ""
}

func list(patterns []string) string {
	if len(patterns) == 0 {
		return "nothing of ours or tests only"
	}
	return "only " + strings.Join(patterns, ", ")
}
