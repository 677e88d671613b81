package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"edged/record"
)

// DeleteTopics, key 20, versions 0 to 6. Any node takes it.
//
//	v4: flexible
//	v5: error message
//	v6: by name or by id
func init() { register(0, 6, (*call).deleteTopics) }

func (q *call) deleteTopics(req *kmsg.DeleteTopicsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	ctx, cancel := q.context(req.TimeoutMillis)
	defer cancel()
	asked := req.Topics
	for _, name := range req.TopicNames {
		asked = append(asked, kmsg.DeleteTopicsRequestTopic{Topic: &name})
	}
	// All are looked up before one is deleted: what is named twice is meant for nobody knows what.
	topics, times := make([]askedTopic, len(asked)), map[string]int{}
	for i, t := range asked {
		if topics[i] = q.toDelete(t); topics[i].err == nil {
			times[topics[i].Name]++
		}
	}
	for i, t := range asked {
		out := kmsg.NewDeleteTopicsResponseTopic()
		out.Topic, out.TopicID = t.Topic, t.TopicID
		found := topics[i]
		err, n := found.err, times[found.Name]
		switch {
		case err == nil && n == 0:
			continue // answered at its first place
		case err == nil && n > 1:
			times[found.Name] = 0
			err = fmt.Errorf("%w: the topic is named %d times", kerr.InvalidRequest, n)
		case err == nil:
			err = forAdmin(q.conn.s.cfg.Broker.DeleteTopic(ctx, found.Name))
		}
		if n == 1 && found.err == nil {
			out.Topic, out.TopicID = &found.Name, found.ID
		}
		out.ErrorCode, out.ErrorMessage = q.code(err), message(err)
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (q *call) toDelete(t kmsg.DeleteTopicsRequestTopic) askedTopic {
	byID := record.TopicID(t.TopicID) != record.TopicID{}
	if byID == (t.Topic != nil) {
		return askedTopic{err: fmt.Errorf("%w: a topic is named either by name or by id", kerr.InvalidRequest)}
	}
	var found askedTopic
	if byID {
		found = q.topicByID(t.TopicID)
	} else {
		found = q.topicByName(*t.Topic)
	}
	if found.err != nil && kafkaError(found.err) == kerr.LeaderNotAvailable {
		found.err = kerr.RequestTimedOut // the node is in no cluster yet
	}
	if found.err != nil && !byID && kafkaError(found.err) == kerr.InvalidTopicException {
		found.err = kerr.UnknownTopicOrPartition
	}
	return found
}
