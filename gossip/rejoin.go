package gossip

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	firstPause   = 200 * time.Millisecond // between the first looks for others
	pauseGrowth  = 1.25                   // of the pause after each look that found somebody missing
	longestAlone = 10 * time.Second       // pause while we know nobody alive
	longestPause = 30 * time.Second       // pause otherwise
	newsPause    = time.Second            // to which a change of members shortens the pause
	joinsAtOnce  = 8                      // addresses dialed in one round
	maxSaved     = 64                     // addresses remembered
	resolveTime  = 5 * time.Second        // for the names of one round
)

// rejoin looks, for ever, for addresses that should be members and are not. memberlist alone
// forgets a dead member after gossipToTheDead, so the two halves of a partition that lasts longer
// would never meet again.
func (g *Gossip) rejoin() {
	pause := firstPause
	var seen []Member
	var saved []string
	for first := true; ; first = false {
		missing := g.joinMissing()
		if first {
			close(g.looked)
		}
		seen = g.logChanges(seen)
		saved = g.save(saved)
		longest := longestPause
		if g.members.count() <= 1 {
			longest = longestAlone
		}
		if !missing {
			pause = longestPause
		}
		pause = min(pause, longest)
		woken, ok := g.rest(pause + rand.N(pause/8+1))
		if !ok {
			return
		}
		if pause = time.Duration(float64(pause) * pauseGrowth); woken {
			pause = min(pause, newsPause)
		}
	}
}

// rest waits for a pause to end. A change of members ends it, but not before newsPause: they
// come in groups.
func (g *Gossip) rest(pause time.Duration) (woken, ok bool) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	wake := g.wake
	for {
		select {
		case <-timer.C:
			return woken, true
		case <-wake:
			woken, wake = true, nil
			if pause > newsPause {
				timer.Reset(newsPause)
			}
		case <-g.ctx.Done():
			return woken, false
		}
	}
}

// target is an address to look at, and the entry of Config.Join that led to it, if one did.
type target struct{ addr, join string }

// joinMissing dials some of the addresses that are no live member, and tells whether there were any.
func (g *Gossip) joinMissing() bool {
	missing := g.missing()
	rand.Shuffle(len(missing), func(i, j int) { missing[i], missing[j] = missing[j], missing[i] })
	var wg sync.WaitGroup
	for _, t := range missing[:min(len(missing), joinsAtOnce)] {
		wg.Go(func() {
			_, err := g.at.Load().list.Join([]string{t.addr})
			if err != nil {
				g.log.Debug("gossip: nobody there", "addr", t.addr, "err", err)
			}
			g.noteJoin(t, err)
		})
	}
	wg.Wait()
	return len(missing) > 0
}

func (g *Gossip) noteJoin(t target, err error) {
	switch {
	case t.join == "" || g.ctx.Err() != nil: // what fails at the end says nothing
	case err == nil:
		g.troubles.set(t.join, "")
	case t.join != t.addr:
		g.troubles.set(t.join, "("+t.addr+") "+joinTrouble(err))
	default:
		g.troubles.set(t.join, joinTrouble(err))
	}
}

// missing gives the addresses we know of, resolved, without our own and those of live members.
func (g *Gossip) missing() []target {
	members := g.members.list()
	skip := map[string]bool{g.Addr(): true}
	known := slices.Concat(g.cfg.Join, g.readSaved())
	for _, m := range members {
		if m.Alive || m.Node == g.cfg.Meta.Node {
			skip[m.Addr] = true
		} else {
			known = append(known, m.Addr)
		}
	}
	ctx, cancel := context.WithTimeout(g.ctx, resolveTime)
	defer cancel()
	var out []target
	for i, addr := range known {
		join := ""
		if i < len(g.cfg.Join) {
			join = addr
		}
		resolved, err := resolve(ctx, addr)
		if err != nil && join != "" && g.ctx.Err() == nil {
			g.troubles.set(join, nameTrouble(err))
		}
		if join != "" && slices.ContainsFunc(resolved, func(a string) bool { return skip[a] }) {
			g.troubles.set(join, "") // it leads to somebody, be it to one address of several
			join = ""
		}
		for _, a := range resolved {
			if !skip[a] {
				skip[a] = true
				out = append(out, target{a, join})
			}
		}
	}
	return out
}

// resolve gives the addresses behind host:port; none if the name is not known right now.
func resolve(ctx context.Context, addr string) ([]string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); ip != nil {
		return []string{net.JoinHostPort(ip.String(), port)}, nil
	}
	ips, err := net.DefaultResolver.LookupIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, ip := range ips {
		out = append(out, net.JoinHostPort(ip.String(), port))
	}
	return out, nil
}

func (g *Gossip) readSaved() []string {
	if g.cfg.SavedFile == nil {
		return nil
	}
	saved, err := g.cfg.SavedFile()
	if err != nil {
		g.log.Debug("gossip: the saved addresses cannot be read", "err", err)
	}
	return saved[:min(len(saved), maxSaved)]
}

// save hands the addresses of members to Save if they differ from before: those alive first, then
// those that were, then what was saved before, so that a node that is away for weeks is found.
func (g *Gossip) save(before []string) []string {
	if g.cfg.Save == nil {
		return before
	}
	var alive, dead []string
	for _, m := range g.members.list() {
		switch {
		case m.Node == g.cfg.Meta.Node:
		case m.Alive:
			alive = append(alive, m.Addr)
		default:
			dead = append(dead, m.Addr)
		}
	}
	var now []string
	for _, addr := range slices.Concat(alive, dead, g.readSaved()) {
		if len(now) < maxSaved && !slices.Contains(now, addr) {
			now = append(now, addr)
		}
	}
	slices.Sort(now)
	if slices.Equal(now, before) {
		return before
	}
	if err := g.cfg.Save(now); err != nil {
		g.log.Warn("gossip: the addresses of members cannot be saved", "err", err)
		return before
	}
	return now
}

// logChanges logs who has come and gone since the last round.
func (g *Gossip) logChanges(before []Member) []Member {
	now := g.members.list()
	for _, m := range now {
		i := slices.IndexFunc(before, func(b Member) bool { return b.Node == m.Node })
		switch {
		case m.Node == g.cfg.Meta.Node:
		case i < 0 && m.Alive, i >= 0 && m.Alive && (!before[i].Alive || before[i].BootCounter != m.BootCounter):
			g.log.Info("gossip: node found", "node", m.Node, "name", m.Name, "addr", m.Addr, "state", m.State)
		case i >= 0 && before[i].Alive && !m.Alive:
			g.log.Info("gossip: node lost", "node", m.Node, "name", m.Name, "addr", m.Addr)
		}
	}
	return now
}
