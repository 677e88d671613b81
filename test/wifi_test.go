//go:build linux

package test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// radio carries packets between machines as Wi-Fi does: late, in bursts, in order, and now and then not at
// all. Each machine has a TUN device, and one goroutine of the test per device passes on what is written to it.
type radio struct {
	t       *testing.T
	oneWay  atomic.Pointer[func() time.Duration]
	loss    float64
	mu      sync.Mutex
	devices map[netip.Addr]*os.File
	queues  map[[2]netip.Addr]chan parcel
	running sync.WaitGroup
	done    chan struct{}
}

// parcel is a packet on its way.
type parcel struct {
	due time.Time
	b   []byte
}

// changesToLearn is how many changes of leader in three partitions it may cost until the nodes know the radios.
const changesToLearn = 9

// The longest queue between two machines, in packets; what comes above is lost, as on a real radio.
const radioQueue = 2000

// plugIn gives a node a device with an address; a nil node is the test itself.
func (r *radio) plugIn(n *node, ip string) {
	r.t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		r.t.Skipf("NOT TESTED here: no TUN devices: %v", err)
	}
	name := fmt.Sprintf("w%d", len(r.devices))
	req, err := unix.NewIfreq(name)
	if err != nil {
		r.t.Fatal(err)
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		r.t.Fatal(err)
	}
	in := []string{"ip"}
	if n != nil {
		n.prefix = []string{"ip", "netns", "exec", n.name}
		run(r.t, "ip", "netns", "add", n.name)
		run(r.t, "ip", "link", "set", name, "netns", n.name)
		in = []string{"ip", "-n", n.name}
		run(r.t, append(in, "link", "set", "lo", "up")...)
	}
	run(r.t, append(in, "addr", "add", ip+"/24", "dev", name)...)
	run(r.t, append(in, "link", "set", name, "up", "mtu", "1400")...)
	dev := os.NewFile(uintptr(fd), name)
	r.mu.Lock()
	r.devices[netip.MustParseAddr(ip)] = dev
	r.mu.Unlock()
	r.running.Go(func() { r.listen(dev) })
}

// listen takes what one machine sends.
func (r *radio) listen(dev *os.File) {
	buf := make([]byte, 2000)
	for {
		n, err := dev.Read(buf)
		if err != nil {
			return // closed at the end
		}
		if n < 20 || buf[0]>>4 != 4 || rand.Float64() < r.loss {
			continue
		}
		from, to := netip.AddrFrom4([4]byte(buf[12:16])), netip.AddrFrom4([4]byte(buf[16:20]))
		select {
		case r.queue(from, to) <- parcel{time.Now().Add((*r.oneWay.Load())()), append([]byte(nil), buf[:n]...)}:
		default:
		}
	}
}

// queue is the way between two machines. What is behind a late packet is late too, so they arrive in order.
func (r *radio) queue(from, to netip.Addr) chan parcel {
	r.mu.Lock()
	defer r.mu.Unlock()
	way := [2]netip.Addr{from, to}
	if q := r.queues[way]; q != nil {
		return q
	}
	q := make(chan parcel, radioQueue)
	r.queues[way] = q
	dev := r.devices[to]
	r.running.Go(func() {
		for {
			select {
			case p := <-q:
				if dev == nil {
					continue
				}
				time.Sleep(time.Until(p.due))
				_, _ = dev.Write(p.b) // a machine that is not there hears nothing
			case <-r.done:
				return
			}
		}
	})
	return q
}

func (r *radio) off() {
	close(r.done)
	for _, d := range r.devices {
		_ = d.Close() // ends its reader
	}
	r.running.Wait()
}

// percentiles gives durations of which the tenths, and the last hundredth, are as listed.
func percentiles(p10, p50, p90, p99, most time.Duration) func() time.Duration {
	return func() time.Duration {
		between := func(a, b time.Duration) time.Duration { return a + rand.N(b-a) }
		switch x := rand.Float64(); {
		case x < 0.5:
			return between(p10, p50)
		case x < 0.9:
			return between(p50, p90)
		case x < 0.99:
			return between(p90, p99)
		}
		return between(p99, most)
	}
}

// Three boards on Wi-Fi: nobody loses leadership because of the delays and losses that are its daily life. While
// the radios save power, which a stock Pi OS lets them, frames come later than a leader of a LAN may be silent: the
// nodes learn that, say so, and leaders stay. It costs no record. The figures are those of a Pi Zero W over a day.
func TestWifi_leadersStay(t *testing.T) {
	if !long {
		t.Skip("NOT TESTED here: minutes on a machine that has nothing else to do (EDGED_TEST_LONG=1)")
	}
	if !inOwnNamespaces(t) {
		return
	}
	const ms = time.Millisecond
	awake := percentiles(1*ms, 3*ms, 6*ms, 15*ms, 65*ms)
	saving := percentiles(5*ms, 60*ms, 250*ms, 700*ms, 1400*ms)
	run(t, "mount", "-t", "tmpfs", "none", "/run")
	run(t, "mkdir", "/run/netns")
	r := &radio{t: t, loss: 0.02, devices: map[netip.Addr]*os.File{}, queues: map[[2]netip.Addr]chan parcel{}, done: make(chan struct{})}
	r.oneWay.Store(&awake)
	t.Cleanup(r.off)
	r.plugIn(nil, "10.78.0.1")
	c := &cluster{t: t}
	for i := range 3 {
		n := newNode(t, fmt.Sprintf("n%d", i+1), "--bootstrap-expect", "3", "--join", "10.78.0.11:7946", "--join", "10.78.0.12:7946")
		n.ip = fmt.Sprintf("10.78.0.%d", 11+i)
		n.addr = addresses{Native: n.ip + ":7400", Gossip: n.ip + ":7946", Kafka: n.ip + ":9092", HTTP: n.ip + ":7480"}
		r.plugIn(n, n.ip)
		c.nodes = append(c.nodes, n)
	}
	for _, n := range c.nodes {
		n.start()
	}
	c.awaitFormed()
	c.createTopic("t", 3, nil)
	pass(t, 10*time.Second) // what is still being arranged after the start
	epochs := func() (sum int) {
		for p := range int32(3) {
			_, st := c.leader("t", p)
			sum += int(st.epoch)
		}
		return sum
	}
	before := epochs()
	l := c.startLoad("t", loadConfig{rate: 30, timeout: 4 * patience})
	pass(t, 90*time.Second)
	changes := epochs() - before
	t.Logf("awake: %d changes of leader in 90 s", changes)
	if changes > 0 {
		t.Errorf("%d changes of leader", changes)
	}
	r.oneWay.Store(&saving)
	pass(t, 60*time.Second)
	r.oneWay.Store(&awake)
	c.awaitWhole("t")
	saved := epochs() - before - changes
	t.Logf("saving power: %d changes of leader in 60 s", saved)
	if saved > changesToLearn {
		t.Errorf("saving power: %d changes of leader in 60 s", saved)
	}
	told := 0
	for _, n := range c.nodes {
		told += strings.Count(n.logText(), "pauses again and again")
	}
	if told == 0 {
		t.Error("nobody says that links pause")
	}
	l.awaitAcks(100)
	res := l.finish()
	t.Logf("%v; longest gap %v", res, res.longestGap())
	if len(res.errs) > 0 {
		t.Errorf("%d records failed, the first: %v", len(res.errs), res.errs[0])
	}
}
