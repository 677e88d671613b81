package node

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafka-go and sarama ask for all topics and keep the answer for seconds: a topic that they find
// half made fails their writes until then.
func TestKafka_newTopicsHaveLeadersWhenAllAreListed(t *testing.T) {
	nodes := startCluster(t, 3)
	adm := kadm.NewClient(kafkaClient(t, nodes))
	made := make(chan error, 1)
	go func() {
		for i := range 10 {
			if _, err := adm.CreateTopic(t.Context(), 4, 3, nil, fmt.Sprintf("new-%d", i)); err != nil {
				made <- err
				return
			}
		}
		made <- nil
	}()
	for i := 0; ; i++ {
		all := kmsg.NewPtrMetadataRequest()
		all.Version = 12
		for _, topic := range raw[*kmsg.MetadataResponse](t, nodes[i%3], all).Topics {
			for _, p := range topic.Partitions {
				if p.Leader < 0 {
					t.Fatalf("%s/%d is listed with error %d and no leader, epoch %d", *topic.Topic, p.Partition, p.ErrorCode, p.LeaderEpoch)
				}
			}
		}
		select {
		case err := <-made:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
	}
}
