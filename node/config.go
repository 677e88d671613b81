package node

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// Bounds of the settings. They keep what a node says about itself inside one gossip
// packet and what it reads from a file inside its memory.
const (
	maxNameBytes       = 64
	maxJoinAddresses   = 64
	maxBootstrapExpect = 15
	maxSecretFileBytes = 4 << 10
)

// Config is everything a person can set. The toml tag is the name in the file, on the
// command line (--name) and, in capitals with EDGED_ before it and _ for -, in the
// environment; the value and usage tags are the help text. With a reload tag it may change while the
// node runs.
// Every field has a working default: one node needs no setting at all.
type Config struct {
	// DataDir holds the log, the identity of the node and addresses.json. It belongs to
	// one process at a time. Under systemd the default is $STATE_DIRECTORY.
	DataDir string `toml:"data-dir" value:"DIR" usage:"directory of the log and the node's identity"`
	// NodeName is for people only; a node is known by the random id in its data directory.
	NodeName string `toml:"node-name" value:"NAME" usage:"what people see the node as; nothing depends on it"`
	// Cluster keeps clusters on one network apart: nodes with another name are not talked to.
	Cluster string `toml:"cluster" value:"NAME" usage:"the cluster to be of; nodes of another are ignored"`
	// Zone is a rack, room or power circuit. Replicas of a partition go to different zones if they can.
	Zone string `toml:"zone" value:"NAME" usage:"room, rack or power circuit; replicas are spread over zones"`

	// NativeAddr takes the native protocol of clients and the connections of other nodes.
	NativeAddr string `toml:"native-addr" value:"HOST:PORT" usage:"listen here for native clients and other nodes (TCP)"`
	// GossipAddr takes gossip, by UDP and TCP.
	GossipAddr string `toml:"gossip-addr" value:"HOST:PORT" usage:"listen here for gossip (UDP and TCP)"`
	// KafkaAddr takes Kafka clients.
	KafkaAddr string `toml:"kafka-addr" value:"HOST:PORT" usage:"listen here for Kafka clients (TCP)"`
	// KafkaAdvertise is what Kafka clients are told to connect to, if that is not Advertise with
	// KafkaAddr's port; without a port it has that port.
	KafkaAdvertise string `toml:"kafka-advertise" value:"HOST[:PORT]" usage:"what Kafka clients are told to connect to, where that is not the host of --advertise"`
	// KafkaListeners are further places for Kafka clients, up to 3: where a node is in several networks,
	// clients of each are told addresses of their own. The name is the same on every node.
	KafkaListeners []string `toml:"kafka-listener" value:"NAME=HOST:PORT/HOST:PORT" usage:"listen for Kafka clients of another network too, and tell them what stands after the slash; may be repeated"`
	// KafkaAutoCreate makes topics that Kafka clients ask for and that do not exist, with so many
	// partitions. 0 does not.
	KafkaAutoCreate int `toml:"kafka-auto-create" value:"N" usage:"make topics that Kafka clients ask for, with N partitions; 0 does not"`
	// KafkaGroupDelay is how long, in milliseconds, the first members of a consumer group wait for more,
	// so that those who start together share the partitions at once.
	KafkaGroupDelay int `toml:"kafka-group-delay" value:"MS" usage:"the first members of a consumer group wait this many milliseconds for more; 0 does not"`
	// HTTPAddr serves health, metrics and profiles. It asks for no password, hence loopback.
	HTTPAddr string `toml:"http-addr" value:"HOST:PORT" usage:"listen here for health, metrics and profiles (TCP)"`
	// Advertise is the host, without a port, that other nodes and clients are told to
	// connect to: an address, a name, or a network interface of this machine. Empty means
	// that AdvertiseHost guesses.
	Advertise string `toml:"advertise" value:"HOST" usage:"address, name or network interface of this machine that others can reach; guessed from the routes"`

	// Join lists gossip addresses of nodes of the cluster. A node with a Join list and no
	// BootstrapExpect never forms a cluster, it waits until one lets it in.
	Join []string `toml:"join" value:"HOST:PORT" usage:"gossip address of a node of the cluster; may be repeated"`
	// BootstrapExpect is how many new nodes form the cluster together, 1 to 15, with
	// nothing formed before all of them agree. 0 is not set: a node without a Join list is
	// then a cluster of one.
	BootstrapExpect int `toml:"bootstrap-expect" value:"N" usage:"form the cluster once this many new nodes have met"`
	// ReplaceAfter is how long a node may be away before its replicas are given to other nodes, as a Go
	// duration; "0" is for ever. The node that leads the metadata goes by its own.
	ReplaceAfter string `toml:"replace-after" reload:"yes" value:"DURATION" usage:"a node that is away for so long has its replicas made anew on others, if there are enough; 0 waits for ever"`
	// ClusterSecretFile names a file that holds 16, 24 or 32 random bytes in base64, the
	// same on every node. With it gossip is encrypted and strangers cannot speak it. It
	// covers gossip only: the TCP connections are not encrypted by it.
	ClusterSecretFile string `toml:"cluster-secret-file" value:"FILE" usage:"holds the cluster's gossip key: 16, 24 or 32 bytes in base64"`

	// MemoryLimit is what the process should take at most, such as 64MiB. Empty: a part of what the control
	// group or the board has. Every cache and queue is sized by it; see README.md.
	MemoryLimit string `toml:"memory-limit" value:"SIZE" usage:"take at most so much memory, such as 64MiB; guessed from the control group or the board"`

	// RetentionPercent is how much of the disk, in percent, the records of all topics may take on this node: above
	// it the oldest go, whatever their topic. 0 leaves it to the topics' own limits.
	RetentionPercent int `toml:"retention-percent" reload:"yes" value:"N" usage:"delete the oldest records of all topics above N percent of the disk; 0 does not"`
	// CardTBW is how much the card is made to take in its life, such as 100TB, as its maker says. It is only used
	// to say how long the card will last.
	CardTBW string `toml:"card-tbw" reload:"yes" value:"SIZE" usage:"what the card is made to take in its life, such as 100TB, to say how long it lasts"`

	// ClockTrust is auto, where the kernel has to say that the clock is synchronised before anything is deleted by
	// age, or always, where somebody else vouches for it: a battery, or a person who sets it.
	ClockTrust string `toml:"clock-trust" reload:"yes" value:"WORD" usage:"auto: delete by age only while the kernel says that the clock is synchronised; always: believe the clock"`

	// LogLevel is debug, info, warn or error.
	LogLevel string `toml:"log-level" reload:"yes" value:"LEVEL" usage:"what is logged: debug, info, warn or error"`
	// LogFormat is text or json.
	LogFormat string `toml:"log-format" value:"FORMAT" usage:"how it is logged: text or json"`

	// sources says for each setting, by name, who set it last; nil outside Load.
	sources map[string]string
}

// nodeName makes a name that a node may have of what the machine is called, which is "(none)" on one that
// nobody has named.
func nodeName(host string) string {
	name := strings.Trim(strings.Map(func(r rune) rune {
		if nameRune(r) {
			return r
		}
		return '-'
	}, host), "-.")
	if name == "" || host == "(none)" {
		return "edged"
	}
	return name[:min(len(name), maxNameBytes)]
}

// nameRune tells which characters names have that travel in gossip and stand in logs and tables.
func nameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
}

// DefaultConfig is a whole configuration: a cluster of one that other machines can
// reach, on the default ports, with its data beside the working directory.
func DefaultConfig() Config {
	name, _ := os.Hostname() // without one: the same as an empty one
	return Config{
		DataDir:         "./edged-data",
		NodeName:        nodeName(name),
		Cluster:         "edge",
		NativeAddr:      ":7400",
		GossipAddr:      ":7946",
		KafkaAddr:       ":9092",
		KafkaGroupDelay: 1000,
		HTTPAddr:        "127.0.0.1:7480",
		ReplaceAfter:    "30m",
		ClockTrust:      clockAuto,
		LogLevel:        "info",
		LogFormat:       "text",
	}
}

// ConfigError lists every fault of a configuration, each in one line that names the
// setting, where it was set, what is wrong and what would be right. It is also what a data directory
// of no use gives: all that no restart can help with.
type ConfigError struct {
	Faults []string
	cause  error // nil for faults of the settings themselves
}

func (e *ConfigError) Error() string { return strings.Join(e.Faults, "\n") }
func (e *ConfigError) Unwrap() error { return e.cause }

// beyondRestart makes an error, whose text is one line, one that no restart can help with.
func beyondRestart(err error) error { return &ConfigError{Faults: []string{err.Error()}, cause: err} }

// Setting is one field of Config, for whoever builds a command line or prints one.
type Setting struct {
	Name     string // on the command line and in the file
	Env      string // in the environment
	Value    string // what kind of value it takes, for the help text: DIR, NAME, N …
	Usage    string // help text
	Default  string // its default as text, "" for none
	Repeated bool   // may be given more than once
	Reload   bool   // may change while the node runs
}

// Settings lists what can be set, in the order of Config.
func Settings() []Setting {
	defaults := reflect.ValueOf(DefaultConfig())
	var all []Setting
	for f := range defaults.Type().Fields() {
		name := f.Tag.Get("toml")
		if name == "" {
			continue
		}
		s := Setting{
			Name:     name,
			Env:      "EDGED_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")),
			Value:    f.Tag.Get("value"),
			Usage:    f.Tag.Get("usage"),
			Repeated: f.Type.Kind() == reflect.Slice,
			Reload:   f.Tag.Get("reload") != "",
		}
		if v := defaults.FieldByIndex(f.Index); !v.IsZero() {
			s.Default = fmt.Sprint(v.Interface())
		}
		all = append(all, s)
	}
	return all
}

// field gives the addressable field that a setting names.
func (c *Config) field(name string) reflect.Value {
	v := reflect.ValueOf(c).Elem()
	for f := range v.Type().Fields() {
		if f.Tag.Get("toml") == name {
			return v.FieldByIndex(f.Index)
		}
	}
	return reflect.Value{}
}

// Source says who set the named setting: a flag, a variable, a line of the file, or
// "default".
func (c Config) Source(name string) string {
	if s := c.sources[name]; s != "" {
		return s
	}
	return "default"
}

// Level is LogLevel for slog; info if it is not a level.
func (c Config) Level() slog.Level {
	var l slog.Level
	if l.UnmarshalText([]byte(c.LogLevel)) != nil {
		return slog.LevelInfo
	}
	return l
}

// Validate finds every fault that can be seen without opening anything but the secret
// file, or making anything. The error is a *ConfigError.
func (c Config) Validate() error {
	v := validator{c: c}
	if c.DataDir == "" {
		v.fault("data-dir", "is empty; name a directory")
	} else if s, err := os.Stat(c.DataDir); err == nil && !s.IsDir() || errors.Is(err, syscall.ENOTDIR) {
		v.fault("data-dir", "is %q, which is or lies below a file; name a directory", c.DataDir)
	}
	v.name("node-name", c.NodeName, true)
	v.name("cluster", c.Cluster, true)
	v.name("zone", c.Zone, false)
	v.listeners()
	v.advertise()
	v.kafka()
	if len(c.Join) > maxJoinAddresses {
		v.fault("join", "has %d addresses; at most %d are taken, and one that answers is enough", len(c.Join), maxJoinAddresses)
	}
	for _, a := range c.Join {
		if host, port, err := splitAddr(a); err != nil {
			v.fault("join", "%v", err)
		} else if host == "" || port == 0 {
			v.fault("join", "%q needs a host and a port, such as pi1.local:7946", a)
		}
	}
	if c.BootstrapExpect < 0 || c.BootstrapExpect > maxBootstrapExpect {
		v.fault("bootstrap-expect", "is %d; it is 1 to %d, or 0 for not set", c.BootstrapExpect, maxBootstrapExpect)
	}
	if d, err := time.ParseDuration(c.ReplaceAfter); err != nil || d < 0 {
		v.fault("replace-after", "is %q; it is a duration such as 30m or 2h, or 0 to wait for ever", c.ReplaceAfter)
	}
	if _, err := c.ClusterSecret(); err != nil {
		v.fault("cluster-secret-file", "%v", err)
	}
	if n, err := parseBytes(c.MemoryLimit); err != nil {
		v.fault("memory-limit", "%v", err)
	} else if n != 0 && n < leastMemory {
		v.fault("memory-limit", "is %q; a node needs at least %d MiB", c.MemoryLimit, leastMemory>>20)
	}
	if c.RetentionPercent < 0 || c.RetentionPercent > 95 {
		v.fault("retention-percent", "is %d; it is 1 to 95, or 0 for not set", c.RetentionPercent)
	}
	if _, err := parseBytes(c.CardTBW); err != nil {
		v.fault("card-tbw", "%v", err)
	}
	v.oneOf("clock-trust", c.ClockTrust, clockAuto, clockAlways)
	v.oneOf("log-level", c.LogLevel, "debug", "info", "warn", "error")
	v.oneOf("log-format", c.LogFormat, "text", "json")
	return v.err()
}

// replaceAfter is ReplaceAfter for programs, 0 for ever.
func (c Config) replaceAfter() time.Duration {
	d, _ := time.ParseDuration(c.ReplaceAfter) // Validate has looked at it; empty is for ever
	return d
}

// validator collects the faults of one Config.
type validator struct {
	c      Config
	faults []string
}

// fault adds one line: the setting, who set it, and what is wrong with it.
func (v *validator) fault(setting, format string, args ...any) {
	where := setting
	if v.c.sources != nil {
		where += " (" + v.c.Source(setting) + ")"
	}
	v.faults = append(v.faults, where+" "+fmt.Sprintf(format, args...))
}

func (v *validator) err() error {
	if len(v.faults) == 0 {
		return nil
	}
	return &ConfigError{Faults: v.faults}
}

func (v *validator) oneOf(setting, got string, want ...string) {
	for _, w := range want {
		if got == w {
			return
		}
	}
	v.fault(setting, "is %q; it is one of %s", got, strings.Join(want, ", "))
}

// name checks a name that travels in gossip and stands in logs and tables.
func (v *validator) name(setting, got string, required bool) {
	bad := strings.IndexFunc(got, func(r rune) bool { return !nameRune(r) })
	switch {
	case got == "" && required:
		v.fault(setting, "is empty")
	case len(got) > maxNameBytes:
		v.fault(setting, "has %d characters; at most %d", len(got), maxNameBytes)
	case bad >= 0:
		r, _ := utf8.DecodeRuneInString(got[bad:])
		v.fault(setting, "has the character %q; a name has the characters a-z A-Z 0-9 . _ -", r)
	}
}

// listeners checks the four addresses, and that no two of them take the same port.
func (v *validator) listeners() {
	type listener struct {
		setting, host string
		port          uint16
	}
	type address struct{ setting, addr string }
	var all []listener
	taken := []address{
		{"native-addr", v.c.NativeAddr}, {"gossip-addr", v.c.GossipAddr},
		{"kafka-addr", v.c.KafkaAddr}, {"http-addr", v.c.HTTPAddr},
	}
	for _, l := range v.c.kafkaListeners() {
		if l.err == nil {
			taken = append(taken, address{"kafka-listener", l.listen})
		}
	}
	for _, l := range taken {
		host, port, err := splitAddr(l.addr)
		if err != nil {
			v.fault(l.setting, "%v", err)
			continue
		}
		for _, other := range all {
			same := host == other.host || wildcard(host) || wildcard(other.host)
			if port != 0 && port == other.port && same {
				v.fault(l.setting, "is %q, but port %d is already taken by %s", l.addr, port, other.setting)
			}
		}
		all = append(all, listener{l.setting, host, port})
	}
}

func (v *validator) advertise() {
	a := v.c.Advertise
	ip, err := netip.ParseAddr(strings.Trim(a, "[]"))
	switch {
	case a == "":
	case err == nil && (ip.IsUnspecified() || ip.IsMulticast()):
		v.fault("advertise", "is %s, which nobody can connect to; name an address of this machine", a)
	case err != nil && strings.ContainsAny(a, ":/ "):
		v.fault("advertise", "is %q; it is a host without a port, the ports are those of the listeners", a)
	}
}

// splitAddr takes HOST:PORT apart. The host may be empty, the port may be 0.
func splitAddr(addr string) (host string, port uint16, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("is %q; it needs the form HOST:PORT, such as 192.168.1.5:7400, [fd00::5]:7400 or :7400", addr)
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("is %q; the port is a number from 0 to 65535", addr)
	}
	if strings.ContainsAny(host, " /") {
		return "", 0, fmt.Errorf("is %q; the host is an address or a name", addr)
	}
	return host, uint16(n), nil
}

// wildcard tells that a listener on host takes connections on every address.
func wildcard(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// ClusterSecret reads the gossip key: 16, 24 or 32 bytes, nil if none is set. It is
// read each time, so that the secret lives in no other place than its file. A file
// that every user of the machine can read is refused.
func (c Config) ClusterSecret() ([]byte, error) {
	if c.ClusterSecretFile == "" {
		return nil, nil
	}
	f, err := os.Open(c.ClusterSecretFile)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	if st.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("is %s, which every user of this machine can read; chmod 600 it", c.ClusterSecretFile)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSecretFileBytes))
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != 16 && len(key) != 24 && len(key) != 32 {
		return nil, fmt.Errorf("is %s, which does not hold 16, 24 or 32 bytes in base64; `openssl rand -base64 32` makes one", c.ClusterSecretFile)
	}
	return key, nil
}
