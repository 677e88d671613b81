package kafka

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The table that users read is the one that clients get.
func TestDocument_namesWhatIsAdvertised(t *testing.T) {
	text, err := os.ReadFile("../../docs/kafka.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile(`\| ([A-Z][A-Za-z]+) \| ([0-9]+(?:–[0-9]+)?) `).FindAllStringSubmatch(string(text), -1) {
		rows[strings.ToLower(m[1])] = m[2]
	}
	for key, v := range wantAdvertised {
		want := fmt.Sprintf("%d–%d", v[0], v[1])
		if v[0] == v[1] {
			want = fmt.Sprint(v[0])
		}
		if got := rows[strings.ToLower(kmsg.NameForKey(key))]; got != want {
			t.Errorf("docs/kafka.md has %s %q, advertised is %s", kmsg.NameForKey(key), got, want)
		}
	}
	if len(rows) != len(wantAdvertised) {
		t.Errorf("docs/kafka.md has %d rows, %d requests are advertised", len(rows), len(wantAdvertised))
	}
}
