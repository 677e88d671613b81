package groups

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"edged/record"
)

var rewrite = flag.Bool("rewrite", false, "write what is said into the conversations of testdata")

// TestConversations plays the conversations of testdata: lines that begin with > are what clients,
// the log and the clock do, the lines below are everything that is said then.
func TestConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no conversations", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			switch {
			case *rewrite:
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			case got != string(text):
				t.Errorf("another conversation came of it (-rewrite keeps it):\n%s", got)
			}
		})
	}
}

// talk is one conversation. Clients remember what they were told.
type talk struct {
	*world
	out     strings.Builder
	clients map[string]*client
}

type client struct {
	id         string
	generation int32
}

func play(t *testing.T, text string) string {
	c := &talk{world: newWorld(t), clients: map[string]*client{}}
	c.said = c.say
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "#") || line == "" {
			c.say(line)
		}
		command, ok := strings.CutPrefix(line, "> ")
		if !ok {
			continue
		}
		c.say(line)
		words := strings.Fields(command)
		a := args{words: words[1:], options: map[string]string{}}
		for _, w := range words[1:] {
			if k, v, ok := strings.Cut(w, "="); ok && !strings.Contains(k, "/") {
				a.options[k] = v
			}
		}
		c.c.Advance(c.now)
		c.do(words[0], a)
		c.settle()
	}
	return c.out.String()
}

func (c *talk) say(line string) { c.out.WriteString(line + "\n") }

func (c *talk) sayf(format string, args ...any) { c.say(fmt.Sprintf(format, args...)) }

type args struct {
	words   []string
	options map[string]string
}

func (a args) first() string {
	if len(a.words) == 0 {
		return ""
	}
	return a.words[0]
}

func (a args) has(word string) bool { return slices.Contains(a.words, word) }

func (a args) or(name, value string) string {
	if v, ok := a.options[name]; ok {
		return v
	}
	return value
}

func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}

func word(err error) string {
	var e *record.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return err.Error()
}

func (c *talk) do(verb string, a args) {
	switch verb {
	case "join":
		c.join(a)
	case "sync":
		c.sync(a)
	case "beat":
		c.result(a.first(), c.c.Heartbeat(c.identity(a)))
	case "leave":
		c.leave(a)
	case "commit":
		c.commitOffsets(a)
	case "fetch":
		c.fetch(a)
	case "drop":
		c.drop(a)
	case "delete":
		c.c.Delete(a.first(), func(err error) { c.result(a.first(), err) })
	case "describe":
		c.describe(a.first())
	case "list":
		for _, l := range c.c.List() {
			c.sayf("%s: %s, type %q, %d members", l.Group, l.State, l.ProtocolType, l.Members)
		}
	case "advance":
		c.advance(duration(a.first()))
	case "beats":
		c.beats(a)
	case "delay":
		c.timing.InitialDelay = duration(a.first())
		c.lead()
	case "log":
		c.tellLog(a)
	case "failover":
		kept, _ := strconv.Atoi(a.or("kept", "0"))
		c.failOver(kept, a.has("replay"))
	case "topic":
		c.topic(a)
	case "clock":
		c.wall, _ = strconv.ParseInt(a.first(), 10, 64)
	default:
		c.t.Fatalf("what is %q?", verb)
	}
}

// beats lets time go by, in steps, with heartbeats of all members.
func (c *talk) beats(a args) {
	n, _ := strconv.Atoi(a.words[1])
	for range n {
		c.advance(duration(a.first()))
		for _, l := range c.c.List() {
			for _, m := range c.c.Describe(l.Group).Members {
				if err := c.c.Heartbeat(Identity{Group: l.Group, Member: m.ID, Generation: c.c.Describe(l.Group).Generation}); err != nil {
					c.result(m.ID, err)
				}
			}
		}
	}
}

func (c *talk) tellLog(a args) {
	switch a.first() {
	case "waits":
		c.hold = true
	case "goes-on":
		c.hold = false
	case "is-busy":
		c.refuse = record.ErrBusy
	case "takes":
		c.refuse = nil
	}
}

func (c *talk) topic(a args) {
	if a.has("deleted") {
		delete(c.topics, a.first())
		return
	}
	if a.has("unheard-of") { // the coordinator's metadata is older than the topic
		c.born = c.topics[a.first()].First
		delete(c.topics, a.first())
		return
	}
	c.topics[a.first()] = Topic{First: c.born, Partitions: 4}
	c.born += 10
}

func (c *talk) client(name string) *client {
	if c.clients[name] == nil {
		c.clients[name] = &client{generation: NoGeneration}
	}
	return c.clients[name]
}

func (c *talk) identity(a args) Identity {
	cl := c.client(a.first())
	g, _ := strconv.Atoi(a.or("gen", fmt.Sprint(cl.generation)))
	return Identity{Group: a.or("group", "g"), Member: a.or("as", cl.id), Instance: a.or("instance", ""), Generation: int32(g)}
}

func (c *talk) result(who string, err error) {
	if err != nil {
		c.sayf("%s: %s", who, word(err))
		return
	}
	c.sayf("%s: ok", who)
}

func (c *talk) join(a args) {
	name := a.first()
	cl := c.client(name)
	id := c.identity(a)
	if a.has("anew") {
		id.Member = ""
	}
	req := JoinRequest{
		Group: id.Group, Member: id.Member, Instance: id.Instance, ClientID: name, ClientHost: "h", ProtocolType: a.or("type", "consumer"),
		Session: duration(a.or("session", "10s")), Rebalance: duration(a.or("rebalance", "30s")),
		NeedsMemberID: a.has("asks"), CanSkipAssignment: a.has("skips"),
	}
	for p := range strings.SplitSeq(a.or("protocols", "range:t"), ",") {
		proto, topics, _ := strings.Cut(p, ":")
		req.Protocols = append(req.Protocols, Protocol{proto, consumer(strings.Split(topics, "+")...)})
	}
	c.c.Join(req, func(r JoinResult) {
		if r.Err != nil {
			if errors.Is(r.Err, record.ErrMemberIDRequired) {
				cl.id = r.Member
			}
			c.say(strings.TrimSpace(fmt.Sprintf("%s: %s %s", name, word(r.Err), r.Member)))
			return
		}
		cl.id, cl.generation = r.Member, r.Generation
		line := fmt.Sprintf("%s: is %s in generation %d, protocol %s, leader %s", name, r.Member, r.Generation, r.Protocol, r.Leader)
		if r.SkipAssignment {
			line += ", the assignment holds"
		}
		for _, m := range r.Members {
			line += ", " + m.Member
			if m.Instance != "" {
				line += "=" + m.Instance
			}
		}
		c.say(line)
	})
}

func (c *talk) sync(a args) {
	name := a.first()
	req := SyncRequest{Identity: c.identity(a), ProtocolType: a.or("type", ""), Protocol: a.or("protocol", "")}
	if given, ok := a.options["assign"]; ok {
		req.Assignments = map[string][]byte{}
		for s := range strings.SplitSeq(given, ",") {
			who, what, _ := strings.Cut(s, ":")
			if cl := c.clients[who]; cl != nil {
				who = cl.id
			}
			req.Assignments[who] = []byte(what)
		}
	}
	c.c.Sync(req, func(r SyncResult) {
		if r.Err != nil {
			c.result(name, r.Err)
			return
		}
		c.sayf("%s: reads %q, protocol %s", name, r.Assignment, r.Protocol)
	})
}

func (c *talk) leave(a args) {
	id := c.identity(a)
	if a.has("by-instance") {
		id.Member = ""
	}
	for _, err := range c.c.Leave(id.Group, []Leaving{{Member: id.Member, Instance: id.Instance}}) {
		c.result(a.first(), err)
	}
}

func partitions(words []string) (tps []record.TopicPartition, values []string) {
	for _, w := range words {
		where, value, _ := strings.Cut(w, "=")
		topic, part, ok := strings.Cut(where, "/")
		if !ok {
			continue
		}
		n, _ := strconv.Atoi(part)
		tps, values = append(tps, record.TopicPartition{Topic: topic, Partition: int32(n)}), append(values, value)
	}
	return tps, values
}

func (c *talk) commitOffsets(a args) {
	req := CommitRequest{Identity: c.identity(a)}
	tps, values := partitions(a.words)
	for i, tp := range tps {
		n, _ := strconv.ParseInt(values[i], 10, 64)
		req.Offsets = append(req.Offsets, PartitionCommit{tp.Topic, Commit{Partition: tp.Partition, Offset: record.Offset(n), Epoch: 3, Metadata: a.or("keep", "")}})
	}
	c.c.Commit(req, func(errs []error, err error) { c.results(a.first(), tps, errs, err) })
}

func (c *talk) results(who string, tps []record.TopicPartition, errs []error, err error) {
	if err != nil {
		c.result(who, err)
		return
	}
	for i, tp := range tps {
		c.result(who+" "+tp.String(), errs[i])
	}
}

func (c *talk) drop(a args) {
	tps, _ := partitions(a.words)
	c.c.DeleteOffsets(a.first(), tps, func(errs []error, err error) { c.results(a.first(), tps, errs, err) })
}

func (c *talk) fetch(a args) {
	tps, _ := partitions(a.words)
	for _, o := range c.c.Fetch(a.first(), tps) {
		c.sayf("%s/%d: %d epoch %d %q", o.Topic, o.Partition, o.Offset, o.Epoch, o.Metadata)
	}
}

func (c *talk) describe(name string) {
	d := c.c.Describe(name)
	c.sayf("%s: %s, type %q, protocol %q, generation %d, leader %q", name, d.State, d.ProtocolType, d.Protocol, d.Generation, d.Leader)
	for _, m := range d.Members {
		topics, _ := subscription(d.Metadata(&m))
		c.sayf("  %s instance %q client %s host %s wants %v reads %q", m.ID, m.Instance, m.ClientID, m.ClientHost, topics, m.Assignment)
	}
}
