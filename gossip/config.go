package gossip

import (
	"fmt"
	"log"
	"log/slog"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// Limits bounds what others can make us hold. The zero value of a field means its default.
type Limits struct {
	Members int // names of nodes, each life of a node counted; default 256
	Groups  int // in the table of leaders; default 16384, 1 MiB
}

// Config is what Start needs.
type Config struct {
	Meta        Meta
	ClusterName string // nodes with another one are not heard; 1 to 64 bytes
	Key         []byte // of 16, 24 or 32 bytes; nil: no encryption
	BindAddr    string // host:port for TCP and UDP; not used if Transport is set
	// AdvertiseHost is the address or name under which others reach us, resolved once; Move changes it.
	// Empty: the host of BindAddr, which must then be one address.
	AdvertiseHost string
	Join          []string // host:port of nodes to look for, for ever; names are resolved anew each time
	// SavedFile and Save, if set, remember addresses over a restart. SavedFile is asked before
	// each round and may add addresses from elsewhere; Save is called only when the list has
	// changed. Neither is called by two goroutines at once. At most maxSaved addresses count.
	SavedFile func() ([]string, error)
	Save      func([]string) error
	Transport memberlist.Transport // sockets on BindAddr if nil
	Logger    *slog.Logger         // slog.Default if nil
	Limits    Limits
}

// Timing for a LAN with Wi-Fi on it, where an answer may take hundreds of milliseconds. Nothing
// here makes an election faster or slower.
const (
	probeInterval     = 2 * time.Second
	probeTimeout      = time.Second
	suspicionMult     = 5
	suspicionMaxMult  = 6
	gossipInterval    = 500 * time.Millisecond
	gossipNodes       = 3
	pushPullInterval  = 30 * time.Second
	gossipToTheDead   = time.Minute
	streamTimeout     = 5 * time.Second
	retransmitMult    = 4
	deadNodeReclaim   = 10 * time.Second
	maxClusterName    = 64
	forgetMembersOver = 2 * gossipToTheDead // dead names, when there is need of room
)

func (c *Config) validate() error {
	if err := c.Meta.validate(); err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	if n := len(c.ClusterName); n == 0 || n > maxClusterName {
		return fmt.Errorf("gossip: a cluster name has 1 to %d bytes, not %d", maxClusterName, n)
	}
	switch len(c.Key) {
	case 0, 16, 24, 32:
	default:
		return fmt.Errorf("gossip: a key has 16, 24 or 32 bytes, not %d", len(c.Key))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Limits.Members == 0 {
		c.Limits.Members = 256
	}
	if c.Limits.Groups == 0 {
		c.Limits.Groups = 16384
	}
	return nil
}

// memberlist gives the library's settings. ip is empty or the address to advertise.
func (c *Config) memberlist(t memberlist.Transport, d delegate, ip string) *memberlist.Config {
	mc := memberlist.DefaultLANConfig()
	mc.Name = d.members.self().memberName()
	mc.Transport = t
	mc.Label = c.ClusterName
	mc.SecretKey = c.Key
	mc.AdvertiseAddr = ip
	mc.Delegate, mc.Events, mc.Alive, mc.Conflict = d, d, d, d
	mc.Logger = log.New(libraryLog{c.Logger, &d.members.knocks, d.members.refuse}, "", 0)
	mc.ProbeInterval, mc.ProbeTimeout = probeInterval, probeTimeout
	mc.SuspicionMult, mc.SuspicionMaxTimeoutMult = suspicionMult, suspicionMaxMult
	mc.GossipInterval, mc.GossipNodes = gossipInterval, gossipNodes
	mc.PushPullInterval = pushPullInterval
	mc.GossipToTheDeadTime = gossipToTheDead
	mc.TCPTimeout = streamTimeout
	mc.RetransmitMult = retransmitMult
	mc.DeadNodeReclaimTime = deadNodeReclaim
	mc.EnableCompression = false // costs more than it saves at our sizes
	return mc
}

// libraryLog brings memberlist's lines into ours, for who asks for details: what it calls an error
// is daily life on a LAN, and what matters of it we log ourselves.
type libraryLog struct {
	to     *slog.Logger
	knocks *knocks
	refuse func(why string)
}

func (l libraryLog) Write(b []byte) (int, error) {
	line := strings.TrimSpace(string(b))
	if !strings.HasPrefix(line, "[DEBUG] ") {
		l.to.Debug(line)
	}
	if host, text := knock(line); text != "" && l.knocks.due(host, text) {
		l.refuse(host + ": " + text)
		l.to.Warn("gossip: "+text, "from", host)
	}
	return len(b), nil
}
