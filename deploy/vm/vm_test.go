package vm

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var boards = []struct {
	name, platform string
	env            []string
	kernel         string // of its directory
	qemu           []string
	pages          string
}{
	{"Pi Zero", "armv6", []string{"GOARCH=arm", "GOARM=6"}, "rpi", []string{"qemu-system-arm", "-M", "raspi0", "-m", "512"}, "pages of 4096 bytes"},
	{"ARMv7", "armv7", []string{"GOARCH=arm", "GOARM=7"}, "armmp", []string{"qemu-system-arm", "-M", "virt", "-cpu", "cortex-a7", "-m", "512", "-nic", "none"}, "pages of 4096 bytes"},
	{"arm64, 16 KiB pages", "arm64", []string{"GOARCH=arm64"}, "arm64-16k", []string{"qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a76", "-m", "512", "-nic", "none"}, "pages of 16384 bytes"},
}

// patience is what a machine may take, emulated beside other load; on one that is idle it is 10 to 15 s.
const patience = 10 * time.Minute

// Records that were acknowledged are there after a kill, on each kind of board.
func TestVM_produceKillConsume(t *testing.T) {
	kernels, binaries := os.Getenv("EDGED_VM_KERNELS"), os.Getenv("EDGED_BINARIES")
	if kernels == "" || binaries == "" {
		t.Skip("EDGED_VM_KERNELS and EDGED_BINARIES name no kernels and binaries")
	}
	for _, b := range boards {
		t.Run(b.name, func(t *testing.T) {
			kernel, err := filepath.Glob(filepath.Join(kernels, b.kernel, "boot", "vmlinuz-*"))
			if err != nil || len(kernel) != 1 {
				t.Fatalf("%v, kernels: %q", err, kernel)
			}
			line := append(b.qemu, "-nographic", "-no-reboot", "-kernel", kernel[0], "-initrd", initramfs(t, binaries, b.platform, b.env))
			if b.kernel == "rpi" {
				dtb, err := filepath.Glob(filepath.Join(kernels, b.kernel, "usr/lib/linux-image-*/bcm2835-rpi-zero.dtb"))
				if err != nil || len(dtb) != 1 {
					t.Fatalf("%v, device trees: %q", err, dtb)
				}
				// What qemu's board lacks must not be looked for.
				line = append(line, "-dtb", dtb[0], "-append", "console=ttyAMA0 quiet initcall_blacklist=bcm2835_pm_driver_init,bcm2835_power_driver_init")
			} else {
				line = append(line, "-append", "console=ttyAMA0 quiet")
			}
			began := time.Now()
			said := boot(t, line)
			if !strings.Contains(said, "VM ok:") || !strings.Contains(said, b.pages) {
				t.Errorf("the machine said:\n%s", said)
			}
			t.Logf("took %v", time.Since(began).Round(time.Second))
			for line := range strings.Lines(said) {
				if strings.HasPrefix(line, "VM ") {
					t.Log(strings.TrimSpace(line))
				}
			}
		})
	}
}

// boot runs a machine until it has said how it went, or ends.
func boot(t *testing.T, line []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for in := bufio.NewScanner(io.LimitReader(out, 1<<20)); in.Scan(); {
		text := strings.TrimSpace(in.Text())
		fmt.Fprintln(&said, text)
		if strings.Contains(text, "VM ok") || strings.Contains(text, "VM FAILED") || strings.Contains(text, "Kernel panic") {
			break
		}
	}
	cancel()
	_ = cmd.Wait() // ended by us most often
	return said.String()
}

// initramfs packs init, edged and edgectl as the kernel wants it: a cpio archive.
func initramfs(t *testing.T, binaries, platform string, env []string) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "init"), "./init")
	build.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux"), env...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	name := filepath.Join(dir, "initramfs")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := gzip.NewWriter(f)
	add := func(name string, mode int, content []byte) {
		var b bytes.Buffer
		fmt.Fprintf(&b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", 0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0, name)
		pad := func() { b.Write(make([]byte, (4-b.Len()%4)%4)) }
		pad()
		b.Write(content)
		pad()
		if _, err := z.Write(b.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	add("dev", 0o040755, nil)
	for _, p := range []string{filepath.Join(dir, "init"), filepath.Join(binaries, "linux-"+platform, "edged"), filepath.Join(binaries, "linux-"+platform, "edgectl")} {
		content, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		add(filepath.Base(p), 0o100755, content)
	}
	add("TRAILER!!!", 0, nil)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}
