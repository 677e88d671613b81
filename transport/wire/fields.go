package wire

import "edged/record"

// The fields of every message in wire order. New fields are appended, never inserted;
// README.md has the same lists for people.

func (m *HelloRequest) walk(w *walker) { w.str(&m.Client) }

func (m *HelloInfo) walk(w *walker) {
	num(w, &m.Node)
	w.str(&m.ClusterID)
	w.str(&m.Version)
	w.boolean(&m.Ready)
	num(w, &m.MaxFrame)
	list(w, &m.APIs, func(a *APIVersion) { w.message(a) })
	list(w, &m.Features, w.str)
}

func (m *APIVersion) walk(w *walker) {
	num(w, &m.API)
	num(w, &m.Min)
	num(w, &m.Max)
}

func (m *MetadataRequest) walk(w *walker) { nullableList(w, &m.Topics, w.str) }

func (m *Metadata) walk(w *walker) {
	w.str(&m.Cluster)
	w.str(&m.ClusterID)
	num(w, &m.MetadataLeader)
	list(w, &m.Nodes, func(n *Node) { w.message(n) })
	list(w, &m.Topics, func(t *Topic) { w.message(t) })
}

func (m *Node) walk(w *walker) {
	num(w, &m.ID)
	w.str(&m.Name)
	w.str(&m.Native)
	w.str(&m.Kafka)
	w.str(&m.HTTP)
	w.str(&m.Version)
	w.boolean(&m.Alive)
	num(w, &m.Leaders)
	num(w, &m.Replicas)
	w.boolean(&m.Leaving)
	num(w, &m.AwayMs)
	num(w, &m.Internal)
}

func (m *Topic) walk(w *walker) {
	w.str(&m.Name)
	w.fault(&m.Err)
	w.str(&m.ID)
	num(w, &m.Replication)
	w.stringMap(&m.Configs)
	list(w, &m.Partitions, func(p *Partition) { w.message(p) })
}

func (m *Partition) walk(w *walker) {
	num(w, &m.Partition)
	num(w, &m.Leader)
	w.str(&m.LeaderAddr)
	num(w, &m.Epoch)
	list(w, &m.Replicas, func(n *record.NodeID) { num(w, n) })
	list(w, &m.Voters, func(n *record.NodeID) { num(w, n) })
	num(w, &m.LogStart)
	num(w, &m.HighWatermark)
	list(w, &m.InSync, func(n *record.NodeID) { num(w, n) })
}

func (m *ProduceRequest) walk(w *walker) {
	w.str(&m.Topic)
	num(w, &m.Partition)
	num(w, &m.Acks)
	num(w, &m.Epoch)
	num(w, &m.TimeoutMs)
	w.blob((*[]byte)(&m.Batch))
	w.str(&m.TopicID)
}

func (m *ProduceResponse) walk(w *walker) {
	num(w, &m.BaseOffset)
	num(w, &m.LogStart)
	num(w, &m.Epoch)
	w.str(&m.Durability)
}

func (m *FetchRequest) walk(w *walker) {
	w.str(&m.Topic)
	num(w, &m.Partition)
	num(w, &m.Epoch)
	num(w, &m.Offset)
	num(w, &m.MaxBytes)
	num(w, &m.MinBytes)
	num(w, &m.MaxWaitMs)
	w.str(&m.TopicID)
}

func (m *FetchResponse) walk(w *walker) {
	num(w, &m.HighWatermark)
	num(w, &m.LogStart)
	num(w, &m.Epoch)
	w.blob(&m.Batches)
}

func (m *OffsetsRequest) walk(w *walker) {
	w.str(&m.Topic)
	num(w, &m.Partition)
	num(w, &m.At)
}

func (m *OffsetsResponse) walk(w *walker) {
	num(w, &m.Offset)
	num(w, &m.Timestamp)
	num(w, &m.Epoch)
	num(w, &m.LogStart)
	num(w, &m.HighWatermark)
}

func (m *ProducerIDRequest) walk(*walker) {}

func (m *ProducerIDResponse) walk(w *walker) {
	num(w, &m.ID)
	num(w, &m.Epoch)
}

func (m *CreateTopicRequest) walk(w *walker) {
	w.str(&m.Name)
	num(w, &m.Partitions)
	num(w, &m.Replication)
	w.stringMap(&m.Configs)
	num(w, &m.TimeoutMs)
}

func (m *CreateTopicResponse) walk(w *walker) {
	w.str(&m.Name)
	w.str(&m.ID)
	num(w, &m.Partitions)
	num(w, &m.Replication)
}

func (m *DeleteTopicRequest) walk(w *walker) {
	w.str(&m.Name)
	num(w, &m.TimeoutMs)
}

func (m *AlterTopicRequest) walk(w *walker) {
	w.str(&m.Name)
	w.stringMap(&m.Set)
	list(w, &m.Unset, w.str)
	num(w, &m.Partitions)
	num(w, &m.TimeoutMs)
}

func (m *TransferLeaderRequest) walk(w *walker) {
	w.str(&m.Topic)
	num(w, &m.Partition)
	num(w, &m.To)
	num(w, &m.TimeoutMs)
}

func (m *TransferLeaderResponse) walk(w *walker) {
	num(w, &m.Leader)
	num(w, &m.Epoch)
}

func (m *LeaderHistoryRequest) walk(w *walker) {
	w.str(&m.Topic)
	num(w, &m.Partition)
	num(w, &m.Limit)
	num(w, &m.TimeoutMs)
}

func (m *LeaderHistoryResponse) walk(w *walker) {
	list(w, &m.Changes, func(c *LeaderChange) { w.message(c) })
	num(w, &m.Node)
}

func (m *LeaderChange) walk(w *walker) {
	w.str(&m.Topic)
	num(w, &m.Partition)
	num(w, &m.Epoch)
	num(w, &m.Leader)
	w.time(&m.At)
	w.str(&m.Reason)
}

func (m *StatusRequest) walk(w *walker) { num(w, &m.TimeoutMs) }

func (m *Status) walk(w *walker) {
	w.str(&m.Cluster)
	w.str(&m.ClusterID)
	num(w, &m.Nodes)
	num(w, &m.NodesAlive)
	num(w, &m.Topics)
	num(w, &m.Partitions)
	num(w, &m.Leaderless)
	num(w, &m.UnderReplicated)
	num(w, &m.MetadataLeader)
	num(w, &m.Internal)
	num(w, &m.InternalUnwell)
}

func (m *RemoveNodeRequest) walk(w *walker) {
	num(w, &m.Node)
	w.boolean(&m.Force)
	w.boolean(&m.Cancel)
	num(w, &m.TimeoutMs)
}

func (m *RemoveNodeResponse) walk(w *walker) {
	w.boolean(&m.Removed)
	num(w, &m.Moving)
	num(w, &m.Missing)
}

func (m *DescribeNodeRequest) walk(w *walker) {
	num(w, &m.Node)
	num(w, &m.TimeoutMs)
}

func (m *NodeDescription) walk(w *walker) {
	w.nested(&m.Node)
	w.str(&m.Instance)
	w.str(&m.State)
	w.str(&m.Zone)
	num(w, &m.BootCounter)
	num(w, &m.UptimeMs)
	num(w, &m.DataBytes)
	num(w, &m.DiskFree)
	list(w, &m.Peers, func(p *PeerStatus) { w.message(p) })
	list(w, &m.Partitions, func(p *NodePartition) { w.message(p) })
	list(w, &m.Problems, w.str)
	w.nested(&m.Device)
}

func (m *EventsRequest) walk(w *walker) {
	num(w, &m.Node)
	num(w, &m.After)
	num(w, &m.WaitMs)
	num(w, &m.TimeoutMs)
}

func (m *EventsResponse) walk(w *walker) {
	list(w, &m.Events, func(e *NodeEvent) { w.message(e) })
}

func (m *NodeEvent) walk(w *walker) {
	num(w, &m.Seq)
	w.time(&m.At)
	w.str(&m.Kind)
	w.str(&m.Text)
	num(w, &m.Count)
}

func (m *NetworkRequest) walk(w *walker) {
	num(w, &m.Node)
	num(w, &m.TimeoutMs)
}

func (m *NetworkResponse) walk(w *walker) {
	list(w, &m.Reaches, func(r *Reach) { w.message(r) })
}

func (m *Reach) walk(w *walker) {
	num(w, &m.Node)
	w.str(&m.Protocol)
	w.str(&m.Addr)
	w.boolean(&m.Up)
	num(w, &m.RTTMicros)
	num(w, &m.SkewMs)
	w.str(&m.Problem)
}

func (m *DeviceStatus) walk(w *walker) {
	num(w, &m.MemoryBudget)
	w.str(&m.MemoryFrom)
	num(w, &m.MemoryUsed)
	num(w, &m.DiskTotal)
	w.boolean(&m.DiskLow)
	num(w, &m.DiskStalledMs)
	num(w, &m.Written)
	num(w, &m.WrittenPerDay)
	num(w, &m.Amplification)
	num(w, &m.WearDays)
	w.boolean(&m.ClockTrusted)
	w.str(&m.Clock)
	num(w, &m.Now)
}

func (m *PeerStatus) walk(w *walker) {
	num(w, &m.ID)
	w.str(&m.Addr)
	w.boolean(&m.Up)
	w.str(&m.Problem)
	num(w, &m.PauseMs)
}

func (m *NodePartition) walk(w *walker) {
	w.str(&m.Topic)
	num(w, &m.Partition)
	w.str(&m.Role)
	num(w, &m.Leader)
	num(w, &m.Epoch)
	num(w, &m.LogStart)
	num(w, &m.HighWatermark)
}

// Empty is the answer of requests that have nothing to tell but success.
type Empty struct{}

func (*Empty) walk(*walker) {}
