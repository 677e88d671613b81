package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// patience is how long an answer may take. Both servers are asked for nothing that takes longer.
	patience   = 3 * time.Second
	clientName = "judge"
)

// server is one of the two that are compared.
type server struct {
	name     string
	addr     string
	node     int32
	versions map[int16][2]int16 // by key, from ApiVersions
}

// connect learns what a server is.
func connect(t testing.TB, name, addr string) *server {
	s := &server{name: name, addr: addr, versions: map[int16][2]int16{}}
	c := &conversation{t: t, server: s, said: map[string]string{}}
	defer c.close()
	for _, k := range c.ask(kmsg.NewPtrApiVersionsRequest(), 0).(*kmsg.ApiVersionsResponse).ApiKeys {
		s.versions[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
	}
	for limit := time.Now().Add(startLimit); ; {
		if m := c.ask(kmsg.NewPtrMetadataRequest(), 9).(*kmsg.MetadataResponse); len(m.Brokers) == 1 && m.ControllerID == m.Brokers[0].NodeID {
			s.node = m.Brokers[0].NodeID
			// Identities and groups are the last to come.
			if c.ask(kmsg.NewPtrInitProducerIDRequest(), 1).(*kmsg.InitProducerIDResponse).ErrorCode == 0 {
				c.topic = "warm"
				c.group("")
				return s
			}
		}
		if time.Now().After(limit) {
			t.Fatalf("%s is not ready within %v", name, startLimit)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// conversation is one run of a script with one of the servers. What the script judges is kept in a form
// in which the answers of both servers are equal if they mean the same.
type conversation struct {
	t       testing.TB
	server  *server
	version int16  // under test
	topic   string // that the script may make and use

	// offsetsFrom is taken off offsets of what was produced, where it is not the point which these are.
	offsetsFrom int64

	nc          net.Conn
	correlation int32
	said        map[string]string // values that differ from run to run, by the names they get here
	epochs      map[string]int32  // leader epoch of topics that were made
	ids         map[string][16]byte
	labels      []string
	heard       map[string]map[string]string // by label and path in the answer
}

// failure ends a script: what it is about could not be asked.
type failure string

func (c *conversation) fail(format string, args ...any) {
	panic(failure(fmt.Sprintf(format, args...)))
}

func (c *conversation) close() {
	if c.nc != nil {
		_ = c.nc.Close() // everything was read
		c.nc = nil
	}
}

// How a request may end without an answer.
var (
	errClosed = errors.New("closed")
	errSilent = fmt.Errorf("no answer within %v", patience)
)

// exchange sends a whole request and reads the answer to it, errClosed if the connection ends instead.
func (c *conversation) exchange(frame []byte) ([]byte, error) {
	if c.nc == nil {
		nc, err := net.DialTimeout("tcp", c.server.addr, patience)
		if err != nil {
			c.fail("%v", err)
		}
		c.nc = nc
	}
	_ = c.nc.SetDeadline(time.Now().Add(patience))
	if _, err := c.nc.Write(frame); err != nil {
		c.close()
		return nil, errClosed
	}
	var length [4]byte
	_, err := io.ReadFull(c.nc, length[:])
	if err == nil {
		answer := make([]byte, binary.BigEndian.Uint32(length[:]))
		if _, err = io.ReadFull(c.nc, answer); err == nil {
			return answer, nil
		}
	}
	c.close()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, errSilent
	}
	return nil, errClosed
}

// try sends a request in a version and gives the decoded answer, with the names of fields in which its
// encoding is not the one that it should be.
func (c *conversation) try(req kmsg.Request, version int16) (kmsg.Response, string, error) {
	c.correlation++
	req.SetVersion(version)
	answer, err := c.exchange(kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientName)).AppendRequest(nil, req, c.correlation))
	if err != nil {
		return nil, "", err
	}
	r := kbin.Reader{Src: answer}
	if got := r.Int32(); got != c.correlation {
		c.fail("%s: %s is answered to request %d, not %d", c.server.name, kmsg.NameForKey(req.Key()), got, c.correlation)
	}
	resp := req.ResponseKind()
	if resp.IsFlexible() && req.Key() != 18 {
		kmsg.SkipTags(&r)
	}
	body := r.Src
	if err := resp.ReadFrom(body); err != nil {
		if v0 := resp; req.Key() == 18 { // an unknown version of ApiVersions is answered in version 0
			v0.SetVersion(0)
			if v0.ReadFrom(body) == nil {
				return v0, "version 0", nil
			}
		}
		c.fail("%s: %s version %d cannot be read: %v", c.server.name, kmsg.NameForKey(req.Key()), version, err)
	}
	encoding := "as documented"
	if n := len(resp.AppendTo(nil)); n != len(body) {
		encoding = fmt.Sprintf("%d bytes, %d are understood", len(body), n)
	}
	return resp, encoding, nil
}

// ask is for what a script needs and does not judge.
func (c *conversation) ask(req kmsg.Request, version int16) kmsg.Response {
	resp, _, err := c.try(req, version)
	if err != nil {
		c.fail("%s: %s version %d: %v", c.server.name, kmsg.NameForKey(req.Key()), version, err)
	}
	return resp
}

// judge asks in the version under test and keeps the answer for the comparison.
func (c *conversation) judge(label string, req kmsg.Request) kmsg.Response {
	return c.judgeIn(label, req, c.version)
}

func (c *conversation) judgeIn(label string, req kmsg.Request, version int16) kmsg.Response {
	resp, encoding, err := c.try(req, version)
	if err != nil {
		c.note(label, map[string]string{"": err.Error()})
		return req.ResponseKind() // as if everything were fine: the difference is noted
	}
	values := c.flatten(resp)
	values["encoding"] = encoding
	c.note(label, values)
	return resp
}

func (c *conversation) note(label string, values map[string]string) {
	if c.heard == nil {
		c.heard = map[string]map[string]string{}
	}
	if _, twice := c.heard[label]; twice {
		c.fail("the label %q is used twice", label)
	}
	c.labels = append(c.labels, label)
	c.heard[label] = values
}

// judgeSilence is for requests without an answer: it notes whether the connection lives on.
func (c *conversation) judgeSilence(label string, req kmsg.Request) {
	c.correlation++
	req.SetVersion(c.version)
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientName)).AppendRequest(nil, req, c.correlation)
	next := kmsg.NewPtrApiVersionsRequest()
	answer, err := c.exchange(append(frame, kmsg.NewRequestFormatter().AppendRequest(nil, next, -7)...))
	switch {
	case err != nil:
		c.note(label, map[string]string{"": err.Error()})
	case int32(binary.BigEndian.Uint32(answer)) == -7:
		c.note(label, map[string]string{"": "silence"})
	default:
		c.note(label, map[string]string{"": "an answer"})
		c.close()
	}
}

// judgeRaw sends a frame as it is and notes whether it is answered.
func (c *conversation) judgeRaw(label string, frame []byte) {
	what := "an answer"
	if _, err := c.exchange(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
		what = err.Error()
	}
	c.close()
	c.note(label, map[string]string{"": what})
}

// end is where a partition of the script's topic ends.
func (c *conversation) end(topic string) int64 {
	req := kmsg.NewPtrListOffsetsRequest()
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return c.ask(req, 5).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].Offset
}

// makeTopic makes the script's topic, or one more with a suffix, and waits until it can be used.
func (c *conversation) makeTopic(suffix string, partitions int32, settings ...string) string {
	c.t.Helper()
	name := c.topic + suffix
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10000
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, partitions, 1
	for i := 0; i < len(settings); i += 2 {
		rt.Configs = append(rt.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: settings[i], Value: &settings[i+1]})
	}
	req.Topics = append(req.Topics, rt)
	made := c.ask(req, 7).(*kmsg.CreateTopicsResponse).Topics[0]
	if made.ErrorCode != 0 {
		c.fail("%s: creating %s: %v", c.server.name, name, kerr.ErrorForCode(made.ErrorCode))
	}
	if c.epochs == nil {
		c.epochs, c.ids = map[string]int32{}, map[string][16]byte{}
	}
	c.said[fmt.Sprintf("%x", made.TopicID)] = "id of " + suffixed(suffix)
	c.ids[name] = made.TopicID
	for limit := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if c.usable(name, partitions) {
			return name
		}
		if time.Now().After(limit) {
			c.fail("%s: the topic %s cannot be used", c.server.name, name)
		}
	}
}

func suffixed(suffix string) string { return "topic" + suffix }

// usable tells whether all partitions of a topic can be read, and learns its epoch.
func (c *conversation) usable(name string, partitions int32) bool {
	m := kmsg.NewPtrMetadataRequest()
	m.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	got := c.ask(m, 9).(*kmsg.MetadataResponse).Topics[0]
	list := kmsg.NewPtrListOffsetsRequest()
	lt := kmsg.NewListOffsetsRequestTopic()
	lt.Topic = name
	for _, p := range got.Partitions {
		lp := kmsg.NewListOffsetsRequestTopicPartition()
		lp.Partition, lp.Timestamp = p.Partition, -1
		lt.Partitions = append(lt.Partitions, lp)
		c.epochs[name] = p.LeaderEpoch
		if p.Leader < 0 {
			return false
		}
	}
	if len(got.Partitions) != int(partitions) {
		return false
	}
	list.Topics = append(list.Topics, lt)
	for _, p := range c.ask(list, 5).(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
		if p.ErrorCode != 0 {
			return false
		}
	}
	return true
}
