package metadata

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"edged/record"
)

// Names of the topic settings.
const (
	RetentionMs     = "retention.ms"
	RetentionBytes  = "retention.bytes"
	MaxMessageBytes = "max.message.bytes"
	DurabilityKey   = "durability"
	ReplicationKey  = "replication"
	CleanupPolicy   = "cleanup.policy"
	TimestampType   = "message.timestamp.type"
	TimestampBefore = "message.timestamp.before.max.ms"
	TimestampAfter  = "message.timestamp.after.max.ms"
)

// Durability says when a write counts as kept by a replica.
type Durability uint8

const (
	// Fsync: when it is on the disk. An acknowledged record survives loss of power everywhere.
	Fsync Durability = iota
	// Relaxed: when the operating system has it. Loss of power on a majority of the
	// replicas within seconds can lose acknowledged records.
	Relaxed
)

func (d Durability) String() string {
	if d == Relaxed {
		return "relaxed"
	}
	return "fsync"
}

// Unlimited stands in RetentionMs and RetentionBytes where nothing is deleted for it.
const Unlimited = -1

// AutoReplication stands in Replication where the cluster chooses: see AutoReplicas.
const AutoReplication = 0

// MessageBytesLimit is the greatest value of max.message.bytes, and its default: 1 MiB and
// Kafka's 12 bytes around it. It may be raised in later versions, but never lowered.
const MessageBytesLimit = 1<<20 + 12

// Configs is what a topic's settings mean, defaults filled in.
type Configs struct {
	RetentionMs     int64 // records older than this may be deleted; Unlimited or 1 and more
	RetentionBytes  int64 // of each partition; the oldest beyond it may be deleted; Unlimited or 1 and more
	MaxMessageBytes int32 // greatest record batch, as on the wire; 1024 to MessageBytesLimit
	Durability      Durability
	Replication     int16 // replicas of each partition; AutoReplication or 1 to MaxReplication
	Cleanup         Cleanup
	// LogAppendTime stamps records with the leader's clock instead of the producer's.
	LogAppendTime bool
	// TimestampBefore and TimestampAfter are how far a producer's timestamp may lie before and after
	// the leader's clock, in ms; NoTimestampLimit is any distance.
	TimestampBefore, TimestampAfter int64
}

// Cleanup says what may become of old records.
type Cleanup uint8

const (
	// CleanupDelete deletes by RetentionMs and RetentionBytes.
	CleanupDelete Cleanup = iota
	// CleanupCompact keeps the last record of each key. What it could take away is not taken away yet:
	// everything is kept.
	CleanupCompact
	// CleanupBoth is CleanupDelete that keeps the word.
	CleanupBoth
)

var cleanups = [...]string{CleanupDelete: "delete", CleanupCompact: "compact", CleanupBoth: "compact,delete"}

func (c Cleanup) String() string { return cleanups[c] }

// NoTimestampLimit takes any timestamp.
const NoTimestampLimit = math.MaxInt64

// DefaultConfigs is a topic without settings.
func DefaultConfigs() Configs {
	return Configs{
		RetentionMs:     7 * 24 * 60 * 60 * 1000,
		RetentionBytes:  Unlimited,
		MaxMessageBytes: MessageBytesLimit,
		Durability:      Fsync,
		Replication:     AutoReplication,
		TimestampBefore: NoTimestampLimit,
		TimestampAfter:  NoTimestampLimit,
	}
}

// setting reads and shows one topic setting.
type setting struct {
	name  string
	parse func(c *Configs, value string) error
	show  func(c Configs) string
}

// settings are all that have an effect, by name. Those of Kafka that have none are in configs_kafka.go.
var settings = []setting{
	{CleanupPolicy, parseCleanup, func(c Configs) string { return c.Cleanup.String() }},
	{DurabilityKey, parseDurability, func(c Configs) string { return c.Durability.String() }},
	{MaxMessageBytes, func(c *Configs, v string) error {
		n, err := parseNumber(v, 1024, MessageBytesLimit, "")
		c.MaxMessageBytes = int32(n)
		return err
	}, func(c Configs) string { return strconv.FormatInt(int64(c.MaxMessageBytes), 10) }},
	{TimestampAfter, func(c *Configs, v string) (err error) {
		c.TimestampAfter, err = parseNumber(v, 0, math.MaxInt64, "")
		return err
	}, func(c Configs) string { return strconv.FormatInt(c.TimestampAfter, 10) }},
	{TimestampBefore, func(c *Configs, v string) (err error) {
		c.TimestampBefore, err = parseNumber(v, 0, math.MaxInt64, "")
		return err
	}, func(c Configs) string { return strconv.FormatInt(c.TimestampBefore, 10) }},
	{TimestampType, parseTimestampType, func(c Configs) string { return timestampTypes[c.LogAppendTime] }},
	{ReplicationKey, parseReplication, func(c Configs) string {
		if c.Replication == AutoReplication {
			return "auto"
		}
		return strconv.FormatInt(int64(c.Replication), 10)
	}},
	{RetentionBytes, func(c *Configs, v string) (err error) {
		c.RetentionBytes, err = parseNumber(v, 1, math.MaxInt64, "-1 (no limit)")
		return err
	}, func(c Configs) string { return strconv.FormatInt(c.RetentionBytes, 10) }},
	{RetentionMs, func(c *Configs, v string) (err error) {
		c.RetentionMs, err = parseNumber(v, 1, math.MaxInt64, "-1 (no limit)")
		return err
	}, func(c Configs) string { return strconv.FormatInt(c.RetentionMs, 10) }},
}

// ParseConfigs reads a topic's settings. It names every fault in one error, which is
// record.ErrInvalidConfig.
func ParseConfigs(given map[string]string) (Configs, error) {
	c := DefaultConfigs()
	var faults []string
	for _, name := range slices.Sorted(maps.Keys(given)) {
		i := slices.IndexFunc(settings, func(s setting) bool { return s.name == name })
		var err error
		if i >= 0 {
			err = settings[i].parse(&c, given[name])
		} else if idle, ok := findIdle(name); ok {
			err = idle.check(given[name])
		} else {
			faults = append(faults, fmt.Sprintf("%.80q is not a setting (there are %s)", name, strings.Join(SettingNames(), ", ")))
		}
		if err != nil {
			faults = append(faults, fmt.Sprintf("%s %v", name, err))
		}
		if len(faults) == maxSettings {
			break
		}
	}
	if len(faults) > 0 {
		return Configs{}, fmt.Errorf("%w: %s", record.ErrInvalidConfig, strings.Join(faults, "; "))
	}
	return c, nil
}

// SettingNames gives the names of all topic settings that have an effect, in order.
func SettingNames() []string {
	names := make([]string, len(settings))
	for i, s := range settings {
		names[i] = s.name
	}
	return names
}

// Map shows every setting that has an effect with its value in force.
func (c Configs) Map() map[string]string {
	m := make(map[string]string, len(settings))
	for _, s := range settings {
		m[s.name] = s.show(c)
	}
	return m
}

func parseNumber(value string, lo, hi int64, unlimited string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err == nil && (n >= lo && n <= hi || n == Unlimited && unlimited != "") {
		return n, nil
	}
	if unlimited != "" {
		return 0, fmt.Errorf("is %.40q, should be %s or a number from %d on", value, unlimited, lo)
	}
	return 0, fmt.Errorf("is %.40q, should be a number from %d to %d", value, lo, hi)
}

func parseCleanup(c *Configs, value string) error {
	var compact, del bool
	for _, word := range strings.Split(value, ",") {
		switch strings.TrimSpace(word) {
		case "compact":
			compact = true
		case "delete":
			del = true
		default:
			return fmt.Errorf("is %.40q, should be delete, compact or both with a comma", value)
		}
	}
	switch {
	case compact && del:
		c.Cleanup = CleanupBoth
	case compact:
		c.Cleanup = CleanupCompact
	default:
		c.Cleanup = CleanupDelete
	}
	return nil
}

// timestampTypes are the words for LogAppendTime.
var timestampTypes = map[bool]string{false: "CreateTime", true: "LogAppendTime"}

func parseTimestampType(c *Configs, value string) error {
	for appendTime, word := range timestampTypes {
		if value == word {
			c.LogAppendTime = appendTime
			return nil
		}
	}
	return fmt.Errorf("is %.40q, should be CreateTime or LogAppendTime", value)
}

func parseDurability(c *Configs, value string) error {
	for _, d := range []Durability{Fsync, Relaxed} {
		if value == d.String() {
			c.Durability = d
			return nil
		}
	}
	return fmt.Errorf("is %.40q, should be fsync or relaxed", value)
}

func parseReplication(c *Configs, value string) error {
	if value == "auto" {
		c.Replication = AutoReplication
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 16)
	if err != nil || n < 1 || n > MaxReplication {
		return fmt.Errorf("is %.40q, should be auto or a number from 1 to %d", value, MaxReplication)
	}
	c.Replication = int16(n)
	return nil
}

// maxClass is the highest retention class that storage knows.
const maxClass = 7

// retentionClass groups topics that keep their records about equally long, so that
// storage can drop whole files of them. 0 is the metadata's own.
func (c Configs) retentionClass() uint8 {
	const hour = 60 * 60 * 1000
	switch ms := c.RetentionMs; {
	case ms == Unlimited:
		return 5
	case ms <= hour:
		return 1
	case ms <= 24*hour:
		return 2
	case ms <= 7*24*hour:
		return 3
	}
	return 4
}

// ValidTopicName tells whether a topic can have the name: Kafka's rule. The error is
// record.ErrInvalidTopic.
func ValidTopicName(name string) error {
	ok := name != "" && name != "." && name != ".." && len(name) <= maxTopicNameBytes
	for _, b := range []byte(name) {
		ok = ok && (b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '.' || b == '_' || b == '-')
	}
	if !ok {
		return fmt.Errorf("topic name %.80q: %w", name, record.ErrInvalidTopic)
	}
	return nil
}
