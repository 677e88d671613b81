package node

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"edged/groups"
	"edged/metadata"
	"edged/transport/kafka"
)

// settingTypes are the types that tools expect of topic settings, where the kind of setting does not say it.
var settingTypes = map[string]kafka.SettingType{
	"index.interval.bytes":  kafka.TypeInt,
	"min.insync.replicas":   kafka.TypeInt,
	"remote.storage.enable": kafka.TypeBool,
	"segment.bytes":         kafka.TypeInt,
	"segment.index.bytes":   kafka.TypeInt,

	metadata.CleanupPolicy:   kafka.TypeList,
	metadata.MaxMessageBytes: kafka.TypeInt,
	metadata.RetentionBytes:  kafka.TypeLong,
	metadata.RetentionMs:     kafka.TypeLong,
	metadata.TimestampAfter:  kafka.TypeLong,
	metadata.TimestampBefore: kafka.TypeLong,
}

// settingDocs is what is not as a reader of Kafka's documentation expects.
var settingDocs = map[string]string{
	metadata.CleanupPolicy: "delete, compact or both. Compaction is not done yet: with compact alone everything is kept.",
	metadata.DurabilityKey: "fsync: acknowledged records are on disk. relaxed: the operating system has them.",
}

var idleTypes = map[metadata.SettingKind]kafka.SettingType{
	metadata.TextSetting:     kafka.TypeString,
	metadata.NumberSetting:   kafka.TypeLong,
	metadata.SwitchSetting:   kafka.TypeBool,
	metadata.FractionSetting: kafka.TypeDouble,
	metadata.ListSetting:     kafka.TypeList,
}

// topicSettings are all settings of a topic as Kafka's tools see them. The count of replicas is not
// among them: tools show that elsewhere, and would take it for a difference they have to mend.
func topicSettings(given map[string]string, configs metadata.Configs) []kafka.Setting {
	defaults := metadata.DefaultConfigs().Map()
	var out []kafka.Setting
	for name, value := range configs.Map() {
		if name == metadata.ReplicationKey {
			continue
		}
		_, explicit := given[name]
		out = append(out, kafka.Setting{
			Name: name, Value: value, Default: defaults[name], Explicit: explicit, Type: cmp.Or(settingTypes[name], kafka.TypeString), Doc: settingDocs[name],
		})
	}
	for _, s := range metadata.IdleSettings() {
		value, explicit := given[s.Name]
		if !explicit {
			value = s.Default
		}
		out = append(out, kafka.Setting{Name: s.Name, Value: value, Default: s.Default, Explicit: explicit, Type: cmp.Or(settingTypes[s.Name], idleTypes[s.Kind]), Doc: "Kept, without an effect here."})
	}
	slices.SortFunc(out, func(a, b kafka.Setting) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// lookalike is the release of Kafka that the versions of requests look like; some tools ask for it.
const lookalike = "3.9"

// NodeSettings are the settings of this node in Kafka's words: what tools read to decide what they offer.
// Nobody can change them over the protocol.
func (b kafkaBroker) NodeSettings() []kafka.Setting {
	n := b.n
	d, g := metadata.DefaultConfigs(), groups.DefaultTiming()
	id := strconv.Itoa(int(n.ident.Get().Node))
	var parts []string
	for _, l := range n.kafka.listeners {
		parts = append(parts, cmp.Or(strings.ToUpper(l.name), "PLAINTEXT")+"://"+n.kafkaAt(l))
	}
	listeners := strings.Join(parts, ",")
	number := func(v int64) string { return strconv.FormatInt(v, 10) }
	all := []kafka.Setting{
		{Name: "advertised.listeners", Value: listeners, Type: kafka.TypeString},
		{Name: "auto.create.topics.enable", Value: strconv.FormatBool(n.cfg.KafkaAutoCreate > 0), Type: kafka.TypeBool},
		{Name: "broker.id", Value: id, Type: kafka.TypeInt},
		{Name: "broker.rack", Value: n.cfg.Zone, Type: kafka.TypeString},
		{Name: "compression.type", Value: "producer", Type: kafka.TypeString},
		{Name: "connections.max.idle.ms", Value: number(kafka.DefaultIdleTimeout.Milliseconds()), Type: kafka.TypeLong},
		{Name: "default.replication.factor", Value: strconv.Itoa(metadata.AutoReplicas(len(n.machine.Picture().NodesSorted()))), Type: kafka.TypeInt},
		{Name: "delete.topic.enable", Value: "true", Type: kafka.TypeBool},
		{Name: "group.initial.rebalance.delay.ms", Value: strconv.Itoa(n.cfg.KafkaGroupDelay), Type: kafka.TypeInt},
		{Name: "group.max.session.timeout.ms", Value: number(g.MaxSession.Milliseconds()), Type: kafka.TypeInt},
		{Name: "group.min.session.timeout.ms", Value: number(g.MinSession.Milliseconds()), Type: kafka.TypeInt},
		{Name: "inter.broker.protocol.version", Value: lookalike, Type: kafka.TypeString},
		{Name: "listeners", Value: listeners, Type: kafka.TypeString},
		{Name: "log.cleanup.policy", Value: d.Cleanup.String(), Type: kafka.TypeList},
		{Name: "log.dirs", Value: n.cfg.DataDir, Type: kafka.TypeString},
		{Name: "log.message.timestamp.type", Value: "CreateTime", Type: kafka.TypeString},
		{Name: "log.retention.bytes", Value: number(d.RetentionBytes), Type: kafka.TypeLong},
		{Name: "log.retention.hours", Value: number(d.RetentionMs / (60 * 60 * 1000)), Type: kafka.TypeInt},
		{Name: "log.retention.ms", Value: number(d.RetentionMs), Type: kafka.TypeLong},
		{Name: "log.segment.bytes", Value: "1073741824", Type: kafka.TypeInt},
		{Name: "message.max.bytes", Value: number(int64(d.MaxMessageBytes)), Type: kafka.TypeInt},
		{Name: "min.insync.replicas", Value: "1", Type: kafka.TypeInt},
		{Name: "node.id", Value: id, Type: kafka.TypeInt},
		{Name: "num.partitions", Value: strconv.Itoa(n.defaultPartitions()), Type: kafka.TypeInt},
		{Name: "offsets.retention.minutes", Value: number(int64(g.Retention.Minutes())), Type: kafka.TypeInt},
		{Name: "offsets.topic.num.partitions", Value: strconv.Itoa(metadata.GroupsPartitions), Type: kafka.TypeInt},
		{Name: "offsets.topic.replication.factor", Value: "3", Type: kafka.TypeInt},
	}
	for i := range all {
		all[i].Default, all[i].ReadOnly, all[i].Explicit = all[i].Value, true, true
	}
	return all
}

// defaultPartitions is how many a topic gets whose maker does not say.
func (n *Node) defaultPartitions() int { return max(n.cfg.KafkaAutoCreate, 1) }
