package groups

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"edged/record"
)

func apply(t testing.TB, s *State, index uint64, c Command) error {
	t.Helper()
	data, err := Encode(0, c)
	if err != nil {
		t.Fatal(err)
	}
	_, back, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Encode(0, back); err != nil || !bytes.Equal(again, data) {
		t.Fatalf("%T is %x decoded and encoded again, not %x (%v)", c, again, data, err)
	}
	err, _ = s.Apply(index, data).(error)
	return err
}

// model is the state as simply as it can be: no order, no sizes, no sharing.
type model struct {
	groups  map[string]Group
	changed map[string]uint64
	offsets map[string]map[record.TopicPartition]Offset
}

func (m *model) apply(index uint64, cmd Command) (ok bool) {
	switch c := cmd.(type) {
	case *PutGroup:
		m.groups[c.Name], m.changed[c.Name] = c.Group, index
	case *CommitOffsets:
		for _, t := range c.Topics {
			for _, o := range m.offsets[c.Group] {
				if o.Topic == t.Name && o.First > t.First {
					return false
				}
			}
		}
		g := m.groups[c.Group]
		g.Name = c.Group
		m.groups[c.Group], m.changed[c.Group] = g, index
		if m.offsets[c.Group] == nil {
			m.offsets[c.Group] = map[record.TopicPartition]Offset{}
		}
		for _, t := range c.Topics {
			maps.DeleteFunc(m.offsets[c.Group], func(tp record.TopicPartition, o Offset) bool { return tp.Topic == t.Name && o.First < t.First })
			for _, p := range t.Parts {
				tp := record.TopicPartition{Topic: t.Name, Partition: p.Partition}
				if m.offsets[c.Group][tp] = (Offset{t.Name, p, t.First, c.At, index}); p.Offset < 0 {
					delete(m.offsets[c.Group], tp)
				}
			}
		}
	case *DropOffsets:
		if _, ok := m.groups[c.Group]; !ok {
			return false
		}
		for _, t := range c.Topics {
			for _, p := range t.Parts {
				tp := record.TopicPartition{Topic: t.Name, Partition: p}
				if m.offsets[c.Group][tp].index <= c.UpTo {
					delete(m.offsets[c.Group], tp)
				}
			}
		}
	case *DeleteGroup:
		g, ok := m.groups[c.Group]
		if !ok || len(g.Members) > 0 || m.changed[c.Group] > c.UpTo {
			return false
		}
		delete(m.groups, c.Group)
		delete(m.changed, c.Group)
		delete(m.offsets, c.Group)
	}
	return true
}

// randomCommand is a command on few groups and topics, so that they meet.
func randomCommand(r *rand.Rand, index uint64) Command {
	group := fmt.Sprintf("g%d", r.IntN(4))
	topics := func(most int) []string {
		var names []string
		for range r.IntN(most + 1) {
			names = append(names, fmt.Sprintf("t%d", r.IntN(3)))
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	upTo := index - min(index, uint64(r.IntN(30)))
	switch r.IntN(8) {
	case 0, 1:
		g := Group{Name: group, ProtocolType: "consumer", Generation: r.Int32N(100), EmptySince: r.Int64N(9)}
		for i := range r.IntN(3) {
			g.Members = append(g.Members, Member{
				ID: fmt.Sprint("m", i), Instance: strings.Repeat("i", r.IntN(3)), SessionMs: r.Int32(), RebalanceMs: r.Int32(),
				Protocols: []Protocol{{"p", []byte(strings.Repeat("x", r.IntN(50)))}}, Assignment: []byte{byte(i)},
			})
			g.Protocol, g.Leader = "p", "m0"
		}
		return &PutGroup{g}
	case 2:
		return &DeleteGroup{group, upTo}
	case 3:
		c := &DropOffsets{Group: group, UpTo: upTo}
		for _, name := range topics(2) {
			c.Topics = append(c.Topics, TopicDrop{name, []int32{r.Int32N(5), r.Int32N(5)}})
		}
		return c
	case 4:
		return &Begin{}
	default:
		c := &CommitOffsets{Group: group, At: r.Int64()}
		for _, name := range topics(3) {
			t := TopicCommit{Name: name, First: record.GroupID(r.IntN(40) / 39)}
			for range 1 + r.IntN(4) {
				t.Parts = append(t.Parts, Commit{r.Int32N(5), record.Offset(r.Int64N(100) - 5), record.Epoch(r.IntN(5) - 1), strings.Repeat("m", r.IntN(40))})
			}
			c.Topics = append(c.Topics, t)
		}
		return c
	}
}

// TestState_isWhatTheModelIs applies random commands to a state, to a plain model of it, and to a
// second state that is taken down and restored again and again.
func TestState_isWhatTheModelIs(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		s, restored := New(), New()
		m := &model{map[string]Group{}, map[string]uint64{}, map[string]map[record.TopicPartition]Offset{}}
		for index := uint64(1); index < 400; index++ {
			cmd := randomCommand(r, index)
			before := s.Snapshot()
			err := apply(t, s, index, cmd)
			if err2 := apply(t, restored, index, cmd); fmt.Sprint(err) != fmt.Sprint(err2) {
				t.Fatalf("seed %d, %d: %v, and %v after a restore", seed, index, err, err2)
			}
			if ok := m.apply(index, cmd); ok != (err == nil) {
				t.Fatalf("seed %d, %d: %T gave %v", seed, index, cmd, err)
			}
			if err != nil {
				s.applied = index - 1 // the one thing that a failure changes
				if !bytes.Equal(s.Snapshot(), before) {
					t.Fatalf("seed %d, %d: %T failed (%v) and changed the state", seed, index, cmd, err)
				}
				s.applied = index
			}
			compare(t, s, m)
			snapshot := s.Snapshot()
			if !bytes.Equal(snapshot, restored.Snapshot()) {
				t.Fatalf("seed %d, %d: two states after the same commands have other snapshots", seed, index)
			}
			if len(snapshot) > s.Bytes()+snapshotHead+30 {
				t.Fatalf("seed %d, %d: a snapshot of %d bytes, %d were counted", seed, index, len(snapshot), s.Bytes())
			}
			if r.IntN(5) == 0 {
				next := New()
				if err := next.Restore(snapshot); err != nil {
					t.Fatal(err)
				}
				if next.Bytes() != s.Bytes() {
					t.Fatalf("seed %d, %d: %d bytes counted, %d after a restore", seed, index, s.Bytes(), next.Bytes())
				}
				restored = next
			}
		}
	}
}

func compare(t *testing.T, s *State, m *model) {
	t.Helper()
	var want []Group
	for _, name := range slices.Sorted(maps.Keys(m.groups)) {
		want = append(want, m.groups[name])
		offsets := s.Offsets(name)
		if len(offsets) != len(m.offsets[name]) {
			t.Fatalf("group %s has %d offsets, not %d", name, len(offsets), len(m.offsets[name]))
		}
		for i, o := range offsets {
			tp := record.TopicPartition{Topic: o.Topic, Partition: o.Partition}
			one, ok := s.Offset(name, tp)
			if m.offsets[name][tp] != o || !ok || one != o {
				t.Fatalf("group %s, %v: %+v and %+v, not %+v", name, tp, o, one, m.offsets[name][tp])
			}
			if i > 0 && (offsets[i-1].Topic > o.Topic || offsets[i-1].Topic == o.Topic && offsets[i-1].Partition >= o.Partition) {
				t.Fatalf("group %s: %v is out of order", name, tp)
			}
		}
	}
	got := s.Groups()
	if len(got) != len(want) {
		t.Fatalf("%d groups, not %d", len(got), len(want))
	}
	for i := range got {
		one, ok := s.Group(want[i].Name)
		if !ok || !reflect.DeepEqual(got[i], one) || fmt.Sprint(got[i]) != fmt.Sprint(want[i]) {
			t.Fatalf("group %+v, not %+v", got[i], want[i])
		}
	}
}

func commitOne(group, topic string, partition int32, offset record.Offset, metadata string) *CommitOffsets {
	return &CommitOffsets{group, 7, []TopicCommit{{topic, 10, []Commit{{partition, offset, 0, metadata}}}}}
}

func TestState_whatCameLaterIsNotDropped(t *testing.T) {
	s := New()
	for i, c := range []Command{commitOne("g", "t", 0, 5, ""), commitOne("g", "t", 1, 5, ""), commitOne("g", "t", 0, 6, "")} {
		if err := apply(t, s, uint64(i+1), c); err != nil {
			t.Fatal(err)
		}
	}
	if err := apply(t, s, 4, &DropOffsets{"g", 2, []TopicDrop{{"t", []int32{0, 1}}}}); err != nil {
		t.Fatal(err)
	}
	if got := s.Offsets("g"); len(got) != 1 || got[0].Offset != 6 {
		t.Errorf("the offset that came after the decision is gone: %+v", got)
	}
	if err := apply(t, s, 5, &DeleteGroup{"g", 2}); !errors.Is(err, record.ErrGroupNotEmpty) {
		t.Errorf("a group that was written to after the decision is deleted: %v", err)
	}
	if err := apply(t, s, 6, &DeleteGroup{"g", 3}); err != nil {
		t.Error(err)
	}
}

// TestState_epochs: what a coordinator proposed counts only until the next one begins.
func TestState_epochs(t *testing.T) {
	s := New()
	index := uint64(0)
	do := func(epoch record.Epoch, c Command) error {
		index++
		err, _ := s.Apply(index, mustEncode(t, epoch, c)).(error)
		return err
	}
	for _, step := range []struct {
		epoch record.Epoch
		c     Command
		taken bool
	}{
		{3, commitOne("g", "t", 0, 1, ""), false}, // it has not begun
		{3, &Begin{}, true},
		{3, commitOne("g", "t", 0, 2, ""), true},
		{5, &Begin{}, true},
		{3, commitOne("g", "t", 0, 3, ""), false},
		{3, &Begin{}, false},
		{5, &Begin{}, true},
		{5, commitOne("g", "t", 0, 4, ""), true},
		{6, &DeleteGroup{"g", index}, false},
	} {
		if err := do(step.epoch, step.c); (err == nil) != step.taken || err != nil && !errors.Is(err, record.ErrNotCoordinator) {
			t.Errorf("%T of epoch %d: %v", step.c, step.epoch, err)
		}
		next := New()
		if err := next.Restore(s.Snapshot()); err != nil {
			t.Fatal(err)
		}
		s = next
	}
	if o, _ := s.Offset("g", record.TopicPartition{Topic: "t"}); o.Offset != 4 {
		t.Errorf("offset %d is kept", o.Offset)
	}
}

// TestState_bounds fills a state: what it has can still be written, nothing more comes in, and
// what shrinks it always can.
func TestState_bounds(t *testing.T) {
	s := New()
	index := uint64(0)
	do := func(c Command) error { index++; return apply(t, s, index, c) }
	note := strings.Repeat("x", MaxMetadataBytes)
	n := int32(0)
	var err error
	for err == nil {
		n++
		err = do(commitOne("g", "t", n, 1, note))
	}
	if !errors.Is(err, record.ErrLimit) || n < 300 {
		t.Fatalf("after %d offsets: %v", n, err)
	}
	if size := len(s.Snapshot()); size > MaxStateBytes {
		t.Fatalf("a snapshot of %d bytes", size)
	}
	if err := do(commitOne("g", "t", 1, 2, note)); err != nil {
		t.Errorf("an offset that is kept cannot move: %v", err)
	}
	if err := do(commitOne("g", "t", 1, -1, "")); err != nil {
		t.Errorf("an offset cannot be taken back: %v", err)
	}
	if err := do(&PutGroup{Group{Name: "h", Members: []Member{{ID: "m", Assignment: make([]byte, 8000)}}}}); !errors.Is(err, record.ErrLimit) {
		t.Errorf("a group for which there is no room: %v", err)
	}
	if err := do(&DeleteGroup{"g", index}); err != nil || s.Bytes() != 0 {
		t.Errorf("the group cannot be deleted: %v, %d bytes are counted", err, s.Bytes())
	}
	for i := range MaxGroups {
		if err := do(commitOne(fmt.Sprint("g", i), "t", 0, 1, "")); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := do(commitOne("one more", "t", 0, 1, "")); !errors.Is(err, record.ErrLimit) {
		t.Errorf("one group more: %v", err)
	}
	if err := do(commitOne("g0", "t", 0, 2, "")); err != nil {
		t.Error(err)
	}
}

func TestEncode_bounds(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for name, c := range map[string]Command{
		"a group without a name":       commitOne("", "t", 0, 0, ""),
		"a name too long":              commitOne(long(MaxNameBytes+1), "t", 0, 0, ""),
		"a topic too long":             commitOne("g", long(maxTopicNameBytes+1), 0, 0, ""),
		"a partition below 0":          commitOne("g", "t", -1, 0, ""),
		"too many bytes beside":        commitOne("g", "t", 0, 0, long(MaxMetadataBytes+1)),
		"a member without an id":       &PutGroup{Group{Name: "g", Members: []Member{{}}}},
		"too many members":             &PutGroup{Group{Name: "g", Members: make([]Member, MaxMembers+1)}},
		"a generation below 0":         &PutGroup{Group{Name: "g", Generation: -1}},
		"a command of too many bytes":  &PutGroup{Group{Name: "g", Members: slices.Repeat([]Member{{ID: "m", Assignment: make([]byte, MaxAssignmentBytes)}}, 3)}},
		"a topic twice":                &CommitOffsets{Group: "g", Topics: []TopicCommit{{Name: "t"}, {Name: "t"}}},
		"too many topics of one group": &CommitOffsets{Group: "g", Topics: make([]TopicCommit, MaxCommitPartitions+1)},
	} {
		if _, err := Encode(0, c); !errors.Is(err, record.ErrInvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDecode_refusesWhatItDoesNotKnow(t *testing.T) {
	good, err := Encode(0, &Begin{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"a newer format":  {[]byte{CommandVersion + 1, good[1]}, record.ErrUnsupported},
		"a newer kind":    {[]byte{CommandVersion, 200}, record.ErrUnsupported},
		"nothing":         {nil, record.ErrInvalidRequest},
		"too much":        {append(good, 0), record.ErrInvalidRequest},
		"a long number":   {append([]byte{1, byte(kindDeleteGroup), 0, 1, 'g'}, 0x80, 0x00), record.ErrInvalidRequest},
		"a huge list":     {[]byte{1, byte(kindCommitOffsets), 0, 1, 'g', 0, 0xff, 0xff, 0x01}, record.ErrInvalidRequest},
		"cut in a string": {[]byte{1, byte(kindDeleteGroup), 0, 9, 'g'}, record.ErrInvalidRequest},
	} {
		s := New()
		err, _ := s.Apply(1, c.data).(error)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if (s.Unknown() == 1) != (c.want == error(record.ErrUnsupported)) {
			t.Errorf("%s: the first unknown command is %d", name, s.Unknown())
		}
	}
	// That something was skipped goes with the state.
	s, other := New(), New()
	s.Apply(3, []byte{9, 9})
	if err := other.Restore(s.Snapshot()); err != nil || other.Unknown() != 3 {
		t.Errorf("after a restore the first unknown command is %d, %v", other.Unknown(), err)
	}
}

func TestRestore_refusesDamage(t *testing.T) {
	s := New()
	for i := range uint64(30) {
		if err := apply(t, s, i+1, randomCommand(rand.New(rand.NewPCG(i, 3)), i)); err != nil && !errors.Is(err, record.ErrUnknownGroup) {
			t.Log(err)
		}
	}
	good := s.Snapshot()
	other := New()
	if err := apply(t, other, 1, commitOne("kept", "t", 0, 1, "")); err != nil {
		t.Fatal(err)
	}
	before := other.Snapshot()
	for i := range good {
		bad := slices.Clone(good)
		bad[i] ^= 0x40
		if err := other.Restore(bad); err == nil {
			t.Fatalf("a snapshot with byte %d changed is taken", i)
		}
		if err := other.Restore(good[:i]); i > 0 && err == nil {
			t.Fatalf("a snapshot cut at %d is taken", i)
		}
	}
	if err := other.Restore(append([]byte{snapshotVersion + 1}, good[1:]...)); !errors.Is(err, record.ErrUnsupported) {
		t.Errorf("a newer snapshot: %v", err)
	}
	if err := other.Restore(before); err != nil {
		t.Fatal(err)
	}
	if err := other.Restore(nil); err != nil || len(other.Groups()) != 0 {
		t.Errorf("the state before the first command: %v, %d groups", err, len(other.Groups()))
	}
}
