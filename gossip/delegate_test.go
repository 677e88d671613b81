package gossip

import (
	"bytes"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"edged/record"
)

// memberlist calls the delegate under its lock: a way back into it would be a deadlock some day. So
// no field that the delegate reaches may lead to memberlist or to Gossip. Functions are opaque
// to this walk; there is one, the token, and it only sends to channels.
func TestDelegateCannotReachMemberlist(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var walk func(path string, x reflect.Type)
	walk = func(path string, x reflect.Type) {
		if seen[x] {
			return
		}
		seen[x] = true
		if x == reflect.TypeFor[Gossip]() || strings.Contains(x.PkgPath(), "memberlist") {
			t.Errorf("%s is a %v", path, x)
		}
		switch x.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Chan:
			walk(path+"[]", x.Elem())
		case reflect.Map:
			walk(path+"[key]", x.Key())
			walk(path+"[]", x.Elem())
		case reflect.Struct:
			for i := range x.NumField() {
				walk(path+"."+x.Field(i).Name, x.Field(i).Type)
			}
		case reflect.Interface:
			t.Errorf("%s is an interface and may be anything", path)
		case reflect.Func:
			if !strings.HasSuffix(path, ".token") {
				t.Errorf("%s is a function", path)
			}
		}
	}
	walk("delegate", reflect.TypeFor[delegate]())
	if !seen[reflect.TypeFor[members]()] || !seen[reflect.TypeFor[leaders]()] {
		t.Fatal("the walk did not get anywhere")
	}
}

// newDelegate makes a delegate with room for few, and a count of its tokens.
func newDelegate(limit int) (delegate, *int) {
	tokens := 0
	count := func() { tokens++ }
	return delegate{
		newMembers(meta(1, 1), limit, forgetMembersOver, count), newLeaders(meta(1, 1).Cluster, limit, count), new(atomic.Bool),
	}, &tokens
}

func node(m Meta) *memberlist.Node {
	return &memberlist.Node{Name: m.memberName(), Addr: net.IPv4(10, 0, 0, byte(m.Node)), Port: 7946, Meta: m.encode()}
}

// meet is what memberlist does with a member that says it is alive.
func meet(d delegate, m Meta) error {
	err := d.NotifyAlive(node(m))
	if err == nil {
		d.NotifyJoin(node(m))
	}
	return err
}

func TestMembersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 10
		d, _ := newDelegate(limit)
		for i := range limit {
			if err := meet(d, meta(record.NodeID(i+1), 1)); err != nil {
				t.Fatal(err)
			}
		}
		over := meta(limit+1, 1)
		if err := meet(d, over); err == nil {
			t.Fatal("one too many was taken")
		}
		if err := meet(d, meta(3, 1)); err != nil {
			t.Fatalf("a known one again: %v", err)
		}
		d.NotifyLeave(node(meta(4, 1)))
		d.NotifyLeave(node(meta(5, 1)))
		if err := meet(d, over); err == nil {
			t.Fatal("room by a death that memberlist still remembers")
		}
		time.Sleep(forgetMembersOver + time.Second)
		d.NotifyLeave(node(meta(6, 1)))
		for i := range 2 {
			if err := meet(d, meta(record.NodeID(limit+1+i), 1)); err != nil {
				t.Fatalf("no room by an old death: %v", err)
			}
		}
		if err := meet(d, meta(limit+3, 1)); err == nil {
			t.Fatal("room by a fresh death")
		}
		if n := len(d.members.mu.names); n != limit {
			t.Fatalf("%d names", n)
		}
		if d.members.mu.refused == 0 || !strings.Contains(d.members.mu.lastWhy, "10 members") {
			t.Fatalf("last refusal %q", d.members.mu.lastWhy)
		}
	})
}

func TestForgedMembersAreRefused(t *testing.T) {
	d, tokens := newDelegate(10)
	good := node(meta(2, 1))
	for name, forge := range map[string]func(n *memberlist.Node){
		"no meta":             func(n *memberlist.Node) { n.Meta = nil },
		"garbage":             func(n *memberlist.Node) { n.Meta = bytes.Repeat([]byte{0xff}, 100) },
		"a later format":      func(n *memberlist.Node) { n.Meta = append([]byte{metaFormat + 1}, n.Meta[1:]...) },
		"cut off":             func(n *memberlist.Node) { n.Meta = n.Meta[:len(n.Meta)-metaMoves-2] },
		"too long":            func(n *memberlist.Node) { n.Meta = append(slices.Clone(n.Meta), make([]byte, maxMeta)...) },
		"another's name":      func(n *memberlist.Node) { n.Name = "3.1" },
		"no name":             func(n *memberlist.Node) { n.Name = "" },
		"a long name":         func(n *memberlist.Node) { n.Name = strings.Repeat("2", 100_000) },
		"another life's name": func(n *memberlist.Node) { n.Name = "2.2" },
		"node 0": func(n *memberlist.Node) {
			m := meta(0, 1)
			n.Name, n.Meta = m.memberName(), m.encode()
		},
		"our id": func(n *memberlist.Node) {
			m := meta(1, 1)
			m.Instance[3] = 9
			n.Name, n.Meta = m.memberName(), m.encode()
		},
		"our next life": func(n *memberlist.Node) {
			m := meta(1, 2)
			n.Name, n.Meta = m.memberName(), m.encode()
		},
		"a name that cannot be printed": func(n *memberlist.Node) {
			m := meta(2, 1)
			m.Name = "a\x1b[31mb"
			n.Meta = m.encode()
		},
	} {
		n := *good
		forge(&n)
		if err := d.NotifyAlive(&n); err == nil {
			t.Errorf("%s: taken", name)
		}
		if len(d.members.mu.lastWhy) > 500 {
			t.Errorf("%s: the reason has %d bytes", name, len(d.members.mu.lastWhy))
		}
	}
	if *tokens != 0 || len(d.members.mu.names) != 0 {
		t.Fatal("a forged member left something behind")
	}
	if d.members.mu.clones != 2 {
		t.Fatalf("%d clones noted, want 2", d.members.mu.clones)
	}
	if err := d.NotifyAlive(good); err != nil {
		t.Fatal(err)
	}
	if err := d.NotifyAlive(node(meta(1, 1))); err != nil {
		t.Fatalf("ourselves: %v", err)
	}
}

// A clone that has counted as many starts as the true node: whoever got into the cluster is looked for, whichever was
// heard first, and while both did not the one that was here first.
func TestRivals_theOneThatGotInIsLookedFor(t *testing.T) {
	state := func(boot record.BootID, s State) Meta {
		m := meta(2, 3)
		m.Boot, m.State = boot, s
		return m
	}
	for name, c := range map[string]struct {
		first, second Meta
		want          record.BootID
	}{
		"the second got in": {state(9, StateWaiting), state(5, StateMember), 5},
		"the first got in":  {state(9, StateMember), state(5, StateWaiting), 9},
		"both":              {state(9, StateMember), state(5, StateMember), 9},
		"neither":           {state(5, StateWaiting), state(9, StateWaiting), 5},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := newDelegate(10)
			for _, m := range []Meta{c.first, c.second, c.first} {
				if err := meet(d, m); err != nil {
					t.Fatal(err)
				}
			}
			if ms := d.members.list(); len(ms) != 1 || ms[0].Boot != c.want {
				t.Errorf("%+v", ms)
			}
			if d.members.mu.refused != 1 || !strings.Contains(d.members.mu.lastWhy, "one is a copy") {
				t.Errorf("told: %d, %q", d.members.mu.refused, d.members.mu.lastWhy)
			}
			d.NotifyLeave(node(c.first))
			if ms := d.members.list(); len(ms) != 1 || ms[0].Boot != c.second.Boot {
				t.Errorf("after the first went: %+v", ms)
			}
		})
	}
}

func TestNewestLifeCounts(t *testing.T) {
	d, _ := newDelegate(10)
	for _, counter := range []uint64{3, 5, 4} {
		if err := meet(d, meta(2, counter)); err != nil {
			t.Fatal(err)
		}
	}
	d.NotifyLeave(node(meta(2, 4)))
	d.NotifyLeave(node(meta(2, 77))) // unknown: nothing
	if ms := d.members.list(); len(ms) != 1 || ms[0].BootCounter != 5 || !ms[0].Alive {
		t.Fatalf("members %+v", ms)
	}
	d.NotifyLeave(node(meta(2, 5))) // a clone that was refused, say: the true node is still there
	if ms := d.members.list(); len(ms) != 1 || ms[0].BootCounter != 3 || !ms[0].Alive {
		t.Fatalf("members %+v", ms)
	}
	d.NotifyLeave(node(meta(2, 3)))
	if ms := d.members.list(); len(ms) != 1 || ms[0].BootCounter != 5 || ms[0].Alive {
		t.Fatalf("members %+v", ms)
	}
}

func TestNewestEpochWins(t *testing.T) {
	ls := newLeaders(record.ClusterID{1}, 10, func() {})
	for _, step := range []struct{ in, want Leader }{
		{Leader{1, 5, 3}, Leader{1, 5, 3}},
		{Leader{1, 6, 2}, Leader{1, 5, 3}},
		{Leader{1, 6, 3}, Leader{1, 5, 3}}, // one leader per epoch: somebody is wrong, and it is not the first
		{Leader{1, record.NoNode, 3}, Leader{1, 5, 3}},
		{Leader{1, record.NoNode, 4}, Leader{1, record.NoNode, 4}},
		{Leader{1, 7, 4}, Leader{1, 7, 4}},
		{Leader{1, 7, 4}, Leader{1, 7, 4}},
	} {
		ls.publish([]Leader{step.in}, 1)
		if got, ok := ls.get(1); !ok || got != step.want {
			t.Fatalf("after %+v: %+v, want %+v", step.in, got, step.want)
		}
	}
	if _, ok := ls.get(2); ok {
		t.Fatal("a group nobody spoke of")
	}
}

func TestLeadersAreBounded(t *testing.T) {
	d, tokens := newDelegate(5)
	var many []Leader
	for i := range 100 {
		many = append(many, Leader{record.GroupID(i), 1, 1})
	}
	ls := d.leaders
	ls.publish(many, 3)
	if len(ls.mu.table) != 5 || len(ls.mu.fresh) != 5 || len(ls.mu.left) != 5 || ls.mu.dropped != 95 || *tokens != 1 {
		t.Fatalf("%d in the table, %d news, %d dropped, %d tokens", len(ls.mu.table), len(ls.mu.fresh), ls.mu.dropped, *tokens)
	}
	ls.publish([]Leader{{2, 9, 9}}, 3)
	if l, _ := ls.get(2); l.Leader != 9 || len(ls.mu.fresh) != 5 {
		t.Fatal("a full table does not learn about what is in it")
	}
	for name, b := range map[string][]byte{
		"nothing":          {},
		"another format":   append([]byte{9}, make([]byte, 16+leaderSize)...),
		"cut off":          encodeLeaders(ls.mu.cluster, many)[:leadersHead+leaderSize+1],
		"too many":         encodeLeaders(ls.mu.cluster, many),
		"a negative epoch": encodeLeaders(ls.mu.cluster, []Leader{{1, 1, -1}}),
		"node 0":           encodeLeaders(ls.mu.cluster, []Leader{{1, 0, 100}}),
	} {
		before := ls.mu.garbled
		d.NotifyMsg(b)
		d.MergeRemoteState(b, true)
		if ls.mu.garbled != before+2 {
			t.Errorf("%s: not noticed", name)
		}
	}
	d.NotifyMsg(encodeLeaders(record.ClusterID{0xb}, []Leader{{3, 3, 100}}))
	if l, _ := ls.get(3); l.Epoch != 1 {
		t.Fatal("heard from another cluster")
	}
	ls.setCluster(record.ClusterID{0xb})
	if len(ls.mu.table)+len(ls.mu.fresh)+len(ls.mu.left) != 0 {
		t.Fatal("leaders of a cluster that we have left")
	}
	ls.setCluster(record.ClusterID{})
	if ls.publish(many, 1); len(ls.mu.table) != 0 {
		t.Fatal("leaders without a cluster")
	}
}

// Every packet fits, holds at most maxDelta, and each piece of news goes out as often as asked.
func TestDeltas(t *testing.T) {
	d, _ := newDelegate(1000)
	var many []Leader
	for i := range 200 {
		many = append(many, Leader{record.GroupID(i), 1, 1})
	}
	d.leaders.publish(many, 4)
	sent := map[record.GroupID]int{}
	packets := 0
	for {
		out := d.GetBroadcasts(3, 1400)
		if out == nil {
			break
		}
		if len(out) != 1 || len(out[0]) > maxPacket {
			t.Fatalf("%d messages, the first of %d bytes", len(out), len(out[0]))
		}
		_, in, err := parseLeaders(out[0], maxDelta)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range in {
			sent[l.Group]++
		}
		packets++
	}
	if len(sent) != 200 || packets != (200*4+maxDelta-1)/maxDelta {
		t.Fatalf("%d groups in %d packets", len(sent), packets)
	}
	for g, n := range sent {
		if n != 4 {
			t.Fatalf("group %d was sent %d times", g, n)
		}
	}
	d.leaders.publish([]Leader{{5, 2, 2}, {6, 2, 2}}, 4)
	_ = d.GetBroadcasts(0, leadersHead+2*leaderSize)
	d.leaders.publish([]Leader{{7, 2, 2}}, 1)
	if _, in, _ := parseLeaders(d.GetBroadcasts(0, leadersHead+leaderSize)[0], 1); in[0].Group != 7 {
		t.Fatalf("group %d goes before what nobody has heard yet", in[0].Group)
	}
	for _, limit := range []int{-5, 0, leadersHead + leaderSize + 2} {
		if out := d.GetBroadcasts(3, limit); out != nil {
			t.Fatalf("%d bytes for a limit of %d", len(out[0]), limit)
		}
	}
	if out := d.GetBroadcasts(3, leadersHead+leaderSize+3); len(out) != 1 {
		t.Fatal("one leader fits exactly")
	}
	d.leaders.retain(func(record.GroupID) bool { return false })
	if out := d.GetBroadcasts(3, 1400); out != nil || len(d.leaders.mu.left) != 0 {
		t.Fatal("news of a group that is gone")
	}
}

// News is passed on by those who hear it, known things are not.
func TestNewsIsPassedOn(t *testing.T) {
	a, _ := newDelegate(100)
	b, tokens := newDelegate(100)
	if err := meet(b, meta(1, 1)); err != nil {
		t.Fatal(err)
	}
	*tokens = 0
	a.leaders.publish([]Leader{{1, 2, 3}}, 2)
	for range 2 {
		b.NotifyMsg(a.GetBroadcasts(0, 1400)[0])
	}
	if *tokens != 1 {
		t.Fatalf("%d tokens for one piece of news", *tokens)
	}
	if out := b.GetBroadcasts(0, 1400); len(out) != 1 {
		t.Fatal("not passed on")
	}
	c, _ := newDelegate(100)
	c.MergeRemoteState(a.LocalState(true), true)
	if l, ok := c.leaders.get(1); !ok || l != (Leader{1, 2, 3}) {
		t.Fatalf("by full state: %+v", l)
	}
	if out := c.GetBroadcasts(0, 1400); out != nil {
		t.Fatal("full state was passed on")
	}
}

func TestMetaRoundTrip(t *testing.T) {
	m := meta(7, 9)
	m.Name, m.Version, m.Expect = strings.Repeat("ü", MaxName/2), strings.Repeat("v", MaxVersion), 255
	b := m.encode()
	if len(b) > maxMeta/2 {
		t.Fatalf("the longest has %d bytes", len(b))
	}
	for _, b := range [][]byte{b, append(b, "of a later version"...)} {
		if got, err := parseMeta(b); err != nil || got != m {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	if s := fmt.Sprint(StateWaiting, StateVirgin, State(9)); s != "waiting virgin state 9" {
		t.Fatal(s)
	}
}

func FuzzParseMeta(f *testing.F) {
	f.Add(meta(1, 1).encode())
	f.Add(append(meta(1, 1).encode(), 1, 2, 3))
	f.Add([]byte{metaFormat})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMeta(b)
		if err != nil {
			return
		}
		again := m.encode()
		if head := again[:len(again)-metaMoves]; !bytes.HasPrefix(b, head) { // earlier versions had no more
			t.Fatalf("read %x, wrote %x", b, again)
		}
		if m2, err := parseMeta(again); err != nil || m2 != m {
			t.Fatalf("read %+v, then %+v, %v", m, m2, err)
		}
	})
}

// Whatever others send, the tables stay within their limits and what is in them can be sent on.
func FuzzDelegate(f *testing.F) {
	f.Add(encodeLeaders(meta(1, 1).Cluster, []Leader{{1, 2, 3}, {4, record.NoNode, 5}}), "2.1", meta(2, 1).encode())
	f.Add([]byte{}, "", []byte{})
	f.Fuzz(func(t *testing.T, msg []byte, name string, meta []byte) {
		d, _ := newDelegate(3)
		d.NotifyMsg(msg)
		d.MergeRemoteState(msg, false)
		n := &memberlist.Node{Name: name, Meta: meta}
		if d.NotifyAlive(n) == nil {
			d.NotifyJoin(n)
			d.NotifyLeave(n)
		}
		if len(d.leaders.mu.table) > 3 || len(d.members.mu.names) > 3 {
			t.Fatal("above the limit")
		}
		if _, _, err := parseLeaders(d.LocalState(true), 3); err != nil {
			t.Fatal(err)
		}
	})
}
