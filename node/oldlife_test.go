package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"edged/metadata"
	"edged/partition"
	"edged/transport/peer"
)

// keepIdentity gives a function that makes the node's count of starts what it is now, as a card does that loses
// what it had confirmed.
func keepIdentity(t *testing.T, dir string) (restore func()) {
	t.Helper()
	kept := map[string][]byte{}
	for _, name := range []string{"identity", "identity.copy"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		kept[filepath.Join(dir, name)] = b
	}
	return func() {
		for path, b := range kept {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A node that is alone and whose card lost the count of its starts counts on from what its log knows: nobody else
// can have relied on what it forgot. It says what its card did.
func TestOldLife_aloneGoesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := startNodeIn(t, dir, 0)
	awaitReady(t, n)
	n.stop()
	lose := keepIdentity(t, dir)
	n = startNodeIn(t, dir, 0)
	awaitReady(t, n)
	await(t, "the start is registered", func() bool { return n.machine.Picture().Node(n.ident.Get().Node).BootCounter == 2 })
	n.stop()
	lose()
	n = startNodeIn(t, dir, 0)
	err := <-n.done
	n.done <- err
	var ce *ConfigError
	if !errors.Is(err, partition.ErrLostWrites) || errors.As(err, &ce) {
		t.Fatalf("it ended with %v (%T)", err, err)
	}
	n = startNodeIn(t, dir, 0)
	awaitReady(t, n)
	await(t, "the start is registered", func() bool { return n.machine.Picture().Node(n.ident.Get().Node).BootCounter == 3 })
	if found, _ := n.notes.after(0); !strings.Contains(texts(found), partition.ErrLostWrites.Error()) {
		t.Errorf("its events say nothing of the card: %v", found)
	}
}

func texts(events []event) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString(e.Text + "\n")
	}
	return b.String()
}

// Whoever knows the registry refuses an earlier life of a node, and another one of the same number, before it can vote.
func TestOldLife_isNotAdmitted(t *testing.T) {
	t.Parallel()
	n := startNodeIn(t, t.TempDir(), 0)
	awaitReady(t, n)
	self := n.identity()
	await(t, "the start is registered", func() bool { return n.machine.Picture().Node(self.Node) != nil })
	for _, c := range []struct {
		name   string
		change func(*peer.Identity)
		want   error
	}{
		{"this life", func(*peer.Identity) {}, nil},
		{"the next one", func(id *peer.Identity) { id.BootCounter++; id.Boot++ }, nil},
		{"an earlier one", func(id *peer.Identity) { id.BootCounter-- }, metadata.ErrNodeStale},
		{"another of the same number", func(id *peer.Identity) { id.Boot++ }, metadata.ErrNodeStale},
	} {
		id := self
		if c.change(&id); !errors.Is(n.admit(id), c.want) {
			t.Errorf("%s: %v, want %v", c.name, n.admit(id), c.want)
		}
	}
}

// What a node says that is refused for an earlier life names both causes, and what to do for each.
func TestOldLife_isExplained(t *testing.T) {
	for _, err := range []error{peer.ErrClone, peer.ErrOldLife, metadata.ErrNodeStale} {
		text := twinError(err, 42, "/var/lib/edged").Error()
		for _, part := range []string{"copied", "backup", "power is cut", "forgotten votes", "move /var/lib/edged away", "edgectl node remove 42", "without bootstrap-expect", "replace the card"} {
			if !strings.Contains(text, part) {
				t.Errorf("%v does not say %q:\n%s", err, part, text)
			}
		}
	}
}
