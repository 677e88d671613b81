package kafka

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func init() {
	of(3, "plain", func(c *conversation) {
		topic := c.makeTopic("", 2)
		ask := func(label string, mayMake bool, topics ...string) {
			req := kmsg.NewPtrMetadataRequest()
			req.Topics = []kmsg.MetadataRequestTopic{}
			for _, name := range topics {
				req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &name})
			}
			req.AllowAutoTopicCreation = mayMake
			c.judge(label, req)
		}
		ask("one topic", false, topic)
		ask("twice", false, topic, topic)
		ask("unknown", false, topic+".none")
		ask("unknown, may be made", true, topic+".none")
		ask("no name", false, "")
		ask("a dot", false, ".")
		ask("two dots", true, "..")
		ask("impossible name", true, "a b")
		ask("long name", true, strings.Repeat("x", 250))
		ask("longest name", false, strings.Repeat("x", 249))
		ask("known and unknown", false, topic, topic+".none")
		if c.version > 0 { // where nothing means all
			ask("nothing", false)
		}
		operations := kmsg.NewPtrMetadataRequest()
		operations.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
		operations.IncludeTopicAuthorizedOperations, operations.IncludeClusterAuthorizedOperations = true, true
		c.judge("operations", operations)
		if c.version >= 10 {
			id := kmsg.NewPtrMetadataRequest()
			id.Topics = []kmsg.MetadataRequestTopic{{TopicID: c.ids[topic]}}
			c.judge("by id", id)
			id.Topics = []kmsg.MetadataRequestTopic{{TopicID: [16]byte{9}}}
			c.judge("by unknown id", id)
			id.Topics = []kmsg.MetadataRequestTopic{{}}
			c.judge("neither name nor id", id)
			id.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic, TopicID: c.ids[topic]}}
			c.judge("by both", id)
			other := c.topic + ".none"
			id.Topics = []kmsg.MetadataRequestTopic{{Topic: &other, TopicID: c.ids[topic]}}
			c.judge("by both, which differ", id)
		}
	})
}
