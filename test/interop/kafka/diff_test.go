package kafka

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// script is one conversation that is held with both servers, in every version of a request that both serve.
type script struct {
	key         int16
	least, most int16 // versions, where not all are meant
	name        string
	run         func(*conversation)
}

var scripts []script

// of adds a script for all versions, within for some.
func of(key int16, name string, run func(*conversation)) { within(key, 0, 99, name, run) }

func within(key, least, most int16, name string, run func(*conversation)) {
	scripts = append(scripts, script{key, least, most, name, run})
}

// onlyVariable picks scripts by a pattern on request and name, as in "Fetch, (plain|limits)".
const onlyVariable = "EDGED_INTEROP_ONLY"

// TestDifferences holds all conversations with Kafka and with edged. What is answered differently is
// a fault of edged, unless it is in the list of accepted differences with its reason.
func TestDifferences(t *testing.T) {
	only := regexp.MustCompile(os.Getenv(onlyVariable))
	kafka, edged := connect(t, "Kafka", Start(t)), connect(t, "edged", startEdged(t))
	found := map[string][]int16{} // versions by difference
	compared := 0
	for i, s := range scripts {
		if !only.MatchString(kmsg.NameForKey(s.key) + ", " + s.name) {
			continue
		}
		least := max(s.least, kafka.versions[s.key][0], edged.versions[s.key][0])
		most := min(s.most, kafka.versions[s.key][1], edged.versions[s.key][1])
		for v := least; v <= most; v++ {
			lines, fields := s.compare(t, kafka, edged, v, fmt.Sprintf("s%d.v%d", i, v))
			compared += fields
			if slices.ContainsFunc(slices.Collect(maps.Keys(lines)), unaccepted) {
				// Kafka too has its moments: what nobody has accepted has to be there twice.
				again, _ := s.compare(t, kafka, edged, v, fmt.Sprintf("s%d.v%d.again", i, v))
				maps.DeleteFunc(lines, func(line string, _ bool) bool { return unaccepted(line) && !again[line] })
			}
			for line := range lines {
				found[line] = append(found[line], v)
			}
		}
	}
	used := map[*accepted]bool{}
	for _, line := range slices.Sorted(maps.Keys(found)) {
		if a := acceptedAs(line); a != nil {
			used[a] = true
			continue
		}
		t.Errorf("%s (versions %s)", line, ranges(found[line]))
	}
	for _, a := range acceptedDifferences {
		if os.Getenv(onlyVariable) == "" && !used[a] {
			t.Errorf("no difference is like %s any more: %s", a.line, a.reason)
		}
	}
	t.Logf("%d fields compared; %d differences, of %d kinds that are accepted", compared, len(found), len(used))
}

// acceptedAs finds out why a difference may stay, nil if it may not.
func acceptedAs(line string) *accepted {
	for _, a := range acceptedDifferences {
		if a.line.MatchString(line) {
			return a
		}
	}
	return nil
}

func unaccepted(line string) bool { return acceptedAs(line) == nil }

// compare holds a script with both servers and gives the differences, and how many fields were compared.
func (s script) compare(t *testing.T, kafka, edged *server, version int16, topic string) (lines map[string]bool, fields int) {
	a, b := s.hold(t, kafka, version, topic), s.hold(t, edged, version, topic)
	if !slices.Equal(a.labels, b.labels) {
		t.Errorf("%s version %d: one conversation is about %q, the other about %q", s.name, version, a.labels, b.labels)
	}
	lines = map[string]bool{}
	for _, label := range a.labels {
		fields += len(a.heard[label])
		for _, d := range differences(a.heard[label], b.heard[label]) {
			lines[fmt.Sprintf("%s, %s, %s: %s", kmsg.NameForKey(s.key), s.name, label, d)] = true
		}
	}
	return lines, fields
}

// TestDocument: users find every difference, and no other, in the document.
func TestDocument_namesTheDifferences(t *testing.T) {
	text, err := os.ReadFile("../../../docs/kafka.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), differencesHeading)
	list, _, _ = strings.Cut(list, "\n## ")
	told := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^- (.*)\.$`).FindAllStringSubmatch(list, -1) {
		told[m[1]] = true
	}
	reasons := map[string]bool{}
	for _, a := range acceptedDifferences {
		if reasons[a.reason] = true; !told[a.reason] {
			t.Errorf("docs/kafka.md does not say: %s", a.reason)
		}
	}
	for line := range told {
		if !reasons[line] {
			t.Errorf("docs/kafka.md says what is not accepted here: %s", line)
		}
	}
}

const differencesHeading = "## Where answers differ from Kafka's"

// hold runs a script with one server.
func (s script) hold(t *testing.T, with *server, version int16, topic string) (c *conversation) {
	c = &conversation{t: t, server: with, version: version, topic: topic, said: map[string]string{}}
	defer c.close()
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			t.Errorf("%s, %s version %d: %s", kmsg.NameForKey(s.key), s.name, version, string(r))
		default:
			panic(r)
		}
	}()
	s.run(c)
	return c
}

// differences lists the fields in which two answers differ.
func differences(kafka, edged map[string]string) (out []string) {
	if a, b := kafka[""], edged[""]; a != b {
		return []string{fmt.Sprintf("it is %s in Kafka, %s in edged", orAnswered(a), orAnswered(b))}
	}
	all := maps.Clone(kafka)
	maps.Copy(all, edged)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		a, b := kafka[path], edged[path]
		if a == b || explained(path, kafka, edged) {
			continue
		}
		out = append(out, fmt.Sprintf("%s is %s in Kafka, %s in edged", path, orAbsent(a), orAbsent(b)))
	}
	return out
}

// explained tells whether a difference goes without saying: the error beside it differs, or what it is in
// is not in both answers.
func explained(path string, kafka, edged map[string]string) bool {
	for at := len(path) - 1; at > 0; at-- {
		switch {
		case path[at] == '.':
			if code := path[:at] + ".ErrorCode"; code != path && kafka[code] != edged[code] {
				return true
			}
		case path[at] == '[':
			if list := path[:at]; kafka[list] != edged[list] {
				return true
			}
		}
	}
	return path != "ErrorCode" && kafka["ErrorCode"] != edged["ErrorCode"]
}

func orAnswered(s string) string {
	if s == "" {
		return "answered"
	}
	return s
}

func orAbsent(s string) string {
	if s == "" {
		return "absent"
	}
	return s
}

// ranges writes 3,4,5,7 as 3-5, 7.
func ranges(versions []int16) string {
	var out []string
	for i := 0; i < len(versions); {
		j := i
		for j+1 < len(versions) && versions[j+1] == versions[j]+1 {
			j++
		}
		if i == j {
			out = append(out, fmt.Sprint(versions[i]))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", versions[i], versions[j]))
		}
		i = j + 1
	}
	return strings.Join(out, ", ")
}

// accepted is a kind of difference that stays, with the reason. docs/kafka.md has the reasons too.
type accepted struct {
	line   *regexp.Regexp
	reason string
}

var acceptedDifferences []*accepted

// accept says why differences whose lines are like this stay.
func accept(line, reason string) {
	acceptedDifferences = append(acceptedDifferences, &accepted{regexp.MustCompile(line), reason})
}
