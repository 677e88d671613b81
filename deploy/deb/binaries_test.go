package main

import (
	"debug/buildinfo"
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// platforms says what a binary of each name has to be. A plain "arm" is no name: Go builds it for
// ARMv7, which ends with SIGILL on a Pi Zero.
var platforms = map[string]struct {
	machine elf.Machine
	class   elf.Class
	goarm   string
}{
	"armv6":   {elf.EM_ARM, elf.ELFCLASS32, "6"},
	"armv7":   {elf.EM_ARM, elf.ELFCLASS32, "7"},
	"arm64":   {elf.EM_AARCH64, elf.ELFCLASS64, ""},
	"amd64":   {elf.EM_X86_64, elf.ELFCLASS64, ""},
	"riscv64": {elf.EM_RISCV, elf.ELFCLASS64, ""},
}

// TestBinaries looks at the binaries that make has built: $EDGED_BINARIES/linux-PLATFORM, for each of
// $RELEASE_PLATFORMS. `make check-binaries` runs it.
func TestBinaries(t *testing.T) {
	dir := os.Getenv("EDGED_BINARIES")
	if dir == "" {
		t.Skip("EDGED_BINARIES is not set; make check-binaries sets it")
	}
	most, err := strconv.ParseInt(os.Getenv("MAX_EDGED"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(os.Getenv("RELEASE_PLATFORMS")) {
		want, ok := platforms[name]
		if !ok {
			t.Errorf("nothing says what a binary for %s is", name)
			continue
		}
		for _, command := range []string{"edged", "edgectl"} {
			file := filepath.Join(dir, "linux-"+name, command)
			f, err := elf.Open(file)
			if err != nil {
				t.Error(err)
				continue
			}
			defer f.Close()
			if f.Machine != want.machine || f.Class != want.class {
				t.Errorf("%s is for %v %v", file, f.Machine, f.Class)
			}
			if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC }) {
				t.Errorf("%s is not static", file)
			}
			if f.Section(".symtab") != nil || f.Section(".debug_info") != nil {
				t.Errorf("%s is not stripped", file)
			}
			checkBuild(t, file, want.goarm)
			if st, err := os.Stat(file); err != nil || command == "edged" && st.Size() > most {
				t.Errorf("%s has %d bytes, at most %d are expected; what made it grow? %v", file, st.Size(), most, err)
			} else {
				t.Logf("%s %s %d bytes", name, command, st.Size())
			}
		}
	}
}

func checkBuild(t *testing.T, file, goarm string) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		t.Error(err)
		return
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	// The build writes the floating point unit behind the number: 6,softfloat.
	if got, _, _ := strings.Cut(settings["GOARM"], ","); got != goarm {
		t.Errorf("%s is built for GOARM=%q, want %q", file, got, goarm)
	}
	if settings["CGO_ENABLED"] != "0" || settings["-trimpath"] != "true" {
		t.Errorf("%s is built with CGO_ENABLED=%s and -trimpath=%s", file, settings["CGO_ENABLED"], settings["-trimpath"])
	}
}
