package metadata

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"edged/record"
)

func TestParseConfigs(t *testing.T) {
	got, err := ParseConfigs(map[string]string{
		RetentionMs: "-1", RetentionBytes: "1048576", MaxMessageBytes: "2048", DurabilityKey: "relaxed", ReplicationKey: "3",
	})
	want := Configs{RetentionMs: Unlimited, RetentionBytes: 1 << 20, MaxMessageBytes: 2048, Durability: Relaxed, Replication: 3,
		TimestampBefore: NoTimestampLimit, TimestampAfter: NoTimestampLimit}
	if err != nil || got != want {
		t.Fatalf("got %+v, %v", got, err)
	}
	if got, err := ParseConfigs(nil); err != nil || got != DefaultConfigs() {
		t.Fatalf("no settings: %+v, %v", got, err)
	}
}

// TestConfigs_mapReadsBack: what is shown can be given.
func TestConfigs_mapReadsBack(t *testing.T) {
	for _, c := range []Configs{
		DefaultConfigs(),
		{RetentionMs: 1, RetentionBytes: 1, MaxMessageBytes: 1024, Durability: Relaxed, Replication: MaxReplication},
		{RetentionMs: 1, RetentionBytes: 1, MaxMessageBytes: 1024, Cleanup: CleanupBoth, LogAppendTime: true, TimestampAfter: 5},
	} {
		m := c.Map()
		if got, err := ParseConfigs(m); err != nil || got != c {
			t.Errorf("%v became %+v, %v", m, got, err)
		}
		if !slices.Equal(slices.Sorted(maps.Keys(m)), SettingNames()) {
			t.Errorf("shown are %v, there are %v", m, SettingNames())
		}
	}
}

func TestParseConfigs_namesEveryFault(t *testing.T) {
	_, err := ParseConfigs(map[string]string{
		RetentionMs: "0", RetentionBytes: "1G", MaxMessageBytes: "99999999", DurabilityKey: "maybe", ReplicationKey: "6",
		"cleanup.policy": "shred", "segment.bytes": "7", "no.such": "1", strings.Repeat("x", 500): "\n",
	})
	if !errors.Is(err, record.ErrInvalidConfig) {
		t.Fatal(err)
	}
	text := err.Error()
	for _, want := range []string{`retention.ms is "0"`, `retention.bytes is "1G"`, `max.message.bytes is "99999999"`,
		`durability is "maybe"`, `replication is "6"`, `cleanup.policy is "shred"`, `segment.bytes is "7"`, `"no.such" is not a setting`, "should be fsync or relaxed", "1024 to 1048588"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
	if strings.Contains(text, "\n") || len(text) > 1500 {
		t.Errorf("not one short line: %q", text)
	}
}

func TestParseConfigs_values(t *testing.T) {
	for _, x := range []struct {
		name, value string
		ok          bool
	}{
		{RetentionMs, "1", true}, {RetentionMs, "9223372036854775807", true}, {RetentionMs, "-2", false}, {RetentionMs, "", false},
		{RetentionMs, "9223372036854775808", false}, {RetentionMs, " 1", false},
		{RetentionBytes, "-1", true}, {RetentionBytes, "0", false},
		{MaxMessageBytes, "1023", false}, {MaxMessageBytes, "1024", true}, {MaxMessageBytes, "-1", false}, {MaxMessageBytes, "1048589", false},
		{DurabilityKey, "fsync", true}, {DurabilityKey, "Fsync", false},
		{CleanupPolicy, "compact", true}, {CleanupPolicy, "compact, delete", true}, {CleanupPolicy, "", false}, {CleanupPolicy, "delete,", false},
		{TimestampType, "LogAppendTime", true}, {TimestampType, "logappendtime", false},
		{TimestampBefore, "0", true}, {TimestampAfter, "-1", false},
		{"compression.type", "producer", true}, {"compression.type", "lzma", false}, {"preallocate", "yes", false},
		{"min.cleanable.dirty.ratio", "0.5", true}, {"min.cleanable.dirty.ratio", "NaN", false}, {"remote.storage.enable", "true", false},
		{ReplicationKey, "auto", true}, {ReplicationKey, "0", false}, {ReplicationKey, "-1", false}, {ReplicationKey, "65537", false}, {ReplicationKey, "5", true},
	} {
		if _, err := ParseConfigs(map[string]string{x.name: x.value}); (err == nil) != x.ok {
			t.Errorf("%s=%q: %v", x.name, x.value, err)
		}
	}
}

// TestIdleSettings_takeTheirDefaults: what a tool reads it can write back, and nothing is in both lists.
func TestIdleSettings_takeTheirDefaults(t *testing.T) {
	for _, s := range IdleSettings() {
		if got, err := ParseConfigs(map[string]string{s.Name: s.Default}); err != nil || got != DefaultConfigs() {
			t.Errorf("%s=%q: %+v, %v", s.Name, s.Default, got, err)
		}
		if slices.Contains(SettingNames(), s.Name) {
			t.Errorf("%s has an effect and has none", s.Name)
		}
	}
}

func TestValidTopicName(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "A.b_c-9": true, "...": true, strings.Repeat("a", 249): true, "__consumer_offsets": true,
		"": false, ".": false, "..": false, strings.Repeat("a", 250): false, "a b": false, "a/b": false, "ä": false, "a\x00": false, "a\n": false,
	} {
		if err := ValidTopicName(name); (err == nil) != ok || err != nil && !errors.Is(err, record.ErrInvalidTopic) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestRetentionClass(t *testing.T) {
	last := uint8(0)
	for _, ms := range []int64{1, 3_600_000, 3_600_001, 86_400_000, 86_400_001, 7 * 86_400_000, 7*86_400_000 + 1, 1 << 60, Unlimited} {
		class := Configs{RetentionMs: ms}.retentionClass()
		if class < last || class < 1 || class > maxClass {
			t.Errorf("retention %d is class %d after %d", ms, class, last)
		}
		last = class
	}
	if last != 5 {
		t.Errorf("unlimited is class %d", last)
	}
}
