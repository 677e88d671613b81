// go-fuse does not build for 32 bits.

//go:build linux && (amd64 || arm64)

package test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"edged/internal/card"
)

// powerCuts is how often each test of this file takes the power away: $EDGED_POWER_CUTS (make power-cut,
// and a few times in .ci/run). Without it none does: it takes root and loop devices. What a killed test left
// mounted is taken out first, because a later mkfs on the same machine waits for it.
func powerCuts(t *testing.T) int {
	text := os.Getenv("EDGED_POWER_CUTS")
	if text == "" {
		t.Skip("the power is cut by `make power-cut`")
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("EDGED_POWER_CUTS=%q is no number", text)
	}
	if err := card.Available(); err != nil {
		t.Skipf("the power is NOT cut on this machine: %v", err)
	}
	if err := card.Sweep(); err != nil {
		t.Fatal(err)
	}
	return n
}

// cards is a cluster with each node's data on a card of its own.
type cards struct {
	*cluster
	of map[*node]*card.Card
	at map[*node]string
}

func startCards(t *testing.T, size int, o card.Options) *cards {
	t.Helper()
	type place struct {
		card *card.Card
		at   string
	}
	var places []place
	for range size { // made before the nodes, so that these have ended when their cards are taken out
		p := place{at: t.TempDir()}
		var err error
		if p.card, err = card.New(t.TempDir(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.card.Close(); err != nil {
				t.Error(err)
			}
		})
		if err := p.card.Mount(p.at); err != nil {
			t.Fatal(err)
		}
		o.Seed++
		places = append(places, p)
	}
	cs := &cards{cluster: newCluster(t, size), of: map[*node]*card.Card{}, at: map[*node]string{}}
	for i, n := range cs.nodes {
		n.data = filepath.Join(places[i].at, "data")
		cs.of[n], cs.at[n] = places[i].card, places[i].at
		n.launch()
	}
	for _, n := range cs.nodes {
		n.awaitPorts()
	}
	cs.awaitFormed()
	return cs
}

// cut takes the power of some nodes away at once and gives it back: the file systems are recovered.
func (cs *cards) cut(nodes ...*node) {
	cs.t.Helper()
	for _, n := range nodes {
		cs.of[n].Cut()
	}
	for _, n := range nodes {
		n.kill()
	}
	for _, n := range nodes {
		if err := cs.of[n].Unmount(); err != nil {
			cs.t.Fatal(err)
		}
		cs.of[n].Power()
		if err := cs.of[n].Mount(cs.at[n]); err != nil {
			cs.t.Fatal(err)
		}
	}
}

// awaitNoticed waits until a node has said so many times that its life before did not end cleanly.
func awaitNoticed(n *node, times int) {
	n.t.Helper()
	eventually(n.t, n.name+" says that it was cut off", func() error {
		if got := strings.Count(n.logText(), "did not end cleanly"); got != times {
			return fmt.Errorf("it was cut off %d times and speaks of %d", times, got)
		}
		return nil
	})
}

// The power of a node that is alone goes again and again in the middle of the load. It starts by itself, has
// every record that it acknowledged, once and in order, and says that it was cut off.
func TestPowerCut_aNodeAloneKeepsWhatItAcknowledged(t *testing.T) {
	cuts := powerCuts(t)
	cs := startCards(t, 1, card.Options{Size: 256 << 20, Flush: 2 * time.Millisecond, Seed: rand.Uint64()})
	n := cs.nodes[0]
	cs.createTopic("t", 4, nil)
	l := cs.startLoad("t", loadConfig{})
	for i := range cuts {
		l.awaitAcks(20 + rand.IntN(200))
		cs.cut(n)
		n.start()
		awaitNoticed(n, i+1)
	}
	l.awaitAcks(50)
	r := l.finish()
	t.Logf("%d cuts: %s", cuts, r)
	noErrors(t, r.errs)
	if r.acked == 0 {
		t.Error("there was nothing to lose")
	}
	cs.stopAndVerify()
}

// The power of one, two or all three nodes goes at the same instant, in the middle of the load. Nothing that
// was acknowledged is lost, and at the end the three hold the same.
func TestPowerCut_threeNodesAgree(t *testing.T) {
	cuts := powerCuts(t)
	cs := startCards(t, 3, card.Options{Size: 256 << 20, Flush: 2 * time.Millisecond, Seed: rand.Uint64()})
	cs.createTopic("t", 4, nil)
	l := cs.startLoad("t", loadConfig{})
	count := map[*node]int{}
	for range cuts {
		l.awaitAcks(20 + rand.IntN(200))
		victims := make([]*node, 0, 3)
		for _, i := range rand.Perm(3)[:1+rand.IntN(3)] {
			victims = append(victims, cs.nodes[i])
			count[cs.nodes[i]]++
		}
		cs.cut(victims...)
		restart(victims...)
		cs.awaitWhole("t")
	}
	l.awaitAcks(50)
	r := l.finish()
	t.Logf("%d cuts: %s", cuts, r)
	noErrors(t, r.errs)
	for _, n := range cs.nodes {
		awaitNoticed(n, count[n])
	}
	cs.stopAndCompare()
}

// One card of three lies for a while about what it has written, and its power goes, again and again. What was
// acknowledged is on the other two, so nothing is lost; the node with that card finds out, says so, and fetches
// what it has lost anew from the others, by itself.
func TestPowerCut_aCardThatLiesIsFoundOutAndCostsNothing(t *testing.T) {
	cuts := min(powerCuts(t), lyingCuts)
	cs := startCards(t, 3, card.Options{Size: 256 << 20, Seed: rand.Uint64()})
	cs.createTopic("t", 4, nil)
	l := cs.startLoad("t", loadConfig{})
	l.awaitAcks(100)
	for range cuts {
		liar, _ := cs.leader("t", 0)
		cs.of[liar].Lie(true)
		l.awaitAcks(300)
		cs.cut(liar)
		cs.of[liar].Lie(false)
		l.awaitAcks(50) // somebody else leads
		liar.start()
		l.awaitAcks(50)
		cs.awaitWhole("t")
	}
	said := 0
	for _, n := range cs.nodes {
		said += strings.Count(n.logText(), "here is damaged and out of service: this card loses writes")
	}
	if said < cuts {
		t.Errorf("of %d cuts the nodes told of %d replicas that had lost something", cuts, said)
	}
	r := l.finish()
	t.Logf("%d cuts: %s", cuts, r)
	noErrors(t, r.errs)
	cs.stopAndCompare()
}

// lyingCuts is how often at most the power of a card that lies goes: of the node that leads then, which has lost all
// that it did since its card began to lie.
const lyingCuts = 5

// Cards that take 15 ms for a flush, and now and then one of them 2 to 7 s. Two of three are enough to go on: nobody
// waits long, each stall costs at most one change of leader for each partition, and there is no storm of elections.
func TestSlowCard_stallsCostNoElectionStorm(t *testing.T) {
	stalls := min(powerCuts(t), 20)
	cs := startCards(t, 3, card.Options{Size: 256 << 20, Flush: 15 * time.Millisecond, Seed: rand.Uint64()})
	cs.createTopic("t", 4, nil)
	l := cs.startLoad("t", loadConfig{})
	l.awaitAcks(200)
	for i := range stalls {
		// Those that lead have their turn as well as the others.
		n, took := cs.nodes[i%len(cs.nodes)], time.Duration(2000+rand.IntN(5000))*time.Millisecond
		before := strings.Count(n.logText(), "a sync of the log took")
		cs.of[n].Stall(took)
		eventually(t, fmt.Sprintf("%s says that it waited %v", n.name, took), func() error {
			if strings.Count(n.logText(), "a sync of the log took") == before {
				return errors.New("it does not")
			}
			return nil
		})
		l.awaitAcks(200)
	}
	cs.awaitWhole("t")
	r := l.finish()
	epochs := map[int32]int32{}
	for _, s := range l.mu.sighted {
		epochs[s.partition] = max(epochs[s.partition], s.epoch)
	}
	paused := 0
	for _, n := range cs.nodes {
		paused += strings.Count(n.logText(), "pauses again and again")
	}
	t.Logf("%d stalls: %s; longest gap of a partition %v, epochs %v; %d links were held to pause", stalls, r, r.longestGap().Round(time.Millisecond), epochs, paused)
	noErrors(t, r.errs)
	if gap := r.longestGap(); gap > slowCardGap {
		t.Errorf("for %v a partition had no acknowledgement", gap)
	}
	for p, epoch := range epochs {
		if most := int32(2 + 2*stalls); epoch > most { // given away, and back to the preferred node
			t.Errorf("partition %d is in epoch %d after %d stalls, at most %d were to be", p, epoch, stalls, most)
		}
	}
	cs.stopAndCompare()
}

// slowCardGap is the longest that a partition may stand still for one card of three: no stall may be
// waited for.
const slowCardGap = 1500 * time.Millisecond

// noErrors says how often each error was answered: the power comes back in time for every record to be delivered.
func noErrors(t *testing.T, errs []error) {
	t.Helper()
	count := map[string]int{}
	for _, err := range errs {
		count[err.Error()]++
	}
	for text, n := range count {
		t.Errorf("%d records were not acknowledged: %.300s", n, text)
	}
}
