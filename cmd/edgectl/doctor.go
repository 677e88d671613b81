package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"edged/client"
	"edged/record"
	"edged/transport/wire"

	"github.com/urfave/cli/v2"
)

// Verdicts of a check, from good to bad.
const (
	verdictOK      = "ok"
	verdictWarning = "warning"
	verdictFailure = "failure"
)

// finding is what one check found.
type finding struct {
	Check   string `json:"check"`
	Where   string `json:"where"` // a node, or the machine that edgectl runs on
	Verdict string `json:"verdict"`
	Text    string `json:"text"`
	Do      string `json:"do"` // what to do, if it is not ok
}

// findings collects them in order.
type findings struct{ all []finding }

func (f *findings) add(check, where, verdict, text, do string) {
	if verdict == verdictOK {
		do = ""
	}
	f.all = append(f.all, finding{check, where, verdict, text, do})
}

// errUnwell ends a doctor that found a failure; what it is has been printed.
var errUnwell = fmt.Errorf("something has to be done, see above")

func doctorCommand() *cli.Command {
	return leaf("doctor", "", "look for what is wrong or will be: this machine, its disk, every node and the network between them", []cli.Flag{
		&cli.StringFlag{Name: "data-dir", Value: "/var/lib/edged", Usage: "`DIR` of a node on this machine, whose disk is looked at"},
		&cli.StringFlag{Name: "config", Value: "/etc/edged/edged.toml", Usage: "`FILE` with the settings of a node on this machine"},
		&cli.BoolFlag{Name: "local", Usage: "look at this machine only", DisableDefaultText: true},
	}, runDoctor)
}

func runDoctor(c *cli.Context) error {
	f := &findings{}
	m := machine{root: "/"}
	m.look(f)
	lookAtDisk(f, m, c.String("data-dir"), c.IsSet("data-dir"))
	lookAtConfig(c.Context, f, c.String("config"), c.IsSet("config"))
	if !c.Bool("local") {
		if err := withClient(c, func(cl *client.Client) error { return lookAtCluster(c, f, cl.Admin()) }); err != nil {
			return err
		}
	}
	if err := f.print(c.App.Writer, c.Bool("json")); err != nil {
		return err
	}
	if slices.ContainsFunc(f.all, func(x finding) bool { return x.Verdict == verdictFailure }) {
		return errUnwell
	}
	return nil
}

func (f *findings) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, struct {
			Checks []finding `json:"checks"`
		}{f.all})
	}
	t := newTable("VERDICT", "CHECK", "WHERE", "FOUND")
	for _, x := range f.all {
		t.row(x.Verdict, x.Check, x.Where, x.Text)
		if x.Do != "" {
			t.row("", "", "", "→ "+x.Do)
		}
	}
	return t.print(w)
}

// lookAtConfig lets edged judge its settings.
func lookAtConfig(ctx context.Context, f *findings, file string, asked bool) {
	if _, err := os.Stat(file); err != nil {
		if asked {
			f.add("config", here, verdictFailure, err.Error(), "name the file with --config")
		}
		return
	}
	program, err := edgedProgram()
	if err != nil {
		f.add("config", here, verdictWarning, "edged is not installed beside edgectl, so "+file+" was not checked", "run `edged config validate --config "+file+"`")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "config", "validate", "--config", file).CombinedOutput()
	text := strings.Join(strings.Split(strings.TrimSpace(string(out)), "\n"), "; ")
	if err != nil {
		f.add("config", here, verdictFailure, text, "correct "+file+"; `edged config validate --config "+file+"` lists every fault")
		return
	}
	f.add("config", here, verdictOK, text, "")
}

// edgedProgram is the edged beside this program, or the one in the path.
func edgedProgram() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "edged")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	return exec.LookPath("edged")
}

// lookAtCluster asks every node for its insides and lets it try the network.
func lookAtCluster(c *cli.Context, f *findings, cl client.Admin) error {
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	md, err := cl.Metadata(ctx, []string{})
	if err != nil {
		f.add("node", strings.Join(nodes(c), ","), verdictFailure, oneLine(err), "start edged, or name a node that runs with --node; with --local only this machine is looked at")
		return nil
	}
	seen := make([]nodeView, len(md.Nodes))
	var wg sync.WaitGroup
	for i, n := range md.Nodes {
		wg.Go(func() {
			v := &seen[i]
			v.node = n
			if v.desc, v.err = cl.DescribeNode(ctx, n.ID); v.err == nil {
				v.reach, v.err = cl.Network(ctx, n.ID)
			}
		})
	}
	wg.Wait()
	down := downNodes(seen)
	for i := range seen {
		seen[i].judge(f, md.Nodes, down)
	}
	judgeIdentities(f, md.Nodes)
	judgeCluster(f, md, seen)
	if st, err := cl.Status(ctx); err == nil {
		judgePartitions(f, st)
	}
	return nil
}

// judgePartitions looks whether all can be read and written, and survive a node.
func judgePartitions(f *findings, st wire.Status) {
	switch all := countText(int(st.Partitions), "partition"); {
	case st.Leaderless > 0:
		f.add("partitions", "cluster", verdictFailure, fmt.Sprintf("%d of %s have no leader: nothing can be read from them or written to them", st.Leaderless, all),
			"start the nodes that are away; `edgectl consume TOPIC` says what a partition waits for")
	case st.UnderReplicated > 0:
		f.add("partitions", "cluster", verdictWarning, fmt.Sprintf("%d of %s have fewer replicas in sync than they should", st.UnderReplicated, all),
			"start the nodes that are away, or wait until the others have caught up; `edgectl topic describe TOPIC` says which")
	case st.Partitions > 0:
		f.add("partitions", "cluster", verdictOK, all+", each with a leader and all its replicas in sync", "")
	}
}

// nodeView is what one node says.
type nodeView struct {
	node  wire.Node
	desc  wire.NodeDescription
	reach []wire.Reach
	err   error
}

func nodeName(n wire.Node) string { return strings.TrimSpace(fmt.Sprintf("%d %s", n.ID, n.Name)) }

// downNodes are those that nobody can ask and no other node reaches in any way, each with whether its machine
// answers all the same. A way that is shut is another matter: the node is reached by another one.
func downNodes(seen []nodeView) map[record.NodeID]bool {
	refused, reached := map[record.NodeID]bool{}, map[record.NodeID]bool{}
	for _, v := range seen {
		for _, r := range v.reach {
			reached[r.Node] = reached[r.Node] || r.Up
			refused[r.Node] = refused[r.Node] || strings.Contains(r.Problem, "connection refused")
		}
	}
	down := map[record.NodeID]bool{}
	for _, v := range seen {
		if v.err != nil && !v.node.Alive && !reached[v.node.ID] {
			down[v.node.ID] = refused[v.node.ID]
		}
	}
	return down
}

// downText says of a node that is down since when, and what to do.
func downText(n wire.Node, machineAnswers bool, now time.Time) (text, do string) {
	text = "it is down"
	if n.AwayMs > 0 {
		away := time.Duration(n.AwayMs) * time.Millisecond
		text += " since " + now.Add(-away).Format(time.DateTime) + " (" + ageText(away) + ")"
	}
	text += ": no other node reaches it in any way"
	do = "start its machine, or see to its network"
	if machineAnswers {
		text += ", and its machine refuses connections"
		do = "start edged there (systemctl start edged; its log says why it ended)"
	}
	return text, do + "; if it is gone for good, `edgectl node remove " + n.ID.String() + "`"
}

func (v *nodeView) judge(f *findings, all []wire.Node, down map[record.NodeID]bool) {
	where := nodeName(v.node)
	if answers, is := down[v.node.ID]; is {
		text, do := downText(v.node, answers, time.Now())
		f.add("node", where, verdictFailure, text, do)
		return
	}
	if v.err != nil {
		f.add("node", where, verdictFailure, "it does not answer: "+oneLine(v.err), "see its log; if it is gone for good, `edgectl node remove "+v.node.ID.String()+"`")
		return
	}
	for _, p := range v.desc.Problems {
		f.add("node", where, verdictFailure, p, "see `edgectl events "+v.node.ID.String()+"` and the log of the node")
	}
	v.judgeDevice(f, where)
	names := map[record.NodeID]string{}
	for _, n := range all {
		names[n.ID] = nodeName(n)
	}
	for _, p := range v.desc.Peers {
		if pause := time.Duration(p.PauseMs) * time.Millisecond; pause > 0 {
			f.add("network", where, verdictWarning, fmt.Sprintf("the link from %s pauses for up to %v, again and again", names[p.ID], pause),
				"on Wi-Fi switch power saving off on both: iw dev wlan0 set power_save off")
		}
	}
	bad, ways := 0, 0
	for _, r := range v.reach {
		if _, is := down[r.Node]; is {
			continue // said once, of that node
		}
		ways++
		to := names[r.Node]
		switch skew := time.Duration(r.SkewMs) * time.Millisecond; {
		case !r.Up:
			bad++
			f.add("network", where, verdictFailure, fmt.Sprintf("cannot reach %s by %s at %s: %s", to, r.Protocol, r.Addr, r.Problem),
				"open the port, or correct the address that "+to+" advertises (advertise, kafka-advertise)")
		case r.RTTMicros > time.Second.Microseconds():
			f.add("network", where, verdictWarning, fmt.Sprintf("%s answers by %s after %v", to, r.Protocol, time.Duration(r.RTTMicros)*time.Microsecond),
				"on Wi-Fi switch power saving off: iw dev wlan0 set power_save off")
		case r.Protocol == "native" && skew.Abs() > time.Second:
			verdict := verdictWarning
			if skew.Abs() > time.Minute {
				verdict = verdictFailure
			}
			f.add("skew", where, verdict, fmt.Sprintf("the clock of %s differs by %v", to, skew), "let one of the nodes serve time to the others (chrony), or connect them to a time server")
		}
	}
	if bad == 0 && ways > 0 {
		f.add("network", where, verdictOK, "reaches every other node that is up by every protocol, "+countText(ways, "way"), "")
	}
}

// judgeDevice judges what a node says of its machine.
func (v *nodeView) judgeDevice(f *findings, where string) {
	d := v.desc.Device
	if d.MemoryBudget == 0 {
		return // an older node
	}
	verdict := verdictOK
	if d.MemoryUsed > d.MemoryBudget+d.MemoryBudget/4 {
		verdict = verdictWarning
	}
	f.add("memory", where, verdict, fmt.Sprintf("%s of a budget of %s (%s)", bytesText(d.MemoryUsed), bytesText(d.MemoryBudget), d.MemoryFrom), "raise memory-limit, or have fewer partitions on the node")
	switch low := d.DiskTotal > 0 && v.desc.DiskFree < d.DiskTotal/10; {
	case d.DiskLow:
		f.add("disk", where, verdictFailure, "no records are taken: "+bytesText(v.desc.DiskFree)+" free", "free space, lower the retention of topics, or set retention-percent")
	case d.DiskStalledMs > 0:
		f.add("disk", where, verdictFailure, fmt.Sprintf("it has not answered for %v", time.Duration(d.DiskStalledMs)*time.Millisecond), "replace the card if this comes again")
	case low:
		f.add("disk", where, verdictWarning, bytesText(v.desc.DiskFree)+" of "+bytesText(d.DiskTotal)+" free", "lower the retention of topics, or set retention-percent")
	default:
		f.add("disk", where, verdictOK, bytesText(v.desc.DiskFree)+" of "+bytesText(d.DiskTotal)+" free", "")
	}
	verdict = verdictOK
	if d.WearDays >= 0 && d.WearDays < 365 {
		verdict = verdictWarning
	}
	f.add("wear", where, verdict, wearText(d), "write less (larger batches), or use a card that is made for more")
	verdict = verdictOK
	if !d.ClockTrusted {
		verdict = verdictWarning
	}
	f.add("clock", where, verdict, d.Clock, "connect the node to a time server (timedatectl set-ntp true); "+orTrust)
}

// judgeIdentities looks for nodes that get into each other's way.
func judgeIdentities(f *findings, all []wire.Node) {
	byName, byAddr := map[string]wire.Node{}, map[string]wire.Node{}
	clean := true
	for _, n := range all {
		if other, ok := byAddr[n.Native]; ok && n.Native != "" {
			clean = false
			f.add("identity", nodeName(n), verdictFailure, "it has the address of "+nodeName(other)+": "+n.Native, "set advertise on one of them; a node whose card was replaced is removed with `edgectl node remove`")
		}
		if other, ok := byName[n.Name]; ok && n.Name != "" {
			clean = false
			f.add("identity", nodeName(n), verdictWarning, "it has the name of "+nodeName(other), "give it another node-name, or remove the one that it took the place of")
		}
		byName[n.Name], byAddr[n.Native] = n, n
	}
	if clean {
		f.add("identity", "cluster", verdictOK, countText(len(all), "node")+", each with a name and an address of its own", "")
	}
}

// judgeCluster looks at what concerns all nodes.
func judgeCluster(f *findings, md wire.Metadata, seen []nodeView) {
	versions := map[string]bool{}
	for i := range seen {
		if seen[i].err == nil {
			versions[seen[i].node.Version] = true
		}
	}
	if len(versions) > 1 {
		f.add("version", "cluster", verdictWarning, fmt.Sprintf("%d versions are running", len(versions)), "bring all nodes to one version")
	}
	switch n := len(md.Nodes); {
	case md.MetadataLeader == record.NoNode:
		f.add("quorum", "cluster", verdictFailure, "the metadata has no leader: nothing can be created or moved", "start the nodes that are away; most of them have to be there")
	case n == 1:
		f.add("quorum", "cluster", verdictOK, "one node: if its card fails, all is lost", "")
	case n == 2:
		f.add("quorum", "cluster", verdictWarning, "with two nodes none may fail", "add a third node")
	default:
		f.add("quorum", "cluster", verdictOK, fmt.Sprintf("node %d leads the metadata of %d nodes", md.MetadataLeader, n), "")
	}
}
