package node

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"edged/partition"
	"edged/record"
	"edged/storage"
	"edged/transport/wire"
)

// produceTo puts a record into a partition of t and waits until a majority has it.
func produceTo(t *testing.T, nodes []*testNode, p int32, value string) {
	t.Helper()
	batch := record.NewBuilder(record.None, 1<<16)
	batch.Append(1, nil, []byte(value), nil)
	built := batch.Build()
	await(t, "a record of partition "+fmt.Sprint(p)+" is acknowledged", func() bool {
		for _, n := range nodes {
			done := make(chan wire.ProduceResponse, 1)
			broker{n.Node}.Produce(wire.ProduceRequest{Topic: "t", Partition: p, Acks: wire.AcksAll, Epoch: record.NoEpoch, Batch: append(record.Batch(nil), built...)}, func(r wire.ProduceResponse) { done <- r })
			if r := <-done; r.Err == nil {
				return true
			}
		}
		return false
	})
}

// whole tells whether all copies of t on all nodes are in service, voters, and as far as each other.
func whole(nodes []*testNode) bool {
	for _, n := range nodes {
		h := n.host.Load()
		if h == nil || !n.caughtUp() {
			return false
		}
		if v := h.Partition(record.MetadataGroup).View(); v.Role == partition.RoleDamaged || len(v.Voters) != len(nodes) {
			return false
		}
		for _, p := range n.machine.Picture().Topic("t").Partitions {
			part := h.Lookup(p.Group)
			if part == nil || len(p.Replicas) != len(nodes) || len(p.Adding)+len(p.Removing) > 0 {
				return false
			}
			if v := part.View(); v.Role == partition.RoleDamaged || v.Role == partition.RoleNone || len(v.Voters) != len(nodes) || v.Leader == record.NoNode {
				return false
			}
			if n.store.Damage(p.Group) != nil {
				return false
			}
			high := nodes[0].host.Load().Partition(p.Group).HighWatermark()
			if _, _, next, ok := n.store.Bounds(p.Group); !ok || next != high {
				return false
			}
		}
	}
	return true
}

func noted(n *testNode, part string) bool {
	events, _ := n.notes.after(0)
	for _, e := range events {
		if strings.Contains(e.Text, part) {
			return true
		}
	}
	return false
}

// forPeople fails if what a node tells has words from inside: numbers of groups, names of a library's parts.
func forPeople(t *testing.T, n *testNode) {
	t.Helper()
	events, _ := n.notes.after(0)
	texts := n.describeSelf().Problems
	for _, e := range events {
		texts = append(texts, e.Text)
	}
	for _, text := range texts {
		if regexp.MustCompile(`group \d|<|pebble|raft:`).MatchString(text) {
			t.Errorf("an operator reads: %s", text)
		}
	}
}

// What damage is called does not depend on whether the metadata is read yet: it waits for the name, not for long.
func TestUnnamed_waitsForTheName(t *testing.T) {
	n := startNode(t, 0)
	awaitReady(t, n)
	n.onStorage(storage.Event{Kind: storage.EventCorruption, Err: &storage.CorruptError{Group: 1 << 20, Index: 7, What: "entry", Cause: errors.New("wrong checksum")}})
	if noted(n, "wrong checksum") {
		t.Error("it is told without a name at once")
	}
	if _, err := (broker{n.Node}).CreateTopic(t.Context(), wire.CreateTopicRequest{Name: "t", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	n.unnamed.mu.Lock()
	n.unnamed.list[0].group = n.machine.Picture().Topic("t").Partitions[0].Group
	n.unnamed.mu.Unlock()
	n.wake()
	await(t, "it is told with its name", func() bool { return noted(n, "t/0: stored data is damaged: entry 7: entry: wrong checksum") })
	forPeople(t, n)
}

// A card has forgotten what it had said it had written: the data of partitions and of the metadata. The node goes on, says
// so, and fetches all of it anew from the others; nobody has to do anything, and nothing is missing.
func TestMend_aCardThatForgotIsFilledAnew(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	await(t, "all copies", func() bool { return whole(nodes) })
	put := func(n int) {
		for p := range int32(6) {
			for i := range n {
				produceTo(t, nodes, p, fmt.Sprintf("%d %d", p, i))
			}
		}
	}
	put(5)
	dir, join := nodes[2].cfg.DataDir, nodes[0].Addrs().Gossip
	nodes[2].stop()
	old := t.TempDir()
	if err := os.CopyFS(old, os.DirFS(filepath.Join(dir, "store"))); err != nil {
		t.Fatal(err)
	}
	nodes[2] = startNodeIn(t, dir, 3, join)
	await(t, "all copies again", func() bool { return whole(nodes) })
	put(5)
	await(t, "all have it", func() bool { return whole(nodes) })
	nodes[2].stop()
	if err := os.RemoveAll(filepath.Join(dir, "store")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "store"), os.DirFS(old)); err != nil {
		t.Fatal(err)
	}
	nodes[2] = startNodeIn(t, dir, 3, join)
	await(t, "the loss is noticed", func() bool { return noted(nodes[2], partition.ErrLostWrites.Error()) })
	await(t, "all copies after the loss", func() bool { return whole(nodes) })
	put(1)
	await(t, "all copies at the end", func() bool { return whole(nodes) })
	for p, part := range nodes[2].machine.Picture().Topic("t").Partitions {
		st, ok := nodes[2].store.State(part.Group)
		if !ok || st.Err != nil || st.NextOffset < 11 {
			t.Errorf("partition %d ends at %d, %v", p, st.NextOffset, st.Err)
		}
	}
}

// A bit has flipped in what a node has stored. Whoever reads it finds that; the replica is fetched anew while it goes
// on as a voter.
func TestMend_aFlippedBitIsFetchedAnew(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	await(t, "all copies", func() bool { return whole(nodes) })
	noise := make([]byte, 50<<10)
	rng := rand.NewChaCha8([32]byte{1})
	for range 150 { // more than a memtable: the first of them are in a table
		_, _ = rng.Read(noise)
		produceTo(t, nodes, 0, string(noise))
	}
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise) // the first record
	await(t, "all have it", func() bool { return whole(nodes) })
	dir, join := nodes[2].cfg.DataDir, nodes[0].Addrs().Gossip
	g := nodes[2].machine.Picture().Topic("t").Partitions[0].Group
	nodes[2].stop()
	flipWhere(t, filepath.Join(dir, "store"), noise[100:200])
	nodes[2] = startNodeIn(t, dir, 3, join)
	await(t, "the node is back", func() bool { return nodes[2].host.Load() != nil && nodes[2].caughtUp() })
	old, _ := nodes[2].store.State(g)
	if _, _, err := nodes[2].store.ReadFrom(g, 0, 10, 1<<20, nil); err == nil {
		t.Fatal("the flipped bit was not found")
	}
	await(t, "another replica", func() bool {
		st, ok := nodes[2].store.State(g)
		return ok && st.Replica != old.Replica && whole(nodes)
	})
	if out, _, err := nodes[2].store.ReadFrom(g, 0, 10, 1<<20, nil); err != nil || !bytes.Contains(out, noise) {
		t.Errorf("the first record after that: %d bytes, %v", len(out), err)
	}
	forPeople(t, nodes[2])
}

// flipWhere flips a bit of the one table that holds what.
func flipWhere(t *testing.T, dir string, what []byte) {
	t.Helper()
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range tables {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(b, what); at >= 0 {
			b[at] ^= 1
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("none of %d tables holds the record", len(tables))
}

// The only replica of a partition is not given up, whatever is wrong with it; the node says what is to be done.
func TestMend_theOnlyReplicaStays(t *testing.T) {
	t.Parallel()
	n := startCluster(t, 1)[0]
	noise := make([]byte, 50<<10)
	rng := rand.NewChaCha8([32]byte{2})
	for range 150 {
		_, _ = rng.Read(noise)
		produceTo(t, []*testNode{n}, 0, string(noise))
	}
	_, _ = rand.NewChaCha8([32]byte{2}).Read(noise)
	dir, g := n.cfg.DataDir, n.machine.Picture().Topic("t").Partitions[0].Group
	n.stop()
	flipWhere(t, filepath.Join(dir, "store"), noise[100:200])
	n = startNodeIn(t, dir, 0)
	await(t, "the node is back", func() bool { return n.notReady() == nil && n.caughtUp() })
	old, _ := n.store.State(g)
	if _, _, err := n.store.ReadFrom(g, 0, 10, 1<<20, nil); err == nil {
		t.Fatal("the flipped bit was not found")
	}
	for range 3 {
		n.wake()
		time.Sleep(2 * hurry)
	}
	problems := strings.Join(n.describeSelf().Problems, "\n")
	if st, _ := n.store.State(g); st.Replica != old.Replica || !strings.Contains(problems, "t/0 is damaged in part") || !strings.Contains(problems, "it is the only replica") {
		t.Errorf("replica %v became %v; problems: %s", old.Replica, st.Replica, problems)
	}
	forPeople(t, n)
	if t.Failed() {
		return
	}
}

// Who votes decides whether a damaged replica is given up.
func TestWhyNotMended(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	await(t, "all copies", func() bool { return whole(nodes) })
	n := nodes[0]
	held := n.machine.Picture().ReplicasOn(n.ident.Get().Node)[0]
	for name, c := range map[string]struct {
		replicas int
		err      error
		served   bool
		stays    string
	}{
		"three, out of service": {3, errors.New("x"), false, ""},
		"three, lost writes":    {3, partition.ErrLostWrites, false, ""},
		"three, in part":        {3, errors.New("x"), true, ""},
		"three, diverged":       {3, partition.ErrDiverged, false, "only copy of acknowledged"},
		"two, out of service":   {2, errors.New("x"), false, "both are needed"},
		"two, in part":          {2, errors.New("x"), true, ""},
		"one":                   {1, errors.New("x"), true, "only replica"},
	} {
		h := held
		part := *held.Partition
		part.Replicas = append([]record.ReplicaID{held.Replica}, slices.DeleteFunc(slices.Clone(part.Replicas), func(r record.ReplicaID) bool { return r == held.Replica })...)[:c.replicas]
		h.Partition = &part
		if why := n.whyNotMended(h, c.err, c.served); (why == "") != (c.stays == "") || !strings.Contains(why, c.stays) {
			t.Errorf("%s: %q", name, why)
		}
	}
	nodes[1].stop()
	nodes[2].stop()
	await(t, "a majority is gone", func() bool {
		return strings.Contains(n.whyNotMended(held, errors.New("x"), false), "no majority without it")
	})
}
