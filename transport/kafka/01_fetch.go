package kafka

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// Fetch, key 1, versions 4 to 16.
//
// A fetch waits until it has min_bytes, a partition has an error or is at its limit, or max_wait is over.
// Batches are only sent whole, and the first one of an answer whatever its size; so the first record
// may lie before the offset that was asked for. The order in which partitions are read moves on with each
// fetch, or the last ones would starve under the limits.
//
// Fetch sessions (KIP-227) are declined: a full fetch is answered with session id 0, and an
// incremental one is told that its session is not known. Followers do not serve consumers (KIP-392).
// There are no transactions, so what is committed is stable.
//
//	v5:  log start offset
//	v7:  sessions
//	v9:  leader epoch of the client
//	v11: rack of the client
//	v12: flexible
//	v13: topics by id
//	v16: the answer names the new leader (KIP-951)
func init() { register(4, 16, (*call).fetch) }

const (
	sessionless  = -1 // epoch of a fetch that wants no session
	firstSession = 0  // epoch of a full fetch that would like one
)

// fetching is one fetch request at work.
type fetching struct {
	*call
	req      *kmsg.FetchRequest
	resp     *kmsg.FetchResponse
	parts    []fetchPart // in the order of the request
	start    int         // the part that is read first
	limit    int32       // bytes of batches in the answer, beyond the first batch
	total    int32       // bytes so far
	reserved bool
	settled  bool // an error, or a part that has more than it may give: nothing to wait for
	full     bool // the whole answer has no room
}

// fetchPart is one partition of it.
type fetchPart struct {
	in     *kmsg.FetchRequestTopicPartition
	out    *kmsg.FetchResponseTopicPartition
	reader Reader
	next   record.Offset // to read
	err    error
	state  ReadState
}

func (q *call) fetch(req *kmsg.FetchRequest) kmsg.Response {
	f := &fetching{call: q, req: req, resp: req.ResponseKind().(*kmsg.FetchResponse)}
	if err := f.checkSession(); err != nil {
		f.resp.ErrorCode = q.code(err)
		return f.resp
	}
	f.limit = min(max(req.MaxBytes, 0), q.conn.s.cfg.FetchBytes)
	f.open()
	wait := min(time.Duration(max(req.MaxWaitMillis, 0))*time.Millisecond, MaxTimeout)
	ctx, cancel := context.WithTimeout(q.conn.ctx, wait)
	defer cancel()
	for {
		over := ctx.Err() != nil || wait == 0
		changed := f.watch()
		f.round()
		if f.settled || f.total >= req.MinBytes || over || len(f.parts) == 0 {
			break
		}
		awaitAny(ctx, changed)
	}
	if q.conn.ctx.Err() != nil {
		return nil
	}
	f.fill()
	return f.resp
}

// checkSession refuses what could only be meant for a session that was never given.
func (f *fetching) checkSession() error {
	if f.version >= 7 && f.req.SessionEpoch != sessionless && f.req.SessionEpoch != firstSession {
		return kerr.FetchSessionIDNotFound
	}
	return nil
}

// open finds the partitions.
func (f *fetching) open() {
	b := f.conn.s.cfg.Broker
	f.resp.Topics = make([]kmsg.FetchResponseTopic, len(f.req.Topics))
	count := 0
	for i := range f.req.Topics {
		count += len(f.req.Topics[i].Partitions)
	}
	f.parts = make([]fetchPart, 0, count)
	for i := range f.req.Topics {
		t, out := &f.req.Topics[i], &f.resp.Topics[i]
		out.Topic, out.TopicID = t.Topic, t.TopicID
		out.Partitions = make([]kmsg.FetchResponseTopicPartition, len(t.Partitions))
		name, missing := t.Topic, error(nil)
		if f.version >= 13 {
			asked := f.topicByID(t.TopicID)
			name, missing = asked.Name, asked.err
		}
		for j := range t.Partitions {
			p := fetchPart{in: &t.Partitions[j], out: &out.Partitions[j], err: missing}
			p.out.Default()
			p.out.Partition, p.next = p.in.Partition, record.Offset(p.in.FetchOffset)
			switch {
			case missing != nil:
			case f.version < 15 && f.req.ReplicaID >= 0 || f.req.ReplicaState.ID >= 0:
				p.err = kerr.NotLeaderForPartition // replicas are not filled by this protocol
			default:
				p.reader, p.err = b.Reader(name, p.in.Partition, record.Epoch(max(p.in.CurrentLeaderEpoch, int32(record.NoEpoch))))
			}
			f.parts = append(f.parts, p)
		}
	}
	if n := len(f.parts); n > 0 {
		f.start = f.conn.rotation % n
		f.conn.rotation++
	}
}

// watch takes the channels that tell of changes, before the state is looked at.
func (f *fetching) watch() []<-chan struct{} {
	changed := make([]<-chan struct{}, 0, len(f.parts))
	for i := range f.parts {
		if p := &f.parts[i]; p.err == nil {
			changed = append(changed, p.reader.Changed())
		}
	}
	return changed
}

// round reads what there is.
func (f *fetching) round() {
	for i := range f.parts {
		p := &f.parts[(f.start+i)%len(f.parts)]
		if p.err == nil {
			p.err = f.step(p)
		}
		f.settled = f.settled || p.err != nil
	}
}

// step reads what one partition has.
func (f *fetching) step(p *fetchPart) (err error) {
	if p.state, err = p.reader.State(); err == nil && p.beyond() {
		// A consumer that is told "out of range" begins its partition again: that is said by who leads without doubt.
		if err = p.reader.Confirm(f.conn.ctx); err == nil {
			p.state, err = p.reader.State()
		}
	}
	if err != nil {
		return err
	}
	s := &p.state
	if !s.Serving {
		return nil // what is above the high watermark may be committed all the same
	}
	if at := record.Offset(p.in.FetchOffset); at < s.LogStart && p.next == at || p.beyond() {
		return record.ErrOffsetOutOfRange
	}
	if p.next < s.Readable && !f.full {
		if err := f.reserveAll(); err != nil {
			return err
		}
		left, own := f.limit-f.total, p.in.PartitionMaxBytes-int32(len(p.out.RecordBatches))
		room := min(left, own)
		if room <= 0 && f.total > 0 {
			f.settled, f.full = true, left <= 0
			return nil
		}
		batches, next, err := p.reader.Read(p.next, max(room, 1))
		if err != nil || len(batches) == 0 {
			return err
		}
		if f.total > 0 && int32(len(batches)) > room {
			f.settled, f.full = true, left <= own // it comes first in one of the next fetches
			return nil
		}
		if p.out.RecordBatches == nil {
			p.out.RecordBatches = batches
		} else {
			p.out.RecordBatches = append(p.out.RecordBatches, batches...)
		}
		p.next, f.total = next, f.total+int32(len(batches))
		f.settled = f.settled || p.next < s.Readable // the next batch does not fit
	}
	return nil
}

// beyond tells that the partition ends before what is asked for.
func (p *fetchPart) beyond() bool {
	return p.state.Serving && record.Offset(p.in.FetchOffset) > p.state.End
}

// reserveAll takes memory for all that the answer may hold, once, before anything is read. It waits
// as long as the connection lives.
func (f *fetching) reserveAll() error {
	if f.reserved {
		return nil
	}
	f.reserved = true
	return f.reserve(f.conn.ctx, int64(max(f.limit, 1)))
}

// fill completes the answer.
func (f *fetching) fill() {
	h := hints{call: f.call}
	for i := range f.parts {
		p := &f.parts[i]
		out := p.out
		out.ErrorCode = f.code(p.err)
		out.HighWatermark, out.LastStableOffset, out.LogStartOffset = -1, -1, -1
		if p.err == nil || errors.Is(p.err, record.ErrOffsetOutOfRange) {
			hw := int64(p.state.HighWatermark)
			out.HighWatermark, out.LastStableOffset, out.LogStartOffset = hw, hw, int64(p.state.LogStart)
		}
		if p.err != nil || out.RecordBatches == nil {
			out.RecordBatches = []byte{}
		}
		if f.req.IsolationLevel == 1 {
			out.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
		}
		if leader, epoch := leaderIn(p.err); f.version >= 16 && leader >= 0 && h.add(leader) {
			out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = leader, epoch
		}
	}
	for _, e := range h.found {
		f.resp.Brokers = append(f.resp.Brokers, kmsg.FetchResponseBroker{NodeID: int32(e.ID), Host: e.Host, Port: e.Port, Rack: rackOf(e)})
	}
	f.keep(int64(f.total))
}

// leaderIn gives the leader that an error names, -1 if it names none.
func leaderIn(err error) (leader, epoch int32) {
	var nl *record.NotLeaderError
	var fenced *FencedError
	switch {
	case errors.As(err, &nl):
		return int32(nl.Leader), int32(nl.Epoch)
	case errors.As(err, &fenced):
		return int32(fenced.Leader), int32(fenced.Epoch)
	}
	return -1, -1
}

// keep gives back what was reserved beyond bytes.
func (q *call) keep(bytes int64) {
	if extra := q.fetchHeld - bytes; extra > 0 {
		q.conn.fetchMem.Release(extra)
		q.fetchHeld -= extra
	}
}

// awaitAny waits until one of the channels is closed or ctx ends.
func awaitAny(ctx context.Context, changed []<-chan struct{}) {
	if len(changed) == 1 {
		select {
		case <-changed[0]:
		case <-ctx.Done():
		}
		return
	}
	cases := make([]reflect.SelectCase, len(changed)+1)
	cases[0] = reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())}
	for i, c := range changed {
		cases[i+1] = reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)}
	}
	reflect.Select(cases)
}
