package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"time"

	"edged/partition"
	"edged/record"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// serveHTTP serves health, metrics and profiles until the node stops.
func (n *Node) serveHTTP() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", n.livez)
	mux.HandleFunc("GET /readyz", n.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(n.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	s := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	stop := context.AfterFunc(n.ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(n.http); err != nil && !errors.Is(err, http.ErrServerClosed) && n.ctx.Err() == nil {
		n.log.Error("http", "err", err)
	}
}

// livez says whether the process works at all, by what the watchdog goes by.
func (n *Node) livez(w http.ResponseWriter, r *http.Request) {
	if err := n.Alive(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// readyz says whether clients should come here: in a cluster, registered, storage fine and with room, and a
// cluster that can decide.
func (n *Node) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := n.unready(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (n *Node) unready() error {
	if f := n.failure(); f != nil {
		return fmt.Errorf("storage failed: %w", f)
	}
	if d := n.stalled(); d > stalledAfter {
		return fmt.Errorf("the disk has not answered for %v: %w", d.Round(time.Second), record.ErrBusy)
	}
	if err := n.notReady(); err != nil {
		return err
	}
	if n.machine.Picture().Node(n.ident.Get().Node) == nil {
		return fmt.Errorf("%w: not registered with the cluster yet", record.ErrNotReady)
	}
	if n.host.Load().DiskFull() {
		return fmt.Errorf("%w: records are refused here until there is room; what is stored can be read", record.ErrDiskFull)
	}
	return n.undecided()
}

// leaderlessAfter is how long the cluster's metadata may be without a leader before the node says that it is
// not ready: an election is over by then.
const leaderlessAfter = 3 * time.Second

// undecided says why the cluster can decide nothing, as far as it is known here.
func (n *Node) undecided() error {
	if n.metadataLeader() != record.NoNode {
		return nil
	}
	since := n.started
	if last := n.history.newest(1, func(g record.GroupID) bool { return g == record.MetadataGroup }); len(last) > 0 && last[0].Leader == record.NoNode {
		since = last[0].at
	}
	if time.Since(since) < leaderlessAfter {
		return nil
	}
	return n.noLeader(record.MetadataGroup)
}

// metrics is every figure that the node exports, in one table.
type metrics struct {
	registry      *prometheus.Registry
	redirects     prometheus.Counter
	leaderChanges prometheus.Counter
}

func newMetrics(n *Node) *metrics {
	m := &metrics{
		registry:      prometheus.NewRegistry(),
		redirects:     prometheus.NewCounter(prometheus.CounterOpts{Name: "edged_redirects_total", Help: "Requests that were sent on to the leader."}),
		leaderChanges: prometheus.NewCounter(prometheus.CounterOpts{Name: "edged_leader_changes_total", Help: "Changes of leader or epoch in groups with a replica here."}),
	}
	m.registry.MustRegister(m.redirects, m.leaderChanges)
	gauge := func(name, help string, f func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f))
	}
	counter := func(name, help string, f func() float64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, f))
	}
	core := func(pick func(partition.Status) float64) func() float64 {
		return func() (v float64) {
			if h := n.host.Load(); h != nil {
				h.Inspect(func(c *partition.Core) { v = pick(c.Status()) })
			}
			return v
		}
	}
	gauge("edged_ready", "1 if clients should come here.", func() float64 {
		if n.unready() == nil {
			return 1
		}
		return 0
	})
	gauge("edged_replicas", "Groups with a replica here.", core(func(s partition.Status) float64 { return float64(s.Groups) }))
	gauge("edged_leaders", "Groups led here.", core(func(s partition.Status) float64 { return float64(s.Led) }))
	gauge("edged_leaderless", "Groups here that have no leader.", core(func(s partition.Status) float64 { return float64(s.Leaderless) }))
	gauge("edged_under_replicated", "Partitions led here that have fewer replicas in sync than they should.", func() float64 { return float64(n.underReplicatedHere()) })
	gauge("edged_awake", "Groups here that are ticked.", core(func(s partition.Status) float64 { return float64(s.Awake) }))
	gauge("edged_consumer_groups", "Consumer groups with members that this node coordinates.", func() float64 { g, _ := n.groups.counts(); return float64(g) })
	gauge("edged_consumer_group_members", "Members of those.", func() float64 { _, m := n.groups.counts(); return float64(m) })
	gauge("edged_entry_cache_bytes", "Log entries kept in memory.", core(func(s partition.Status) float64 { return float64(s.CacheBytes) }))
	gauge("edged_disk_stalled_seconds", "How long a sync of the log that takes long has been under way, 0 if none is.", func() float64 { return n.stalled().Seconds() })
	counter("edged_slow_syncs_total", "Syncs of the log that took over a second.", func() float64 { return float64(n.disk.slow.Load()) })
	n.wearMetrics(m.registry)
	gauge("edged_clock_trusted", "1 if the clock is believed: see clock-trust.", func() float64 {
		if n.clock.believed() {
			return 1
		}
		return 0
	})
	counter("edged_clock_steps_total", "Jumps of the clock of two seconds and more.", func() float64 {
		n.clock.mu.Lock()
		defer n.clock.mu.Unlock()
		return float64(n.clock.steps)
	})
	gauge("edged_disk_full", "1 while records are refused because the disk is nearly full.", func() float64 {
		if h := n.host.Load(); h != nil && h.DiskFull() {
			return 1
		}
		return 0
	})
	gauge("edged_peers_up", "Nodes that are connected.", func() float64 { return float64(len(n.up()) - 1) })
	gauge("edged_pausing_links", "Nodes whose frames are held up on their way again and again, as by Wi-Fi that saves power.", func() float64 { return float64(n.pausingLinks()) })
	counter("edged_produced_batches_total", "Batches taken.", core(func(s partition.Status) float64 { return float64(s.Stats.Produced) }))
	counter("edged_campaigns_total", "Elections stood for.", core(func(s partition.Status) float64 { return float64(s.Stats.Campaigns) }))
	counter("edged_produces_held_total", "Produces kept during an election.", core(func(s partition.Status) float64 { return float64(s.Stats.Held) }))
	counter("edged_damaged_replicas_total", "Replicas taken out of service.", core(func(s partition.Status) float64 { return float64(s.Stats.Damaged) }))
	counter("edged_dropped_frames_total", "Frames of peers that were for another life, damaged, or had no room.", core(func(s partition.Status) float64 { return float64(s.Stats.DroppedFrames) }))
	counter("edged_storage_syncs_total", "Commits with an fsync.", func() float64 { return float64(n.store.Metrics().Syncs) })
	gauge("edged_storage_disk_bytes", "Tables and write-ahead logs.", func() float64 { return float64(n.store.Metrics().DiskBytes) })
	counter("edged_storage_payload_bytes_total", "Bytes of log entries taken.", func() float64 { return float64(n.store.Metrics().PayloadBytes) })
	counter("edged_connections_total", "Connections accepted on the native port.", func() float64 { return float64(n.server.Stats().Accepted) })
	counter("edged_bad_frames_total", "Connections that broke the native protocol.", func() float64 {
		var sum int64
		for _, v := range n.wire.Metrics().BadFrames {
			sum += v
		}
		return float64(sum)
	})
	n.kafkaMetrics(m.registry)
	return m
}
