package node

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edged/record"
	"edged/transport/peer"
)

// What is said of a connection that is refused holds as long as it is refused: not when it stands, not when nobody
// wants it, not long after the last try.
func TestRefusals_areOverWhenTheyAreOver(t *testing.T) {
	refused := fmt.Errorf("%w: node 3 was removed", record.ErrRefused)
	for name, tt := range map[string]struct {
		then func(r *refusals)
		want bool
	}{
		"it was tried just now":    {func(r *refusals) { time.Sleep(refusalFor / 2) }, true},
		"it is tried again":        {func(r *refusals) { time.Sleep(refusalFor); r.add(3, "h:1", refused); time.Sleep(refusalFor) }, true},
		"the connection stands":    {func(r *refusals) { r.forget(3) }, false},
		"another connection does":  {func(r *refusals) { r.forget(4) }, true},
		"nobody has tried since":   {func(r *refusals) { time.Sleep(refusalFor + time.Second) }, false},
		"from another port, again": {func(r *refusals) { r.add(3, "h:2", refused) }, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &refusals{}
			if !r.add(3, "h:1", refused) || r.add(3, "h:2", refused) {
				t.Error("news is what is new, and a port is not")
			}
			tt.then(r)
			all := r.all()
			if (len(all) == 1) != tt.want || tt.want && !strings.Contains(all[0], "no connection with node 3 at h:") {
				t.Errorf("%s: %q", name, all)
			}
		})
	}
	r := &refusals{}
	for i := range 2 * maxProblems {
		r.add(record.NoNode, fmt.Sprintf("host%d:1", i), refused)
	}
	if len(r.all()) != maxProblems {
		t.Errorf("%d are kept", len(r.all()))
	}
}

// A node says that there is no connection while it is refused, and no more when it stands again.
func TestProblems_aConnectionThatStandsAgainIsNone(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	has := func() bool {
		return strings.Contains(strings.Join(nodes[0].describeSelf().Problems, "\n"), "no connection with")
	}
	other := nodes[1].ident.Get().Node
	h := peerHandler{nodes[0].Node}
	h.PeerRefused(other, "127.0.0.1:1", fmt.Errorf("%w (another life)", peer.ErrClusterName))
	if !has() {
		t.Fatalf("%q", nodes[0].describeSelf().Problems)
	}
	nodes[0].peers.RemovePeer(other) // the connection breaks and comes again
	if err := nodes[0].peers.SetPeer(other, nodes[1].Addrs().Native); err != nil {
		t.Fatal(err)
	}
	await(t, "nothing is said", func() bool { return !has() })
	h.PeerRefused(other, "127.0.0.1:1", errors.Join(peer.ErrWrongNode))
	if has() {
		t.Error("an address that changed hands is told as a problem")
	}
}

// A wait that took far longer than it can is a process that stood still, and is told as that.
func TestStandstill_isTold(t *testing.T) {
	for waited, want := range map[time.Duration]string{
		0: "", janitorEvery: "", janitorEvery + stillLeast - 1: "",
		janitorEvery + 28*time.Second: "this process stood still for 28s to 33s",
	} {
		n := &Node{notes: openEventLog("", time.Now), log: slog.New(slog.DiscardHandler)}
		n.noteStandstill(waited)
		events, _ := n.notes.after(0)
		got := ""
		for _, e := range events {
			if got = e.Text; e.Kind != eventProcess {
				t.Errorf("an event of kind %q", e.Kind)
			}
		}
		if (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("a wait of %v: %q", waited, got)
		}
	}
}

// A node that was a cluster of one once and is started as if to join others says so: as an event, in the log, and to
// everybody who asks for its problems.
func TestAlone_isSaid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := startNodeIn(t, dir, 0)
	awaitReady(t, n)
	n.stop()
	for name, tt := range map[string]struct {
		expect int
		join   []string
		want   bool
	}{
		"as it was":          {0, nil, false},
		"alone by its word":  {1, []string{"127.0.0.1:1"}, false},
		"as if to join":      {0, []string{"127.0.0.1:1"}, true},
		"as if to form anew": {3, []string{"127.0.0.1:1"}, true},
	} {
		n := startNodeIn(t, dir, tt.expect, tt.join...)
		awaitReady(t, n)
		told := func() bool {
			return strings.Contains(strings.Join(n.describeSelf().Problems, "\n"), "move "+dir+" away")
		}
		if tt.want {
			await(t, name, func() bool { return told() && noted(n, "never joins another one") })
		} else if n.wake(); told() {
			t.Errorf("%s: %q", name, n.describeSelf().Problems)
		}
		n.stop()
		if err := os.Remove(filepath.Join(dir, eventsFileName)); err != nil {
			t.Fatal(err)
		}
	}
}
