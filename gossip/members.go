package gossip

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"edged/record"
)

// Member is what gossip knows of a node.
type Member struct {
	Meta
	Host  string // its address, without port
	Addr  string // where its gossip listens, host:port
	Alive bool   // according to gossip, which is seconds late and may be wrong
}

// members holds every name that memberlist told us of. A name is one life of a node.
type members struct {
	limit int           // names
	keep  time.Duration // that a dead name stays at least, so that memberlist has forgotten it before us
	token func()        // leaves word that something has changed; does not block

	knocks knocks

	mu struct {
		sync.Mutex
		self      Meta
		names     map[string]*life // at most limit
		met       uint64           // names so far
		refused   uint64
		lastWhy   string // of the last refusal
		refusedAt time.Time
		clones    uint64
		lastTwin  string // of the last clone
		twinAt    time.Time
	}
}

type life struct {
	Member
	met  uint64    // counts the names in the order in which they came
	died time.Time // zero while alive
}

// before tells which of two lives of one node others should look for. One that is alive goes before one that is
// gone: a clone that was here and was refused must not hide the true node. Of rivals it is the one that got
// into a cluster, then the one that was here first.
func (l *life) before(o *life) bool {
	switch {
	case l.Alive != o.Alive:
		return l.Alive
	case !l.rivals(o.Meta):
		return l.newer(o.Meta)
	case (l.State == StateMember) != (o.State == StateMember):
		return l.State == StateMember
	}
	return l.met < o.met
}

func newMembers(self Meta, limit int, keep time.Duration, token func()) *members {
	ms := &members{limit: limit, keep: keep, token: token}
	ms.mu.self = self
	ms.mu.names = make(map[string]*life)
	return ms
}

func (ms *members) self() Meta {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return ms.mu.self
}

// setSelf changes what we say of ourselves. Who we are does not change.
func (ms *members) setSelf(m Meta) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	old := ms.mu.self
	m.Node, m.Instance, m.BootCounter, m.Boot, m.Moves = old.Node, old.Instance, old.BootCounter, old.Boot, old.Moves
	ms.mu.self = m
}

// move gives us a new name, for another address, and takes the others for gone until they are met from there.
func (ms *members) move() {
	ms.mu.Lock()
	ms.mu.self.Moves++
	for _, l := range ms.mu.names {
		if l.Alive {
			l.Alive, l.died = false, time.Now()
		}
	}
	ms.mu.Unlock()
	ms.token()
}

// admit decides whether memberlist may know a name at all.
func (ms *members) admit(name string, meta []byte) error {
	m, err := parseMeta(meta)
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if err == nil {
		err = ms.checkLocked(name, m)
	}
	if err != nil {
		ms.refuseLocked(strconv.Quote(name[:min(len(name), MaxName)]) + ": " + err.Error())
	}
	return err
}

// refuse notes that somebody was not heard.
func (ms *members) refuse(why string) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.refuseLocked(why)
}

func (ms *members) refuseLocked(why string) {
	ms.mu.refused++
	ms.mu.lastWhy, ms.mu.refusedAt = why, time.Now()
}

func (ms *members) checkLocked(name string, m Meta) error {
	self := ms.mu.self
	switch {
	case name != m.memberName():
		return fmt.Errorf("the name is not that of node %d in life %d", m.Node, m.BootCounter)
	case ms.mu.names[name] == nil && !self.mixes(m): // a known one may change; list hides it
		return fmt.Errorf("it is of cluster %v, this node of %v", m.Cluster, self.Cluster)
	case m.Node == self.Node && (m.Instance != self.Instance || m.BootCounter > self.BootCounter || m.BootCounter == self.BootCounter && m.Boot != self.Boot):
		ms.twinLocked(fmt.Sprintf("instance %v with boot counter %d", m.Instance, m.BootCounter))
		return fmt.Errorf("it lives under this node's id %d", self.Node)
	case ms.mu.names[name] == nil && !ms.roomLocked():
		return fmt.Errorf("%d members are known already", len(ms.mu.names))
	}
	return nil
}

// twinLocked notes a second process under our own identity.
func (ms *members) twinLocked(who string) {
	ms.mu.clones++
	ms.mu.lastTwin, ms.mu.twinAt = who, time.Now()
}

// conflict notes that one name is claimed from two addresses: a cloned card.
func (ms *members) conflict(name, ours, theirs string) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if name == ms.mu.self.memberName() {
		ms.twinLocked("another process at " + theirs)
		return
	}
	ms.refuseLocked(fmt.Sprintf("%s at %s: the name is held from %s", name, theirs, ours))
}

// roomLocked makes room for one name by forgetting the one that has been dead for longest. Those
// that died lately stay, so that forged names cannot push memberlist's own table above the limit.
func (ms *members) roomLocked() bool {
	if len(ms.mu.names) < ms.limit {
		return true
	}
	oldest := ""
	for name, l := range ms.mu.names {
		if !l.died.IsZero() && time.Since(l.died) > ms.keep && (oldest == "" || l.died.Before(ms.mu.names[oldest].died)) {
			oldest = name
		}
	}
	delete(ms.mu.names, oldest)
	return oldest != ""
}

// alive notes a name that lives, or has changed. memberlist has asked admit before.
func (ms *members) alive(name string, ip net.IP, port uint16, meta []byte) {
	m, err := parseMeta(meta)
	if err != nil {
		return
	}
	ms.mu.Lock()
	l := ms.mu.names[name]
	if l == nil && ms.roomLocked() {
		ms.mu.met++
		l = &life{met: ms.mu.met}
		ms.mu.names[name] = l
		ms.noteRivalsLocked(m)
	}
	if l != nil {
		host := ip.String()
		l.Member, l.died = Member{Meta: m, Host: host, Addr: net.JoinHostPort(host, strconv.Itoa(int(port))), Alive: true}, time.Time{}
	}
	ms.mu.Unlock()
	ms.token()
}

// noteRivalsLocked tells people of a clone that is heard beside the node it was copied from.
func (ms *members) noteRivalsLocked(m Meta) {
	for _, l := range ms.mu.names {
		if l.Alive && l.rivals(m) {
			ms.refuseLocked(fmt.Sprintf("node %d is heard from two machines that have both counted %d starts: one is a copy", m.Node, m.BootCounter))
		}
	}
}

func (ms *members) dead(name string) {
	ms.mu.Lock()
	if l := ms.mu.names[name]; l != nil && l.Alive {
		l.Alive, l.died = false, time.Now()
	}
	ms.mu.Unlock()
	ms.token()
}

// list gives the newest life of each node that may mix with us, by node id.
func (ms *members) list() []Member { return ms.newest(true) }

// newest gives the life of each node that others should look for, of those that may mix with us, or must not.
func (ms *members) newest(mixes bool) []Member {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	newest := make(map[record.NodeID]*life, len(ms.mu.names))
	for _, l := range ms.mu.names {
		if old := newest[l.Node]; ms.mu.self.mixes(l.Meta) == mixes && (old == nil || l.before(old)) {
			newest[l.Node] = l
		}
	}
	out := make([]Member, 0, len(newest))
	for _, l := range newest {
		out = append(out, l.Member)
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// twins are the other lives of this node that are held to be alive.
func (ms *members) twins() []Member {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	var out []Member
	for _, l := range ms.mu.names {
		if self := ms.mu.self; l.Node == self.Node && l.Boot != self.Boot && l.Alive {
			out = append(out, l.Member)
		}
	}
	return out
}

// count is how many names are alive, us included.
func (ms *members) count() int {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	n := 0
	for _, l := range ms.mu.names {
		if l.Alive {
			n++
		}
	}
	return n
}
