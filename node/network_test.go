package node

import (
	"testing"

	"edged/record"
	"edged/transport/wire"
)

// Each node reaches the others by each protocol, and says so of itself and when another one asks.
func TestNetwork_bothDirectionsAllProtocols(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	for _, n := range nodes {
		reaches, err := broker{nodes[0].Node}.Network(within(t), wire.NetworkRequest{Node: n.ident.Get().Node})
		if err != nil {
			t.Fatal(err)
		}
		up := map[record.NodeID]map[string]bool{}
		for _, r := range reaches {
			if !r.Up || r.Addr == "" || r.RTTMicros <= 0 || r.SkewMs < -5000 || r.SkewMs > 5000 {
				t.Errorf("%+v", r)
			}
			if up[r.Node] == nil {
				up[r.Node] = map[string]bool{}
			}
			up[r.Node][r.Protocol] = true
		}
		if len(up) != 2 || len(reaches) != 6 || up[n.ident.Get().Node] != nil {
			t.Errorf("%+v", reaches)
		}
	}
}
