// Command deb packs the Debian packages of edged from binaries that make has built.
//
// It is a module of its own: what it needs is no part of edged. The same sources give the same
// packages, byte by byte: every time in them is that of the commit.
package main

import (
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// architectures are Debian's names, and which build goes into each. armhf is ARMv7 in Debian and ARMv6
// in Raspberry Pi OS, and only the ARMv6 build runs in both.
var architectures = map[string]string{"armhf": "armv6", "arm64": "arm64", "amd64": "amd64"}

// packing is one run: from the sources in root and the binaries in bin into out.
type packing struct {
	root, bin, out string
	version        string // for Debian
	maintainer     string
	date           time.Time
	made           string // files that are made on the way
}

func main() {
	version := flag.String("version", "devel", "version of edged, as git describes it")
	date := flag.String("date", "", "when the commit was made")
	root := flag.String("root", "../..", "where the sources are")
	maintainer := flag.String("maintainer", "The edged authors <edged@localhost.localdomain>", "who answers for the packages")
	out := flag.String("out", "", "where the packages go; dist of the sources if empty")
	arches := flag.String("arch", "armhf arm64 amd64", "Debian's names of the architectures")
	flag.Parse()
	if err := run(*root, *version, *date, *maintainer, *out, strings.Fields(*arches)); err != nil {
		fmt.Fprintln(os.Stderr, "deb:", err)
		os.Exit(1)
	}
}

func run(root, version, date, maintainer, out string, arches []string) error {
	when, err := time.Parse(time.RFC3339, date)
	if err != nil {
		return err
	}
	root, err = filepath.Abs(root)
	if err != nil {
		return err
	}
	if out == "" {
		out = filepath.Join(root, "dist")
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	made, err := os.MkdirTemp("", "edged-deb")
	if err != nil {
		return err
	}
	defer os.RemoveAll(made)
	p := packing{root: root, bin: filepath.Join(root, "bin"), out: out, version: debianVersion(version), maintainer: maintainer, date: when, made: made}
	if err := p.makeFiles(arches[0]); err != nil {
		return err
	}
	for _, arch := range arches {
		file, err := p.pack(arch)
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		fmt.Println(file)
	}
	return nil
}

// debianVersion makes a version that sorts rightly: what git describes after a tag is later than the tag,
// and what has no tag is earlier than any.
func debianVersion(v string) string {
	v = strings.TrimPrefix(v, "v")
	if v == "" || v[0] < '0' || v[0] > '9' {
		v = "0.0.0~" + v
	}
	v = regexp.MustCompile(`-(alpha|beta|rc)`).ReplaceAllString(v, "~$1")
	v = strings.ReplaceAll(v, "-", "+")
	return regexp.MustCompile(`[^A-Za-z0-9.+~]`).ReplaceAllString(v, "")
}

// makeFiles writes what is not in the sources: compressed pages, completions, licences.
func (p *packing) makeFiles(arch string) error {
	for _, page := range []string{"edged.8", "edgectl.1", "edged.toml.5"} {
		text, err := os.ReadFile(filepath.Join(p.root, "deploy", "man", page))
		if err != nil {
			return err
		}
		if err := p.compress(page+".gz", text); err != nil {
			return err
		}
	}
	if err := p.completions(); err != nil {
		return err
	}
	changes := fmt.Sprintf("edged (%s) stable; urgency=medium\n\n  * See CHANGELOG.md of the sources.\n\n -- %s  %s\n",
		p.version, p.maintainer, p.date.UTC().Format("Mon, 02 Jan 2006 15:04:05 +0000"))
	if err := p.compress("changelog.gz", []byte(changes)); err != nil {
		return err
	}
	licences, err := p.licences(arch)
	if err != nil {
		return err
	}
	return p.compress("THIRD-PARTY-LICENSES.gz", licences)
}

// completions writes the scripts for the shells. They ask the command itself what can follow, so those of
// edged are those of edgectl under another name; only fish's is made whole, and edged has one that asks.
func (p *packing) completions() error {
	write := func(name string, script []byte) error {
		return os.WriteFile(filepath.Join(p.made, name), script, 0o644)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		cmd := exec.Command("go", "run", "./cmd/edgectl", "completion", shell)
		cmd.Dir, cmd.Stderr = p.root, os.Stderr
		script, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("the completion for %s: %w", shell, err)
		}
		if err := write("edgectl."+shell, script); err != nil {
			return err
		}
		if shell != "fish" {
			if err := write("edged."+shell, bytes.ReplaceAll(script, []byte("edgectl"), []byte("edged"))); err != nil {
				return err
			}
		}
	}
	return write("edged.fish", []byte("# fish completion for edged: edged itself is asked what can follow.\n"+
		"complete -c edged -a '(command edged (commandline -opc)[2..] (string match -- \"-*\" (commandline -ct)) --generate-bash-completion 2>/dev/null)'\n"))
}

func (p *packing) compress(name string, content []byte) error {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(content); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.made, name), b.Bytes(), 0o644)
}

// licences gathers the licence texts of all modules that are built into the programs.
func (p *packing) licences(arch string) ([]byte, error) {
	modules := map[string]bool{}
	for _, command := range []string{"edged", "edgectl"} {
		info, err := buildinfo.ReadFile(filepath.Join(p.bin, "linux-"+architectures[arch], command))
		if err != nil {
			return nil, err
		}
		for _, m := range info.Deps {
			modules[m.Path] = true
		}
	}
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Path}}\t{{.Version}}\t{{.Dir}}", "all")
	cmd.Dir, cmd.Stderr = p.root, os.Stderr
	list, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for line := range strings.Lines(string(list)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) < 3 || !modules[f[0]] {
			continue
		}
		delete(modules, f[0])
		var texts []string
		for _, pattern := range []string{"LICENSE*", "LICENCE*", "COPYING*", "NOTICE*", "License*"} {
			found, err := filepath.Glob(filepath.Join(f[2], pattern))
			if err != nil {
				return nil, err
			}
			texts = append(texts, found...)
		}
		if len(texts) == 0 {
			return nil, fmt.Errorf("%s has no file with its licence", f[0])
		}
		for _, file := range texts {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "==== %s %s: %s ====\n\n%s\n\n", f[0], f[1], filepath.Base(file), text)
		}
	}
	for m := range modules {
		return nil, fmt.Errorf("%s is in the programs and not in go.mod: build them anew", m)
	}
	return b.Bytes(), nil
}

// contents lists what is installed where.
func (p *packing) contents(arch string) files.Contents {
	var all files.Contents
	add := func(kind string, mode os.FileMode, to, from string) {
		all = append(all, &files.Content{
			Source: from, Destination: to, Type: kind,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: p.date},
		})
	}
	bin := filepath.Join(p.bin, "linux-"+architectures[arch])
	systemd := filepath.Join(p.root, "deploy", "systemd")
	here := filepath.Join(p.root, "deploy", "deb")
	const doc = "/usr/share/doc/edged/"
	add("", 0o755, "/usr/bin/edged", filepath.Join(bin, "edged"))
	add("", 0o755, "/usr/bin/edgectl", filepath.Join(bin, "edgectl"))
	add("", 0o644, "/usr/lib/systemd/system/edged.service", filepath.Join(systemd, "edged.service"))
	add("", 0o644, "/usr/lib/sysusers.d/edged.conf", filepath.Join(systemd, "edged.sysusers.conf"))
	add(files.TypeConfigNoReplace, 0o644, "/etc/edged/edged.toml", filepath.Join(systemd, "edged.toml"))
	add("", 0o644, "/usr/share/man/man8/edged.8.gz", filepath.Join(p.made, "edged.8.gz"))
	add("", 0o644, "/usr/share/man/man1/edgectl.1.gz", filepath.Join(p.made, "edgectl.1.gz"))
	add("", 0o644, "/usr/share/man/man5/edged.toml.5.gz", filepath.Join(p.made, "edged.toml.5.gz"))
	for _, command := range []string{"edged", "edgectl"} {
		add("", 0o644, "/usr/share/bash-completion/completions/"+command, filepath.Join(p.made, command+".bash"))
		add("", 0o644, "/usr/share/zsh/vendor-completions/_"+command, filepath.Join(p.made, command+".zsh"))
		add("", 0o644, "/usr/share/fish/vendor_completions.d/"+command+".fish", filepath.Join(p.made, command+".fish"))
	}
	add("", 0o644, doc+"changelog.gz", filepath.Join(p.made, "changelog.gz"))
	add("", 0o644, doc+"THIRD-PARTY-LICENSES.gz", filepath.Join(p.made, "THIRD-PARTY-LICENSES.gz"))
	add("", 0o644, doc+"copyright", filepath.Join(here, "copyright"))
	add("", 0o644, doc+"README.Debian", filepath.Join(here, "README.Debian"))
	for _, name := range []string{"lan-only.conf", "slower-restarts.conf", "data-on-its-own-card.conf"} {
		add("", 0o644, doc+"examples/"+name, filepath.Join(here, "examples", name))
	}
	add("", 0o644, "/usr/share/edged/edged.rules.yml", filepath.Join(p.root, "deploy", "prometheus", "edged.rules.yml"))
	add("", 0o644, "/usr/share/lintian/overrides/edged", filepath.Join(here, "lintian-overrides"))
	slices.SortFunc(all, func(a, b *files.Content) int { return strings.Compare(a.Destination, b.Destination) })
	return all
}

// pack writes one package and gives its name.
func (p *packing) pack(arch string) (string, error) {
	if architectures[arch] == "" {
		return "", fmt.Errorf("there is no package for this architecture")
	}
	scripts := filepath.Join(p.root, "deploy", "deb", "scripts")
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "edged", Arch: arch, Platform: "linux", Version: p.version, VersionSchema: "none",
		Section: "net", Priority: "optional", Maintainer: p.maintainer, MTime: p.date, DisableGlobbing: true,
		Description: "streaming node for small machines on networks that come and go\n" +
			"edged keeps partitioned logs of records and copies them to other nodes by\n" +
			"Raft. Nodes find each other by gossip; each partition has one leader, and a\n" +
			"client that asks the wrong node is told the right one. Clients speak Kafka's\n" +
			"protocol or the native one.\n" +
			".\n" +
			"The package has the node, edged, and the tool to operate it, edgectl.",
		Overridables: nfpm.Overridables{
			Depends:  []string{"systemd | systemd-standalone-sysusers | systemd-sysusers"},
			Contents: p.contents(arch),
			Scripts: nfpm.Scripts{
				PostInstall: filepath.Join(scripts, "postinst"),
				PreRemove:   filepath.Join(scripts, "prerm"),
				PostRemove:  filepath.Join(scripts, "postrm"),
			},
			Deb: nfpm.Deb{Compression: "xz"},
		},
	})
	packager, err := nfpm.Get("deb")
	if err != nil {
		return "", err
	}
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return "", err
	}
	name := filepath.Join(p.out, packager.ConventionalFileName(info))
	f, err := os.Create(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := packager.Package(info, f); err != nil {
		return "", err
	}
	return name, f.Close()
}
