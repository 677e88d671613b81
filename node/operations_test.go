package node

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// docs/operations.md says what each metric and each kind of event means, and tells of none that is gone.
func TestOperations_explainsEveryMetricAndEvent(t *testing.T) {
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| .{8,}").FindAllStringSubmatch(string(text), -1) {
		explained[m[1]] = true
	}

	tn := startNode(t, 0)
	awaitReady(t, tn)
	families, err := tn.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, f := range families {
		there[f.GetName()] = true
	}
	// Who watches for a value has to know that it is absent at first.
	for _, m := range regexp.MustCompile("(?m)^\\| `(edged_[a-z_]+)` \\| (.*)$").FindAllStringSubmatch(string(text), -1) {
		if said := strings.Contains(m[2], "absent until"); said == there[m[1]] {
			t.Errorf("%s: a fresh node has it: %v; docs/operations.md says that it may be absent: %v", m[1], there[m[1]], said)
		}
	}
	descs := make(chan *prometheus.Desc)
	go func() { tn.metrics.registry.Describe(descs); close(descs) }()
	has := map[string]bool{}
	for d := range descs {
		has[regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1]] = true
	}
	source, err := os.ReadFile("eventlog.go")
	if err != nil {
		t.Fatal(err)
	}
	kinds := regexp.MustCompile(`(?m)^\tevent[A-Z]\w* += "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	if len(kinds) < 5 || len(has) < 20 {
		t.Fatalf("the test sees only %d kinds of events and %d metrics", len(kinds), len(has))
	}
	for _, m := range kinds {
		has[m[1]] = true
	}
	for name := range has {
		if !explained[name] {
			t.Errorf("docs/operations.md does not explain %s", name)
		}
	}
	for name := range explained {
		if strings.HasPrefix(name, "edged_") && !has[name] {
			t.Errorf("docs/operations.md explains %s, which no node has", name)
		}
	}
	rules, err := os.ReadFile("../deploy/prometheus/edged.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	used := regexp.MustCompile(`edged_[a-z_]+`).FindAllString(string(rules), -1)
	if len(used) < 10 {
		t.Fatalf("the test sees only %d metrics in the alerts", len(used))
	}
	for _, name := range used {
		if !has[name] {
			t.Errorf("an alert waits for %s, which no node has", name)
		}
	}
}
