// go-fuse does not build for 32 bits.

//go:build linux && (amd64 || arm64)

package card

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func newCard(t *testing.T, o Options) *Card {
	t.Helper()
	if os.Getenv("EDGED_POWER_CUTS") == "" {
		t.Skip("cards are made by `make power-cut`")
	}
	if err := Available(); err != nil {
		t.Skipf("no card can be made here: %v", err)
	}
	c, err := New(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func cutAndMount(t *testing.T, c *Card, at string) {
	t.Helper()
	c.Cut()
	if err := c.Unmount(); err != nil {
		t.Fatal(err)
	}
	c.Power()
	if err := c.Mount(at); err != nil {
		t.Fatal(err)
	}
}

// writeSynced writes a file and its name so that no honest card may lose either.
func writeSynced(t *testing.T, dir, name string, b []byte) {
	t.Helper()
	for _, f := range []func() error{
		func() error {
			f, err := os.Create(filepath.Join(dir, name))
			if err != nil {
				return err
			}
			_, werr := f.Write(b)
			return errors.Join(werr, f.Sync(), f.Close())
		},
		func() error {
			d, err := os.Open(dir)
			if err != nil {
				return err
			}
			return errors.Join(d.Sync(), d.Close())
		},
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
}

// What was synced survives every cut on an honest card, what was not may go; a card that lies loses what
// was synced. Without both, tests that use the card could not fail.
func TestCard_keepsWhatWasSyncedUnlessItLies(t *testing.T) {
	want := bytes.Repeat([]byte("edge"), 5000)
	for _, lies := range []bool{false, true} {
		lost, gone := 0, 0
		c := newCard(t, Options{Size: 64 << 20, Lies: lies, Seed: 7})
		at := t.TempDir()
		if err := c.Mount(at); err != nil {
			t.Fatal(err)
		}
		const rounds = 6
		for i := range rounds {
			name := string(rune('a' + i))
			writeSynced(t, at, name, want)
			if err := os.WriteFile(filepath.Join(at, name+"-unsynced"), want, 0o600); err != nil {
				t.Fatal(err)
			}
			cutAndMount(t, c, at)
			if got, err := os.ReadFile(filepath.Join(at, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			} else if !bytes.Equal(got, want) {
				lost++
			}
			if got, _ := os.ReadFile(filepath.Join(at, name+"-unsynced")); !bytes.Equal(got, want) {
				gone++
			}
		}
		if !lies && lost > 0 {
			t.Errorf("an honest card lost %d of %d synced files", lost, rounds)
		}
		if lies && lost == 0 {
			t.Errorf("a card that lies lost none of %d synced files", rounds)
		}
		if gone == 0 {
			t.Errorf("nothing was lost that was not synced: the power was not cut (lies: %v)", lies)
		}
	}
}

// A test that is killed cannot take out what it has mounted: the next one does.
func TestSweep_takesOutWhatAKilledProcessLeft(t *testing.T) {
	const held = "EDGED_CARD_HELD"
	if dir := os.Getenv(held); dir != "" {
		c, err := New(filepath.Join(dir, "card"), Options{Size: 16 << 20})
		if err == nil {
			err = c.Mount(filepath.Join(dir, "at"))
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "mounted"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		select {} // until it is killed
	}
	alive := newCard(t, Options{Size: 16 << 20})
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "card"), 0o700); err != nil {
		t.Fatal(err)
	}
	child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.timeout", "1m")
	child.Env = append(os.Environ(), held+"="+dir)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	for mounted := false; !mounted; {
		select {
		case err := <-ended:
			t.Fatalf("the child ended: %v", err)
		case <-time.After(10 * time.Millisecond):
			_, err := os.Stat(filepath.Join(dir, "mounted"))
			mounted = err == nil
		}
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	if err := Sweep(); err != nil {
		t.Error(err)
	}
	left, err := mounts()
	if err != nil {
		t.Fatal(err)
	}
	there := false
	for _, m := range left {
		if strings.HasPrefix(m.at, dir) {
			t.Errorf("%s is still mounted", m.at)
		}
		there = there || m.at == alive.dir
	}
	if !there {
		t.Error("the card of a process that lives is gone too")
	}
}
