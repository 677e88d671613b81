package metadata

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// IdleSetting is a topic setting that Kafka's tools and libraries write and read back, and that has no
// effect here: there are no segment files, and a majority of the replicas has every record.
// It is kept as it was given.
type IdleSetting struct {
	Name, Default string
	Kind          SettingKind
	check         func(value string) error
}

// SettingKind is what a setting's value looks like.
type SettingKind uint8

// The kinds.
const (
	TextSetting SettingKind = iota
	NumberSetting
	SwitchSetting
	FractionSetting
	ListSetting
)

// IdleSettings are all of them, by name.
func IdleSettings() []IdleSetting { return idleSettings }

const anyNumber = "9223372036854775807"

var idleSettings = []IdleSetting{
	idleWord("compression.type", "producer", "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
	idleNumber("delete.retention.ms", "86400000", 0),
	idleNumber("file.delete.delay.ms", "60000", 0),
	idleNumber("flush.messages", anyNumber, 1),
	idleNumber("flush.ms", anyNumber, 0),
	idleList("follower.replication.throttled.replicas"),
	idleNumber("index.interval.bytes", "4096", 0),
	idleList("leader.replication.throttled.replicas"),
	idleNumber("local.retention.bytes", "-2", -2),
	idleNumber("local.retention.ms", "-2", -2),
	idleNumber("max.compaction.lag.ms", anyNumber, 1),
	idleSwitch("message.downconversion.enable", "true"),
	idleText("message.format.version", "3.0-IV1"),
	idleNumber("message.timestamp.difference.max.ms", anyNumber, 0),
	idleFraction("min.cleanable.dirty.ratio", "0.5"),
	idleNumber("min.compaction.lag.ms", "0", 0),
	idleNumber("min.insync.replicas", "1", 1),
	idleSwitch("preallocate", "false"),
	idleWord("remote.storage.enable", "false", "false"),
	idleNumber("segment.bytes", "1073741824", 14),
	idleNumber("segment.index.bytes", "10485760", 4),
	idleNumber("segment.jitter.ms", "0", 0),
	idleNumber("segment.ms", "604800000", 1),
	idleSwitch("unclean.leader.election.enable", "false"),
}

func findIdle(name string) (IdleSetting, bool) {
	i := slices.IndexFunc(idleSettings, func(s IdleSetting) bool { return s.Name == name })
	if i < 0 {
		return IdleSetting{}, false
	}
	return idleSettings[i], true
}

func idleNumber(name, def string, lowest int64) IdleSetting {
	return IdleSetting{name, def, NumberSetting, func(v string) error {
		_, err := parseNumber(v, lowest, math.MaxInt64, "")
		return err
	}}
}

func idleWord(name, def string, words ...string) IdleSetting {
	return IdleSetting{name, def, TextSetting, func(v string) error {
		if !slices.Contains(words, v) {
			return fmt.Errorf("is %.40q, should be one of %v", v, words)
		}
		return nil
	}}
}

func idleSwitch(name, def string) IdleSetting {
	s := idleWord(name, def, "true", "false")
	s.Kind = SwitchSetting
	return s
}

func idleFraction(name, def string) IdleSetting {
	return IdleSetting{name, def, FractionSetting, func(v string) error {
		if f, err := strconv.ParseFloat(v, 64); err != nil || !(f >= 0 && f <= 1) {
			return fmt.Errorf("is %.40q, should be a number from 0 to 1", v)
		}
		return nil
	}}
}

func idleText(name, def string) IdleSetting {
	return IdleSetting{name, def, TextSetting, func(string) error { return nil }}
}

func idleList(name string) IdleSetting {
	s := idleText(name, "")
	s.Kind = ListSetting
	return s
}
