package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"edged/internal/manual"
	"edged/node"
)

// settingsFile is the file of settings that the package installs.
const settingsFile = "../../deploy/systemd/edged.toml"

// documented is one setting in the file: a paragraph, and below it the setting, commented out.
type documented struct {
	section, text, name, value string
}

var (
	settingLine = regexp.MustCompile(`^#([a-z][a-z-]*) = (.+)$`)
	sectionLine = regexp.MustCompile(`^# --- (.+) ---$`)
)

func readSettingsFile(t *testing.T) (all []documented) {
	t.Helper()
	text, err := os.ReadFile(settingsFile)
	if err != nil {
		t.Fatal(err)
	}
	section := ""
	for _, block := range strings.Split(string(text), "\n\n")[1:] { // the first is about the file
		lines := strings.Split(strings.TrimSpace(block), "\n")
		if m := sectionLine.FindStringSubmatch(lines[0]); m != nil && len(lines) == 1 {
			section = m[1]
			continue
		}
		m := settingLine.FindStringSubmatch(lines[len(lines)-1])
		if m == nil {
			t.Errorf("a paragraph of edged.toml does not end with a setting: %q", block)
			continue
		}
		d := documented{section: section, name: m[1], value: m[2]}
		for _, l := range lines[:len(lines)-1] {
			d.text += strings.TrimPrefix(strings.TrimPrefix(l, "#"), " ") + "\n"
		}
		all = append(all, d)
	}
	return all
}

// Every setting stands in the file once, explained, with its default, and the file is right as it is
// and with any of its lines put into force.
func TestSettingsFile_explainsEverySetting(t *testing.T) {
	all := readSettingsFile(t)
	for _, s := range node.Settings() {
		i := slices.IndexFunc(all, func(d documented) bool { return d.name == s.Name })
		if i < 0 {
			t.Errorf("deploy/systemd/edged.toml does not explain %s (%s)", s.Name, s.Usage)
			continue
		}
		if len(all[i].text) < 20 {
			t.Errorf("edged.toml says too little about %s: %q", s.Name, all[i].text)
		}
		depends := map[string]bool{"data-dir": true, "node-name": true} // on where it runs
		if s.Default != "" && !depends[s.Name] && strings.Trim(all[i].value, `"`) != s.Default {
			t.Errorf("edged.toml says that %s is %s by default; it is %s", s.Name, all[i].value, s.Default)
		}
	}
	seen := map[string]bool{}
	for _, d := range all {
		if seen[d.name] || !slices.ContainsFunc(node.Settings(), func(s node.Setting) bool { return s.Name == d.name }) {
			t.Errorf("edged.toml has %s twice, or edged has no such setting", d.name)
		}
		seen[d.name] = true
		file := filepath.Join(t.TempDir(), "edged.toml")
		if err := os.WriteFile(file, []byte(d.name+" = "+d.value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if d.name == "cluster-secret-file" {
			continue // it has to exist
		}
		if _, err := node.Load(node.Inputs{File: file}); err != nil {
			t.Errorf("%s = %s: %v", d.name, d.value, err)
		}
	}
	if cfg, err := node.Load(node.Inputs{File: settingsFile}); err != nil {
		t.Error(err)
	} else {
		for _, s := range node.Settings() {
			if cfg.Source(s.Name) != "default" {
				t.Errorf("the file as it is sets %s", s.Name)
			}
		}
	}
}

// edged.toml(5) is made from the file of settings and the code.
func TestManual_edgedToml(t *testing.T) {
	var b bytes.Buffer
	fmt.Fprint(&b, `.\" Made by a test of cmd/edged from deploy/systemd/edged.toml; make docs writes it.
.TH EDGED.TOML 5 "" edged "File formats"
.SH NAME
edged.toml \- settings of an edged node
.SH DESCRIPTION
.B /etc/edged/edged.toml
is a TOML file of lines of the form
.IR "name = value" .
Every setting has a working default; a node without any is a cluster of its own.
A name that edged does not know is refused, and so is a value that cannot be right: all faults are listed
with their lines and edged ends with exit code 78, after which systemd does not try again.
.PP
A flag of
.BR edged (8)
is stronger than a variable, a variable is stronger than the file.
.I edged config validate
checks a file;
.I edged config show
prints what is in force, and where each comes from.
`)
	section := "-"
	for _, d := range readSettingsFile(t) {
		if d.section != section {
			section = d.section
			head, _, _ := strings.Cut(section, ":")
			if head == "" {
				head = "The node"
			}
			fmt.Fprintf(&b, ".SH %s\n", strings.ToUpper(head))
		}
		i := slices.IndexFunc(node.Settings(), func(s node.Setting) bool { return s.Name == d.name })
		if i < 0 {
			continue // another test says so
		}
		s := node.Settings()[i]
		fmt.Fprintf(&b, ".TP\n\\fB%s = %s\\fR\n%s", manual.Quote(d.name), manual.Quote(d.value), manual.Quote(d.text))
		fmt.Fprintf(&b, ".br\nFlag \\fB\\-\\-%s\\fR \\fI%s\\fR, variable \\fB%s\\fR.\n", manual.Quote(s.Name), manual.Quote(s.Value), s.Env)
	}
	fmt.Fprint(&b, ".SH SEE ALSO\n.BR edged (8),\n.BR edgectl (1)\n")
	manual.Golden(t, "edged.toml.5", b.Bytes())
}

// edged(8) is written by hand: it names every command and every exit code.
func TestManual_edged(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(manual.Dir, "edged.8"))
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.ReplaceAll(string(page), `\-`, "-")
	for _, c := range newApp().Commands {
		names := []string{"edged " + c.Name}
		for _, sub := range c.Subcommands {
			names = append(names, "edged "+c.Name+" "+sub.Name)
		}
		for _, name := range names {
			if !strings.Contains(plain, name) {
				t.Errorf("edged(8) does not name %q", name)
			}
		}
	}
	for _, code := range []int{0, exitFailed, exitUsage, exitConfig} {
		if !strings.Contains(plain, fmt.Sprintf(".B %d\n", code)) {
			t.Errorf("edged(8) does not explain the exit code %d", code)
		}
	}
}
