package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeCluster, key 60, versions 0 to 1. Nodes that live; there are no controllers apart from them.
//
//	v1: type of the endpoints
func init() { register(0, 1, (*call).describeCluster) }

const (
	brokerEndpoints     = 1
	controllerEndpoints = 2
)

func (q *call) describeCluster(req *kmsg.DescribeClusterRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	resp.ClusterAuthorizedOperations = unknownOperations
	if q.version >= 1 && req.EndpointType != brokerEndpoints {
		err := fmt.Errorf("%w: endpoints of type %d", kerr.UnsupportedEndpointType, req.EndpointType)
		if req.EndpointType == controllerEndpoints {
			err = fmt.Errorf("%w: this listener is for clients of brokers", kerr.MismatchedEndpointType)
		}
		resp.ErrorCode, resp.ErrorMessage = q.code(err), message(err)
		return resp
	}
	cluster := q.conn.s.cfg.Broker.Cluster(q.conn.at)
	resp.ClusterAuthorizedOperations = operations(req.IncludeClusterAuthorizedOperations, clusterOperations)
	resp.ClusterID, resp.ControllerID = cluster.ID, int32(cluster.Controller)
	for _, n := range cluster.Nodes {
		resp.Brokers = append(resp.Brokers, kmsg.DescribeClusterResponseBroker{NodeID: int32(n.ID), Host: n.Host, Port: n.Port, Rack: rackOf(n)})
	}
	return resp
}
