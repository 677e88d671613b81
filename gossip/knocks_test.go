package gossip

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"edged/internal/memnet"
)

// heard is a log that a test looks at.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(b)
}

func (h *heard) warnings() (lines []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for line := range strings.Lines(h.text.String()) {
		if strings.Contains(line, "level=WARN") {
			lines = append(lines, line)
		}
	}
	return lines
}

// Who is set up with another name or secret is told on the member's side too: from where, what to do, and not
// every few seconds.
func TestKnocks_areToldOnceOnTheMembersSide(t *testing.T) {
	key := func(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }
	for name, tc := range map[string]struct {
		mine, theirs func(*Config)
		says         string // nothing: it joins
	}{
		"another name":       {func(c *Config) {}, func(c *Config) { c.ClusterName = "other" }, `another cluster name (\"other\")`},
		"another secret":     {func(c *Config) { c.Key = key(1) }, func(c *Config) { c.Key = key(2) }, "another cluster secret"},
		"no secret there":    {func(c *Config) { c.Key = key(1) }, func(c *Config) {}, "another cluster secret"},
		"no secret here":     {func(c *Config) {}, func(c *Config) { c.Key = key(2) }, "another cluster secret"},
		"one of the cluster": {func(c *Config) { c.Key = key(1) }, func(c *Config) { c.Key = key(1) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *memnet.Network) {
				log := &heard{}
				a := start(t, n, "10.0.0.1", meta(1, 1), tc.mine, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
				b := start(t, n, "10.0.0.2", meta(2, 1), tc.theirs, joining("10.0.0.1:7946"))
				time.Sleep(25 * time.Minute)
				got := log.warnings()
				switch {
				case tc.says == "" && len(got) > 0:
					t.Errorf("%q", got)
				case tc.says == "":
				case len(got) != 3: // at once, after 10 and after 20 minutes
					t.Errorf("%d warnings: %q", len(got), got)
				case !strings.Contains(got[0], tc.says) || !strings.Contains(got[0], "from=10.0.0.2"):
					t.Errorf("%s", got[0])
				}
				if st := a.Stats(); (st.Refused > 0) != (tc.says != "") {
					t.Errorf("%+v", st)
				}
				_, _ = a.Close(), b.Close()
			})
		})
	}
}

// A flood of strangers fills no memory and no log.
func TestKnocks_areBounded(t *testing.T) {
	var k knocks
	told := 0
	for i := range 10 * maxKnocks {
		if k.due(fmt.Sprintf("10.0.%d.%d", i/256, i%256), "knocks") {
			told++
		}
	}
	if told != maxKnocks || len(k.told) != maxKnocks {
		t.Errorf("%d told, %d remembered", told, len(k.told))
	}
}
