package kafka

import (
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// group gives the name of a group of the script's, whose coordinator answers.
func (c *conversation) group(suffix string) string {
	name := c.topic + ".group" + suffix
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey = name
	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Group = name
	for limit := time.Now().Add(startLimit); ; time.Sleep(20 * time.Millisecond) {
		if c.ask(req, 2).(*kmsg.FindCoordinatorResponse).ErrorCode == 0 && c.ask(fetch, 3).(*kmsg.OffsetFetchResponse).ErrorCode == 0 {
			return name
		}
		if time.Now().After(limit) {
			c.fail("%s: there is no coordinator", c.server.name)
		}
	}
}

func joinOf(group, member string, protocols ...string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.ProtocolType = group, member, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 30000, 30000
	for _, p := range protocols {
		req.Protocols = append(req.Protocols, kmsg.JoinGroupRequestProtocol{Name: p, Metadata: []byte("meta")})
	}
	return req
}

// join is judged and gives what the member got. Where an id is needed first, it comes back with it.
func (c *conversation) join(label string, req *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	resp := c.judge(label, req).(*kmsg.JoinGroupResponse)
	if resp.ErrorCode == kerr.MemberIDRequired.Code {
		req.MemberID = resp.MemberID
		resp = c.judge(label+", with its id", req).(*kmsg.JoinGroupResponse)
	}
	c.said[resp.MemberID] = "the id of " + label
	return resp
}

// syncOf is what the leader of a generation sends: an assignment for each member.
func syncOf(group string, j *kmsg.JoinGroupResponse, members ...string) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.Generation, req.MemberID = group, j.Generation, j.MemberID
	kind, name := "consumer", "range"
	if j.Protocol != nil {
		name = *j.Protocol
	}
	req.ProtocolType, req.Protocol = &kind, &name
	for _, m := range members {
		req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: m, MemberAssignment: []byte("work")})
	}
	return req
}

func heartbeatOf(group, member string, generation int32) *kmsg.HeartbeatRequest {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = group, member, generation
	return req
}

func leaveOf(version int16, group, member string) *kmsg.LeaveGroupRequest {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = group, member
	if version >= 3 {
		req.MemberID, req.Members = "", []kmsg.LeaveGroupRequestMember{{MemberID: member}}
	}
	return req
}

func commitOf(group, member string, generation int32, topic string, partition int32, offset int64, metadata *string) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = group, member, generation
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = topic
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.Metadata = partition, offset, metadata
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// offsetsOf asks for committed offsets of partitions, of all for none, in the way of the version.
func offsetsOf(version int16, group, topic string, partitions ...int32) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	if version < 8 {
		req.Group = group
		if len(partitions) > 0 {
			req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: topic, Partitions: partitions}}
		}
		return req
	}
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	if len(partitions) > 0 {
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: topic, Partitions: partitions}}
	}
	req.Groups = append(req.Groups, g)
	return req
}

// member makes a group of one that is stable.
func (c *conversation) member(group string) *kmsg.JoinGroupResponse {
	j := c.ask(joinOf(group, "", "range"), 3).(*kmsg.JoinGroupResponse)
	c.said[j.MemberID] = "the member"
	c.ask(syncOf(group, j, j.MemberID), 3)
	return j
}

// meanwhile sends a request on a connection of its own, and gives the way to wait for its answer.
func (c *conversation) meanwhile(req kmsg.Request) (judge func(label string)) {
	other := &conversation{t: c.t, server: c.server, version: c.version, topic: c.topic, said: c.said}
	type result struct {
		resp     kmsg.Response
		encoding string
		err      error
	}
	done := make(chan result, 1)
	go func() {
		defer other.close()
		resp, encoding, err := other.try(req, c.version)
		done <- result{resp, encoding, err}
	}()
	return func(label string) {
		r := <-done
		if r.err != nil {
			c.note(label, map[string]string{"": r.err.Error()})
			return
		}
		values := c.flatten(r.resp)
		values["encoding"] = r.encoding
		c.note(label, values)
	}
}

func init() {
	of(10, "plain", func(c *conversation) {
		find := func(label string, kind int8, keys ...string) {
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = kind, keys[0], keys
			c.judge(label, req)
		}
		group := c.group("")
		find("group", 0, group)
		find("two groups", 0, group, group+"2")
		find("no name", 0, "")
		find("transactional id", 1, "tx")
		find("unknown type", 9, "x")
		if c.version >= 4 {
			none := kmsg.NewPtrFindCoordinatorRequest()
			c.judge("nothing", none)
		}
	})
	of(11, "plain", func(c *conversation) {
		group := c.group("")
		c.judge("no group", joinOf("", "", "range"))
		c.judge("no protocols", joinOf(group, ""))
		none := joinOf(group, "", "range")
		none.ProtocolType = ""
		c.judge("no protocol type", none)
		short := joinOf(group, "", "range")
		short.SessionTimeoutMillis = 10
		c.judge("short session", short)
		long := joinOf(group, "", "range")
		long.SessionTimeoutMillis = 1 << 30
		c.judge("long session", long)
		zero := joinOf(group, "", "range")
		zero.SessionTimeoutMillis = -1
		c.judge("negative session", zero)
		c.judge("unknown member", joinOf(group, "nobody", "range"))
		j := c.join("first member", joinOf(group, "", "range", "roundrobin"))
		c.judge("sync", syncOf(group, j, j.MemberID))
		c.judge("again", joinOf(group, j.MemberID, "range", "roundrobin"))
		c.judge("unknown member, group is there", joinOf(group, "nobody", "range"))
		c.judge("no common protocol", joinOf(group, "", "sticky"))
		other := joinOf(group, "", "range")
		other.ProtocolType = "connect"
		c.judge("other type", other)
		if c.version < 5 {
			return
		}
		static := c.group(".static")
		instance := "i1"
		withInstance := func(member string) *kmsg.JoinGroupRequest {
			req := joinOf(static, member, "range")
			req.InstanceID = &instance
			return req
		}
		s := c.join("static member", withInstance(""))
		c.ask(syncOf(static, s, s.MemberID), 5)
		again := c.join("static member is back", withInstance(""))
		_ = again
		c.judge("static member of before", withInstance(s.MemberID))
		c.judge("static member, unknown id", withInstance("nobody"))
	})
	of(14, "plain", func(c *conversation) {
		group := c.group("")
		j := c.ask(joinOf(group, "", "range"), 3).(*kmsg.JoinGroupResponse)
		c.said[j.MemberID] = "the member"
		sync := func(label string, change func(*kmsg.SyncGroupRequest)) {
			req := syncOf(group, j, j.MemberID)
			change(req)
			c.judge(label, req)
		}
		sync("unknown group", func(r *kmsg.SyncGroupRequest) { r.Group += ".none" })
		sync("no group", func(r *kmsg.SyncGroupRequest) { r.Group = "" })
		sync("unknown member", func(r *kmsg.SyncGroupRequest) { r.MemberID = "nobody" })
		sync("no member", func(r *kmsg.SyncGroupRequest) { r.MemberID = "" })
		sync("older generation", func(r *kmsg.SyncGroupRequest) { r.Generation-- })
		sync("newer generation", func(r *kmsg.SyncGroupRequest) { r.Generation++ })
		sync("other type", func(r *kmsg.SyncGroupRequest) { s := "connect"; r.ProtocolType = &s })
		sync("other protocol", func(r *kmsg.SyncGroupRequest) { s := "sticky"; r.Protocol = &s })
		sync("no type", func(r *kmsg.SyncGroupRequest) { r.ProtocolType, r.Protocol = nil, nil })
		sync("in order", func(r *kmsg.SyncGroupRequest) {})
		sync("again", func(r *kmsg.SyncGroupRequest) {})
		sync("again without assignment", func(r *kmsg.SyncGroupRequest) { r.GroupAssignment = nil })
		second := c.group(".second")
		j = c.ask(joinOf(second, "", "range"), 3).(*kmsg.JoinGroupResponse)
		c.said[j.MemberID] = "the other member"
		group = second
		sync("assignment for somebody else", func(r *kmsg.SyncGroupRequest) { r.GroupAssignment[0].MemberID = "nobody" })
		third := c.group(".third")
		j = c.ask(joinOf(third, "", "range"), 3).(*kmsg.JoinGroupResponse)
		c.said[j.MemberID] = "the third member"
		group = third
		sync("no assignment", func(r *kmsg.SyncGroupRequest) { r.GroupAssignment = nil })
	})
	of(12, "plain", func(c *conversation) {
		group := c.group("")
		j := c.member(group)
		c.judge("in order", heartbeatOf(group, j.MemberID, j.Generation))
		c.judge("unknown group", heartbeatOf(group+".none", j.MemberID, j.Generation))
		c.judge("no group", heartbeatOf("", j.MemberID, j.Generation))
		c.judge("unknown member", heartbeatOf(group, "nobody", j.Generation))
		c.judge("no member", heartbeatOf(group, "", j.Generation))
		c.judge("older generation", heartbeatOf(group, j.MemberID, j.Generation-1))
		c.judge("newer generation", heartbeatOf(group, j.MemberID, j.Generation+1))
		c.judge("generation -1", heartbeatOf(group, j.MemberID, -1))
		if c.version >= 3 {
			instance := "nobody"
			req := heartbeatOf(group, j.MemberID, j.Generation)
			req.InstanceID = &instance
			c.judge("unknown instance", req)
		}
		joins := joinOf(c.group(".joining"), "", "range")
		k := c.ask(joins, 3).(*kmsg.JoinGroupResponse)
		c.said[k.MemberID] = "the member that joins"
		c.judge("before the assignment", heartbeatOf(joins.Group, k.MemberID, k.Generation))
		c.judge("unknown member before the assignment", heartbeatOf(joins.Group, "nobody", k.Generation))
		c.ask(leaveOf(1, joins.Group, k.MemberID), 1)
		c.judge("after leaving", heartbeatOf(joins.Group, k.MemberID, k.Generation))
	})
	of(11, "two members", func(c *conversation) {
		group := c.group("")
		a := c.ask(joinOf(group, "", "range", "roundrobin"), 3).(*kmsg.JoinGroupResponse)
		c.said[a.MemberID] = "member A"
		c.ask(syncOf(group, a, a.MemberID), 3)
		joinB := joinOf(group, "", "roundrobin", "range")
		if c.version >= 4 {
			joinB.MemberID = c.judge("B needs an id", joinB).(*kmsg.JoinGroupResponse).MemberID
			c.said[joinB.MemberID] = "member B"
		}
		joined := c.meanwhile(joinB)
		for limit := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
			if c.ask(heartbeatOf(group, a.MemberID, a.Generation), 3).(*kmsg.HeartbeatResponse).ErrorCode == kerr.RebalanceInProgress.Code {
				break
			}
			if time.Now().After(limit) {
				c.fail("%s: B does not start a rebalance", c.server.name)
			}
		}
		c.judgeIn("heartbeat in a rebalance", heartbeatOf(group, a.MemberID, a.Generation), 3)
		c.judgeIn("commit in a rebalance", commitOf(group, a.MemberID, a.Generation, c.makeTopic("", 1), 0, 5, nil), 7)
		c.judgeIn("sync in a rebalance", syncOf(group, a, a.MemberID), 3)
		next := c.judge("A joins again", joinOf(group, a.MemberID, "range", "roundrobin")).(*kmsg.JoinGroupResponse)
		joined("B has joined")
		c.judgeIn("commit before the assignment", commitOf(group, a.MemberID, next.Generation, c.topic, 0, 5, nil), 7)
		c.judgeIn("commit of the generation before", commitOf(group, a.MemberID, a.Generation, c.topic, 0, 5, nil), 7)
		describe := kmsg.NewPtrDescribeGroupsRequest()
		describe.Groups = []string{group}
		c.judgeIn("described before the assignment", describe, 4)
		c.ask(leaveOf(1, group, a.MemberID), 1)
		c.judgeIn("A after leaving", heartbeatOf(group, a.MemberID, next.Generation), 3)
	})
	of(13, "plain", func(c *conversation) {
		group := c.group("")
		j := c.member(group)
		c.judge("unknown group", leaveOf(c.version, group+".none", j.MemberID))
		c.judge("no group", leaveOf(c.version, "", j.MemberID))
		c.judge("unknown member", leaveOf(c.version, group, "nobody"))
		c.judge("no member", leaveOf(c.version, group, ""))
		if c.version >= 3 {
			instance := "nobody"
			req := leaveOf(c.version, group, "")
			req.Members[0].InstanceID = &instance
			c.judge("unknown instance", req)
			req = leaveOf(c.version, group, "")
			req.Members = nil
			c.judge("nobody", req)
			req = leaveOf(c.version, group, j.MemberID)
			req.Members = append(req.Members, kmsg.LeaveGroupRequestMember{MemberID: "nobody"})
			c.judge("known and unknown", req)
		} else {
			c.judge("in order", leaveOf(c.version, group, j.MemberID))
		}
		c.judge("again", leaveOf(c.version, group, j.MemberID))
	})
	of(8, "plain", func(c *conversation) {
		topic, group, note, empty := c.makeTopic("", 2), c.group(""), "a note", ""
		c.judge("simple consumer, new group", commitOf(group, "", -1, topic, 0, 5, &note))
		c.judge("again", commitOf(group, "", -1, topic, 0, 6, nil))
		c.judge("empty note", commitOf(group, "", -1, topic, 0, 6, &empty))
		long := strings.Repeat("x", 4097)
		c.judge("long note", commitOf(group, "", -1, topic, 0, 7, &long))
		c.judge("unknown topic", commitOf(group, "", -1, topic+".none", 0, 7, nil))
		c.judge("unknown partition", commitOf(group, "", -1, topic, 9, 7, nil))
		c.judge("negative partition", commitOf(group, "", -1, topic, -1, 7, nil))
		c.judge("impossible name", commitOf(group, "", -1, "a b", 0, 7, nil))
		c.judge("negative offset", commitOf(group, "", -1, topic, 1, -1, nil))
		c.judge("more negative offset", commitOf(group, "", -1, topic, 1, -7, nil))
		c.judge("no group", commitOf("", "", -1, topic, 0, 5, nil))
		c.judge("member of an unknown group", commitOf(group+".none", "nobody", 3, topic, 0, 5, nil))
		c.judge("member of an empty group", commitOf(group, "nobody", 3, topic, 0, 5, nil))
		c.judge("generation without member", commitOf(group, "", 3, topic, 0, 5, nil))
		c.judge("member without generation", commitOf(group, "nobody", -1, topic, 0, 5, nil))
		both := commitOf(group, "", -1, topic, 0, 5, nil)
		both.Topics = append(both.Topics, commitOf(group, "", -1, topic+".none", 0, 5, nil).Topics...)
		c.judge("known and unknown", both)
		nothing := commitOf(group, "", -1, topic, 0, 5, nil)
		nothing.Topics = nil
		c.judge("nothing", nothing)
		noPartition := commitOf(group, "", -1, topic, 0, 5, nil)
		noPartition.Topics[0].Partitions = nil
		c.judge("no partition", noPartition)
		live := c.group(".live")
		j := c.member(live)
		c.judge("member", commitOf(live, j.MemberID, j.Generation, topic, 0, 5, &note))
		c.judge("older generation", commitOf(live, j.MemberID, j.Generation-1, topic, 0, 5, nil))
		c.judge("newer generation", commitOf(live, j.MemberID, j.Generation+1, topic, 0, 5, nil))
		c.judge("unknown member", commitOf(live, "nobody", j.Generation, topic, 0, 5, nil))
		c.judge("simple consumer, group with members", commitOf(live, "", -1, topic, 0, 5, nil))
		if c.version >= 6 {
			epoch := commitOf(group, "", -1, topic, 0, 5, nil)
			epoch.Topics[0].Partitions[0].LeaderEpoch = c.epochs[topic]
			c.judge("with an epoch", epoch)
		}
		if c.version >= 7 {
			instance := "nobody"
			req := commitOf(live, j.MemberID, j.Generation, topic, 0, 5, nil)
			req.InstanceID = &instance
			c.judge("unknown instance", req)
		}
		c.judgeIn("what is there", offsetsOf(7, group, ""), 7)
		c.judgeIn("what is there of the members", offsetsOf(7, live, ""), 7)
	})
	of(9, "plain", func(c *conversation) {
		topic, group, note := c.makeTopic("", 3), c.group(""), "a note"
		if c.version >= 2 {
			c.judge("all of an unknown group", offsetsOf(c.version, group, ""))
			c.judge("all of no group", offsetsOf(c.version, "", ""))
		}
		c.judge("of an unknown group", offsetsOf(c.version, group, topic, 0, 1))
		c.judge("of no group", offsetsOf(c.version, "", topic, 0))
		c.ask(commitOf(group, "", -1, topic, 0, 5, &note), 7)
		c.ask(commitOf(group, "", -1, topic, 1, 0, nil), 7)
		c.judge("three of which two are there", offsetsOf(c.version, group, topic, 0, 1, 2))
		c.judge("unknown partition", offsetsOf(c.version, group, topic, 9, -1))
		c.judge("unknown topic", offsetsOf(c.version, group, topic+".none", 0))
		c.judge("impossible name", offsetsOf(c.version, group, "a b", 0))
		c.judge("twice", offsetsOf(c.version, group, topic, 0, 0))
		if c.version >= 2 {
			c.judge("all", offsetsOf(c.version, group, ""))
		}
		none := offsetsOf(c.version, group, topic, 0)
		if c.version < 8 {
			none.Topics = []kmsg.OffsetFetchRequestTopic{}
		} else {
			none.Groups[0].Topics = []kmsg.OffsetFetchRequestGroupTopic{}
		}
		c.judge("none", none)
		if c.version >= 7 {
			stable := offsetsOf(c.version, group, topic, 0)
			stable.RequireStable = true
			c.judge("stable ones", stable)
		}
		if c.version >= 8 {
			two := offsetsOf(c.version, group, topic, 0)
			two.Groups = append(two.Groups, offsetsOf(c.version, group+".none", topic, 0).Groups...)
			c.judge("two groups", two)
			two.Groups = nil
			c.judge("no groups", two)
		}
		if c.version >= 9 {
			member := offsetsOf(c.version, group, topic, 0)
			id := "nobody"
			member.Groups[0].MemberID, member.Groups[0].MemberEpoch = &id, 3
			c.judge("unknown member", member)
		}
	})
	of(15, "plain", func(c *conversation) {
		topic, group := c.makeTopic("", 1), c.group("")
		describe := func(label string, groups ...string) {
			req := kmsg.NewPtrDescribeGroupsRequest()
			req.Groups, req.IncludeAuthorizedOperations = groups, strings.Contains(label, "operations")
			c.judge(label, req)
		}
		describe("unknown", group)
		describe("no name", "")
		describe("nothing")
		c.ask(commitOf(group, "", -1, topic, 0, 5, nil), 7)
		describe("of a simple consumer", group)
		live := c.group(".live")
		j := c.ask(joinOf(live, "", "range"), 3).(*kmsg.JoinGroupResponse)
		c.said[j.MemberID] = "the member"
		describe("before the assignment", live)
		c.ask(syncOf(live, j, j.MemberID), 3)
		describe("with a member", live)
		describe("with operations", live)
		describe("unknown with operations", group+".none")
		describe("two", live, group+".none")
		describe("twice", live, live)
		c.ask(leaveOf(1, live, j.MemberID), 1)
		describe("after the member has left", live)
	})
	of(16, "plain", func(c *conversation) {
		topic, group := c.makeTopic("", 1), c.group("")
		c.ask(commitOf(group, "", -1, topic, 0, 5, nil), 7)
		live := c.group(".live")
		c.member(live)
		list := func(label string, states, types []string) {
			req := kmsg.NewPtrListGroupsRequest()
			req.StatesFilter, req.TypesFilter = states, types
			resp := c.ask(req, c.version).(*kmsg.ListGroupsResponse)
			kept := resp.Groups[:0]
			for _, g := range resp.Groups { // other scripts have groups too
				if strings.HasPrefix(g.Group, c.topic+".") {
					kept = append(kept, g)
				}
			}
			resp.Groups = kept
			c.note(label, c.flatten(resp))
		}
		list("all", nil, nil)
		if c.version >= 4 {
			list("stable ones", []string{"Stable"}, nil)
			list("stable ones, small letters", []string{"stable"}, nil)
			list("empty or dead ones", []string{"Empty", "Dead"}, nil)
			list("unknown state", []string{"Sleepy"}, nil)
		}
		if c.version >= 5 {
			list("classic ones", nil, []string{"classic"})
			list("classic ones, large letters", nil, []string{"CLASSIC"})
			list("consumer ones", nil, []string{"consumer"})
			list("unknown type", nil, []string{"odd"})
		}
	})
	of(42, "plain", func(c *conversation) {
		topic, group, live := c.makeTopic("", 1), c.group(""), c.group(".live")
		c.member(live)
		c.ask(commitOf(group, "", -1, topic, 0, 5, nil), 7)
		drop := func(label string, groups ...string) {
			req := kmsg.NewPtrDeleteGroupsRequest()
			req.Groups = groups
			c.judge(label, req)
		}
		drop("unknown", group+".none")
		drop("no name", "")
		drop("nothing")
		drop("with a member", live)
		drop("empty", group)
		drop("again", group)
		drop("twice at once", group, group)
	})
	of(47, "plain", func(c *conversation) {
		topic, group, live := c.makeTopic("", 2), c.group(""), c.group(".live")
		j := joinOf(live, "", "range")
		sub := kmsg.ConsumerMemberMetadata{Version: 1, Topics: []string{topic}}
		j.Protocols[0].Metadata = sub.AppendTo(nil)
		joined := c.ask(j, 3).(*kmsg.JoinGroupResponse)
		c.ask(syncOf(live, joined, joined.MemberID), 3)
		c.ask(commitOf(group, "", -1, topic, 0, 5, nil), 7)
		drop := func(label, group, topic string, partitions ...int32) {
			req := kmsg.NewPtrOffsetDeleteRequest()
			req.Group = group
			t := kmsg.NewOffsetDeleteRequestTopic()
			t.Topic = topic
			for _, p := range partitions {
				t.Partitions = append(t.Partitions, kmsg.OffsetDeleteRequestTopicPartition{Partition: p})
			}
			req.Topics = append(req.Topics, t)
			c.judge(label, req)
		}
		drop("unknown group", group+".none", topic, 0)
		drop("no group", "", topic, 0)
		drop("unknown topic", group, topic+".none", 0)
		drop("unknown partition", group, topic, 7)
		drop("not committed", group, topic, 1)
		drop("committed", group, topic, 0)
		drop("again", group, topic, 0)
		drop("subscribed", live, topic, 0)
		drop("no partition", group, topic)
		nothing := kmsg.NewPtrOffsetDeleteRequest()
		nothing.Group = group
		c.judge("nothing", nothing)
	})
}
