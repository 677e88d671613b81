package storage

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"edged/record"
)

// identityCrashPoints go on with the numbers of crashPoints: what power loss leaves of the
// identity while it is made, while it is changed, and after it was.
var identityCrashPoints = []struct {
	number int
	name   string
}{
	{24, "while the identity is made"},
	{25, "while the identity is changed"},
	{26, "after the identity was changed"},
}

func TestIdentityCrashPoints(t *testing.T) {
	for _, p := range identityCrashPoints {
		t.Run(fmt.Sprintf("%02d %s", p.number, p.name), func(t *testing.T) {
			for seed := range seeds(20) {
				crashIdentity(t, p.number, seed)
			}
		})
	}
}

func crashIdentity(t *testing.T, number int, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	fs := vfs.NewCrashableMem()
	hooks := newHookFS(fs)
	hooks.tear.Store(true)
	var shots []*vfs.MemFS
	shoot := func(fsOp) error {
		percent := []int{0, 100, rng.IntN(101)}[rng.IntN(3)]
		shots = append(shots, fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(rng.Uint64(), 2))}))
		return nil
	}
	if number == 24 {
		hooks.set(shoot)
	}
	f, err := OpenIdentity("data", hooks)
	if err != nil {
		t.Fatal(err)
	}
	old := f.Get()
	if number == 25 {
		hooks.set(shoot)
	}
	if number > 24 {
		if err := f.Update(func(id *Identity) { id.State, id.Proposal = "member", []byte("p") }); err != nil {
			t.Fatal(err)
		}
	}
	hooks.set(nil)
	if number == 26 {
		_ = shoot(fsOp{})
	}
	for _, shot := range shots {
		g, err := OpenIdentity("data", shot)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		id := g.Get()
		switch {
		case number == 24 && id.BootCounter != 1 && (id.BootCounter != 2 || id.Instance != old.Instance):
			t.Fatalf("seed %d: %+v after %+v", seed, id, old)
		case number > 24 && (id.Instance != old.Instance || id.Node != old.Node || id.BootCounter != 2),
			number == 26 && id.State != "member", id.State == "member" != (string(id.Proposal) == "p"):
			t.Fatalf("seed %d: %+v after %+v", seed, id, old)
		}
	}
}

func TestIdentityStaysAndCountsBoots(t *testing.T) {
	fs := vfs.NewMem()
	var first Identity
	for boot := uint64(1); boot < 4; boot++ {
		f, err := OpenIdentity("data", fs)
		if err != nil {
			t.Fatal(err)
		}
		id := f.Get()
		if boot == 1 {
			first = id
		}
		if id.Instance != first.Instance || id.Node != first.Node || id.BootCounter != boot || id.Node <= 0 || id.Created == 0 || f.Damage() != nil {
			t.Fatalf("%+v", id)
		}
		mustClose(t, mustOpen(t, fs, Options{}))
	}
}

// TestIdentityOfARunningNodeIsNotTouched: a second process must not raise the boot counter of the first.
func TestIdentityOfARunningNodeIsNotTouched(t *testing.T) {
	fs := vfs.NewMem()
	f, err := OpenIdentity("data", fs)
	if err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, fs, Options{})
	if _, err := OpenIdentity("data", fs); !errors.Is(err, ErrLocked) {
		t.Fatal(err)
	}
	mustClose(t, s)
	g, err := OpenIdentity("data", fs)
	if err != nil || g.Get().BootCounter != f.Get().BootCounter+1 {
		t.Fatal(err)
	}
}

func TestIdentityDamagedInOneCopyIsMended(t *testing.T) {
	for _, name := range identityNames {
		for pos := range 60 {
			fs := vfs.NewMem()
			f, err := OpenIdentity("data", fs)
			if err != nil {
				t.Fatal(err)
			}
			flip(t, fs, "data/"+name, pos)
			g, err := OpenIdentity("data", fs)
			if err != nil || g.Get().Instance != f.Get().Instance || g.Get().BootCounter != 2 || g.Damage() == nil {
				t.Fatalf("byte %d: %v", pos, err)
			}
			if h, err := OpenIdentity("data", fs); err != nil || h.Damage() != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestIdentityLostIsRefused(t *testing.T) {
	cases := map[string]func(fs vfs.FS){
		"both damaged": func(fs vfs.FS) { flip(t, fs, "data/identity", 40); flip(t, fs, "data/identity.copy", 40) },
		"both gone":    func(fs vfs.FS) { _ = fs.Remove("data/identity"); _ = fs.Remove("data/identity.copy") },
		"one each":     func(fs vfs.FS) { _ = fs.Remove("data/identity"); flip(t, fs, "data/identity.copy", 3) },
	}
	for name, harm := range cases {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			if _, err := OpenIdentity("data", fs); err != nil {
				t.Fatal(err)
			}
			mustClose(t, mustOpen(t, fs, Options{}))
			harm(fs)
			_, err := OpenIdentity("data", fs)
			if !errors.Is(err, ErrIdentityLost) || strings.Contains(err.Error(), "\n") {
				t.Fatal(err)
			}
		})
	}
}

// A directory of somebody else is refused before anything is written there; what a fresh file system has and
// what this program leaves is no reason.
func TestIdentityDirectoryOfSomebodyElseIsRefused(t *testing.T) {
	for name, refused := range map[string]bool{
		"passwd": true, "reserved": true, "ssh/": true, "identity.bak": true,
		"lost+found/": false, ".gitkeep": false, "identity.new": false, "addresses.json": false, "events.jsonl.new": false, "store/": false, "reserve": false,
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			if err := fs.MkdirAll("data", 0o755); err != nil {
				t.Fatal(err)
			}
			if dir, ok := strings.CutSuffix(name, "/"); ok {
				if err := fs.MkdirAll("data/"+dir, 0o755); err != nil {
					t.Fatal(err)
				}
			} else {
				writeFile(t, fs, "data/"+name, []byte("x"))
			}
			GiveUpReserve("data", fs, 1<<62)
			_, err := OpenIdentity("data", fs)
			if errors.Is(err, ErrNotOurs) != refused || !refused && err != nil {
				t.Fatal(err)
			}
			if names, _ := fs.List("data"); refused && len(names) != 1 {
				t.Errorf("%q were written", names)
			}
		})
	}
}

func TestIdentityOfANewerVersionIsRefused(t *testing.T) {
	fs := vfs.NewMem()
	f, err := OpenIdentity("data", fs)
	if err != nil {
		t.Fatal(err)
	}
	b := encodeIdentity(f.Get(), 9)
	b[len(identityMagic)] = identityVersion + 1
	b = seal(nil, b[:len(b)-crcLen])
	writeFile(t, fs, "data/identity", b)
	if _, err := OpenIdentity("data", fs); !errors.Is(err, ErrNewerFormat) {
		t.Fatal(err)
	}
}

func TestIdentityRefusesBadUpdates(t *testing.T) {
	f, err := OpenIdentity("data", vfs.NewMem())
	if err != nil {
		t.Fatal(err)
	}
	before := f.Get()
	for name, change := range map[string]func(*Identity){
		"node":     func(id *Identity) { id.Node++ },
		"counter":  func(id *Identity) { id.BootCounter-- },
		"state":    func(id *Identity) { id.State = strings.Repeat("x", maxIdentityState+1) },
		"proposal": func(id *Identity) { id.Proposal = make([]byte, maxIdentityProposal+1) },
	} {
		if err := f.Update(change); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if got := f.Get(); got.Node != before.Node || got.BootCounter != before.BootCounter {
		t.Errorf("%+v", got)
	}
}

func FuzzIdentity(f *testing.F) {
	good := encodeIdentity(Identity{Node: 7, Instance: record.NewInstanceID(), State: "s", Proposal: []byte("p")}, 3)
	f.Add(good[:len(good)-crcLen])
	f.Fuzz(func(t *testing.T, b []byte) {
		id, serial, err := decodeIdentity(seal(nil, b)) // past the checksum
		if err != nil {
			return
		}
		again, s2, err := decodeIdentity(encodeIdentity(id, serial))
		if err != nil || s2 != serial || fmt.Sprint(again) != fmt.Sprint(id) {
			t.Fatalf("%+v became %+v, %v", id, again, err)
		}
	})
}

func writeFile(t testing.TB, fs vfs.FS, path string, b []byte) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(bytes.Clone(b))
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := syncDir(fs, fs.PathDir(path)); err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, fs vfs.FS, path string) []byte {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, st.Size())
	if _, err := f.ReadAt(b, 0); err != nil && len(b) > 0 {
		t.Fatal(err)
	}
	return b
}

// flip turns one bit of a file.
func flip(t testing.TB, fs vfs.FS, path string, pos int) {
	t.Helper()
	b := readFile(t, fs, path)
	b[pos] ^= 0x10
	writeFile(t, fs, path, b)
}
