package gossip

import (
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Bounds of what is told of those who knock and are of another cluster or have another secret. They try
// again every few seconds, for as long as they are set up wrongly.
const (
	knockEvery = 10 * time.Minute // for each of them
	maxKnocks  = 32
)

// knocks remembers whom the log was told of. memberlist knows why somebody was not heard only as a line of
// its log.
type knocks struct {
	mu   sync.Mutex
	told map[string]time.Time // by host and reason; at most maxKnocks
}

var (
	lineLabel = regexp.MustCompile(`unacceptable label "(.+)": from=(\S+)`)
	lineCrypt = regexp.MustCompile(`(?:Decrypt packet failed|failed to receive): .*crypt.* from=(\S+)`)
)

// knock reads a line of memberlist's log. The text is empty if it tells of nobody who is set up wrongly.
func knock(line string) (host, text string) {
	if m := lineLabel.FindStringSubmatch(line); m != nil {
		name := m[1][:min(len(m[1]), maxClusterName)]
		return hostOf(m[2]), fmt.Sprintf("a node of another cluster name (\"%s\") wants to join; give both the same cluster, or take this node's address out of its join list", name)
	}
	if m := lineCrypt.FindStringSubmatch(line); m != nil {
		return hostOf(m[1]), "a node with another cluster secret, or none on one side, wants to join; cluster-secret-file has to hold the same on both"
	}
	return "", ""
}

func hostOf(addr string) string {
	if host, _, err := net.SplitHostPort(strings.TrimSuffix(addr, ":")); err == nil {
		return host
	}
	return addr
}

// due tells whether it is time to tell of one.
func (k *knocks) due(host, text string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	who := host + " " + text
	if last, ok := k.told[who]; ok && time.Since(last) < knockEvery {
		return false
	}
	for old, at := range k.told {
		if time.Since(at) >= knockEvery {
			delete(k.told, old)
		}
	}
	if len(k.told) >= maxKnocks {
		return false // so many: a flood, and the first of it was told
	}
	if k.told == nil {
		k.told = map[string]time.Time{}
	}
	k.told[who] = time.Now()
	return true
}
