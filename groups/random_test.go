package groups

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"edged/record"
)

// TestRandom_membersAndCoordinators lets clients join, read, commit, fall silent and come back, while
// the log stalls and the coordinator moves, and holds what they are told against the laws. In the
// end everything is quiet, and then all clients that live share all partitions.
func TestRandom_membersAndCoordinators(t *testing.T) {
	runs := 300
	if testing.Short() {
		runs = 50
	}
	for seed := range uint64(runs) {
		r := newRun(t, seed)
		for range 400 {
			r.step()
		}
		r.quiet()
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, strings.Join(r.story, "\n"))
		}
	}
}

const runPartitions = 6

// reader is a client that does what Kafka's consumers do.
type reader struct {
	name, instance string
	id             string
	generation     int32 // NoGeneration: it is in no group
	waiting        bool  // for an answer
	life           int   // answers to an earlier life go nowhere
	led            []JoinedMember
	has            []int32 // its partitions, nil before it has synced
	protocols      []Protocol
	ghost          *ghost
}

// ghost is what is left of a client's earlier self: it may still speak, and nobody must listen.
type ghost struct {
	Identity
	has      []int32
	replaced bool // another life of the instance was told what to read
}

type run struct {
	*world
	r       *rand.Rand
	readers []*reader
	open    int // requests that are not answered
	story   []string
	given   map[int32]map[string]string // by generation: what its members were told to read
	acked   map[int32]record.Offset     // by partition
	ackedIn map[int32]int32             // the generation of that
	maybe   map[int32][]record.Offset   // commits since then whose fate is not known
	next    record.Offset

	session, rebalance time.Duration
}

func newRun(t *testing.T, seed uint64) *run {
	r := &run{
		world: newWorld(t), r: rand.New(rand.NewPCG(seed, 1)), given: map[int32]map[string]string{},
		acked: map[int32]record.Offset{}, ackedIn: map[int32]int32{}, maybe: map[int32][]record.Offset{},
	}
	r.timing.InitialDelay = time.Duration(r.r.IntN(2)) * 3 * time.Second
	r.session = time.Duration(6+r.r.IntN(15)) * time.Second
	r.rebalance = time.Duration(4+r.r.IntN(20)) * time.Second
	r.lead()
	r.topics["t"] = Topic{First: 10, Partitions: runPartitions}
	for i := range 5 {
		rd := &reader{name: fmt.Sprintf("c%d", i), generation: NoGeneration, protocols: []Protocol{{"range", consumer("t")}}}
		if i%2 == 0 {
			rd.instance = fmt.Sprintf("i%d", i)
		}
		if i > 2 {
			rd.protocols = append(rd.protocols, Protocol{"rr", consumer("t")})
		}
		r.readers = append(r.readers, rd)
	}
	r.said = func(text string) { r.tell("%s", text) }
	return r
}

func (r *run) tell(format string, args ...any) {
	r.story = append(r.story, fmt.Sprintf("%8.3fs ", r.now.Seconds())+fmt.Sprintf(format, args...))
}

func (r *run) step() {
	r.c.Advance(r.now)
	rd := r.readers[r.r.IntN(len(r.readers))]
	switch p := r.r.IntN(100); {
	case p < 55:
		r.live(rd)
	case p < 62:
		r.commitSome(rd)
	case p < 65:
		r.haunt(rd)
	case p < 80:
		r.advance(time.Duration(r.r.IntN(3000)) * time.Millisecond)
	case p < 84 && len(r.queue) > 0:
		r.applyOne()
	case p < 88:
		r.hold = r.r.IntN(2) == 0
	case p < 91:
		r.die(rd)
	case p < 93:
		r.leaveNow(rd)
	case p < 95:
		r.refuse = nil
		if r.r.IntN(3) == 0 {
			r.refuse = record.ErrBusy
		}
	case p < 97:
		kept := r.r.IntN(3)
		r.tell("the coordinator moves, %d of %d commands are kept", kept, len(r.queue))
		r.failOver(kept, r.r.IntN(2) == 0)
		if n, _ := r.c.Counts(); n > 0 && r.c.Describe("g").State != stable.String() {
			r.t.Errorf("the new coordinator found the group %s", r.c.Describe("g").State)
		}
	}
	r.settle()
}

// quiet ends all trouble and checks that everything comes to rest.
func (r *run) quiet() {
	r.hold, r.refuse = false, nil
	r.settle()
	for range 400 {
		for _, rd := range r.readers {
			r.c.Advance(r.now)
			r.live(rd)
			r.settle()
		}
		r.advance(time.Second)
	}
	if r.open != 0 {
		r.t.Errorf("%d requests were not answered", r.open)
	}
	var all []int32
	for _, rd := range r.readers {
		if rd.generation != r.readers[0].generation || rd.has == nil {
			r.t.Errorf("%s is in generation %d with %v, not with the others in %d", rd.name, rd.generation, rd.has, r.readers[0].generation)
		}
		all = append(all, rd.has...)
	}
	slices.Sort(all)
	if !slices.Equal(all, []int32{0, 1, 2, 3, 4, 5}) {
		r.t.Errorf("together they read %v", all)
	}
	for p := range int32(runPartitions) {
		o, ok := r.state.Offset("g", record.TopicPartition{Topic: "t", Partition: p})
		acked, was := r.acked[p]
		if was && !ok || ok && o.Offset != acked && !slices.Contains(r.maybe[p], o.Offset) {
			r.t.Errorf("partition %d has the offset %d (%v); %d was acknowledged last, since then %v may have come", p, o.Offset, ok, acked, r.maybe[p])
		}
	}
}

// haunt lets an earlier self of a client commit.
func (r *run) haunt(rd *reader) {
	g := rd.ghost
	if g == nil || len(g.has) == 0 {
		return
	}
	p := g.has[0]
	r.next++
	offset := r.next
	replaced := g.replaced
	r.maybe[p] = append(r.maybe[p], offset)
	r.c.Commit(CommitRequest{g.Identity, []PartitionCommit{{"t", Commit{Partition: p, Offset: offset}}}}, func(errs []error, err error) {
		if err != nil || errs[0] != nil {
			return
		}
		r.tell("a ghost of %s commits %d", rd.name, p)
		if replaced {
			r.t.Errorf("%s was replaced and may commit", g.Member)
		}
		r.taken(p, offset, g.Generation)
	})
}

// taken notes a commit that was acknowledged, and checks law 3.
func (r *run) taken(p int32, offset record.Offset, generation int32) {
	if generation < r.ackedIn[p] {
		r.t.Errorf("partition %d: a commit of generation %d was taken after one of %d", p, generation, r.ackedIn[p])
	}
	if i := slices.Index(r.maybe[p], offset); i >= 0 { // what was sent before is overwritten
		r.maybe[p] = r.maybe[p][i+1:]
	}
	r.acked[p], r.ackedIn[p] = offset, generation
}

// live does what a client does next.
func (r *run) live(rd *reader) {
	switch {
	case rd.waiting:
	case rd.generation == NoGeneration:
		r.join(rd)
	case rd.has == nil:
		r.sync(rd)
	default:
		err := r.c.Heartbeat(rd.identity())
		if err != nil {
			r.tell("%s beats: %v", rd.name, word(err))
		}
		r.fail(rd, err)
	}
}

func (rd *reader) identity() Identity {
	return Identity{Group: "g", Member: rd.id, Instance: rd.instance, Generation: rd.generation}
}

// fail is how a client takes an error.
func (r *run) fail(rd *reader, err error) {
	if err == nil {
		return
	}
	switch word(err) {
	case record.ErrUnknownMember.Code, record.ErrFencedInstance.Code:
		rd.forget()
		rd.id = ""
	case record.ErrRebalance.Code, record.ErrIllegalGeneration.Code, record.ErrMemberIDRequired.Code:
		rd.forget()
	case record.ErrNotCoordinator.Code, record.ErrCoordinatorLoading.Code: // it asks again
	default:
		r.t.Errorf("%s is told %v", rd.name, err)
	}
}

// ask counts a request until it is answered, and drops answers to an earlier life.
func (r *run) ask(rd *reader) (answered func() bool) {
	r.open++
	rd.waiting = true
	life, once := rd.life, false
	return func() bool {
		if once {
			r.t.Errorf("%s is answered twice", rd.name)
		}
		once = true
		r.open--
		if rd.life != life {
			return false
		}
		rd.waiting = false
		return true
	}
}

func (r *run) join(rd *reader) {
	answered := r.ask(rd)
	req := JoinRequest{
		Group: "g", Member: rd.id, Instance: rd.instance, ClientID: rd.name, ProtocolType: "consumer", Protocols: rd.protocols,
		Session: r.session, Rebalance: r.rebalance, NeedsMemberID: true, CanSkipAssignment: len(rd.protocols) > 1,
	}
	r.tell("%s joins as %q", rd.name, rd.id)
	r.c.Join(req, func(j JoinResult) {
		if !answered() {
			return
		}
		if j.Err != nil {
			r.tell("%s may not join: %v", rd.name, word(j.Err))
			if j.Member != "" && word(j.Err) == record.ErrMemberIDRequired.Code {
				rd.id = j.Member
			}
			r.fail(rd, j.Err)
			return
		}
		r.tell("%s is %s in generation %d led by %s", rd.name, j.Member, j.Generation, j.Leader)
		rd.id, rd.generation, rd.has, rd.led = j.Member, j.Generation, nil, nil
		if j.Leader == j.Member && !j.SkipAssignment {
			if len(j.Members) == 0 {
				r.t.Errorf("%s leads and is not told whom", rd.name)
			}
			rd.led = j.Members
		}
	})
}

func (r *run) sync(rd *reader) {
	answered := r.ask(rd)
	req := SyncRequest{Identity: rd.identity()}
	if rd.led != nil {
		req.Assignments = map[string][]byte{}
		for p := range byte(runPartitions) {
			m := rd.led[(int(p)+int(r.next))%len(rd.led)].Member // not the same each time
			req.Assignments[m] = append(req.Assignments[m], p)
		}
		r.next++
	}
	r.c.Sync(req, func(s SyncResult) {
		mine := answered()
		if s.Err != nil {
			r.tell("%s gets no assignment: %v", rd.name, word(s.Err))
			if mine {
				r.fail(rd, s.Err)
			}
			return
		}
		r.told(req.Identity, s.Assignment)
		if !mine {
			return
		}
		r.tell("%s reads %v", rd.name, s.Assignment)
		if g := rd.ghost; g != nil && rd.instance != "" && g.Member != rd.id {
			g.replaced = true
		}
		rd.has = []int32{}
		for _, p := range s.Assignment {
			rd.has = append(rd.has, int32(p))
		}
	})
}

// told checks law 2: within a generation nobody is told to read what another was told, and nobody
// two things.
func (r *run) told(id Identity, assignment []byte) {
	g := r.given[id.Generation]
	if g == nil {
		g = map[string]string{}
		r.given[id.Generation] = g
	}
	who := id.Instance // it goes on through the lives of a static member
	if who == "" {
		who = id.Member
	}
	if before, ok := g[who]; ok && before != string(assignment) {
		r.t.Errorf("%s was told to read %q and %q in generation %d", who, before, assignment, id.Generation)
	}
	g[who] = string(assignment)
	for other, theirs := range g {
		if other != who && strings.ContainsAny(theirs, string(assignment)) {
			r.t.Errorf("%s and %s are both to read %q, %q in generation %d", who, other, assignment, theirs, id.Generation)
		}
	}
}

func (r *run) commitSome(rd *reader) {
	if rd.waiting || len(rd.has) == 0 {
		return
	}
	p := rd.has[r.r.IntN(len(rd.has))]
	r.next++
	offset, generation := r.next, rd.generation
	r.maybe[p] = append(r.maybe[p], offset)
	answered := r.ask(rd)
	r.c.Commit(CommitRequest{rd.identity(), []PartitionCommit{{"t", Commit{Partition: p, Offset: offset}}}}, func(errs []error, err error) {
		mine := answered()
		if err == nil {
			err = errs[0]
		}
		if err != nil {
			if mine {
				r.fail(rd, err)
			}
			return
		}
		r.taken(p, offset, generation)
	})
}

// die ends a client without a word; another one starts in its place.
func (r *run) die(rd *reader) {
	r.tell("%s dies", rd.name)
	rd.life++
	rd.forget()
	rd.id, rd.waiting = "", false
}

// forget is what a client does that has to join anew. Somewhere it may go on all the same.
func (rd *reader) forget() {
	if rd.has != nil {
		rd.ghost = &ghost{Identity: rd.identity(), has: rd.has}
	}
	rd.generation, rd.has = NoGeneration, nil
}

func (r *run) leaveNow(rd *reader) {
	if rd.waiting || rd.id == "" {
		return
	}
	r.tell("%s leaves: %v", rd.name, r.c.Leave("g", []Leaving{{Member: rd.id, Instance: rd.instance}}))
	r.die(rd)
}
