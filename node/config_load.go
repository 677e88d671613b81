package node

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/xrash/smetrics"
)

// maxConfigFileBytes is far above any real file and keeps a mistaken path (a device, a
// log) from filling the memory.
const maxConfigFileBytes = 64 << 10

// Inputs is where Load takes a configuration from. The zero value gives the defaults.
type Inputs struct {
	// Flags holds the values given on the command line, by the name of the setting.
	Flags map[string][]string
	// LookupEnv is os.LookupEnv. An empty variable is as good as none. Variables that name
	// no setting are no fault (StrayVariables tells of them): container platforms put EDGED_... ones of
	// their own into the environment.
	LookupEnv func(string) (string, bool)
	// File is the TOML file, "" for none. A file that is named must exist.
	File string
}

// Load puts a configuration together: a flag wins over a variable, a variable over the
// file, the file over the defaults, setting by setting. It looks at everything before
// it complains: the error is a *ConfigError with every fault of every source.
func Load(in Inputs) (Config, error) {
	l := loader{c: DefaultConfig()}
	l.c.sources = map[string]string{}
	lookup := in.LookupEnv
	if lookup == nil {
		lookup = func(string) (string, bool) { return "", false }
	}
	if dirs, ok := lookup("STATE_DIRECTORY"); ok && dirs != "" {
		// systemd gives several directories as one list with colons.
		first, _, _ := strings.Cut(dirs, ":")
		l.c.DataDir, l.c.sources["data-dir"] = first, "$STATE_DIRECTORY"
	}
	if in.File != "" {
		l.file(in.File)
	}
	for _, s := range Settings() {
		if text, ok := lookup(s.Env); ok && text != "" {
			values := []string{text}
			if s.Repeated {
				values = strings.Split(text, ",")
			}
			l.set(s, s.Env, values)
		}
		if values, ok := in.Flags[s.Name]; ok {
			l.set(s, "--"+s.Name, values)
		}
	}
	err := l.c.Validate()
	var ce *ConfigError
	if errors.As(err, &ce) {
		l.faults = append(l.faults, ce.Faults...)
	}
	if len(l.faults) > 0 {
		return l.c, &ConfigError{Faults: l.faults}
	}
	return l.c, nil
}

// loader collects values and faults from one source after the other.
type loader struct {
	c      Config
	faults []string
}

func (l *loader) fault(format string, args ...any) {
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// set takes values in the form of text, from a flag or a variable.
func (l *loader) set(s Setting, source string, values []string) {
	if len(values) == 0 {
		return
	}
	f := l.c.field(s.Name)
	last := values[len(values)-1]
	switch f.Kind() {
	case reflect.Slice:
		list := make([]string, 0, len(values))
		for _, v := range values {
			if v = strings.TrimSpace(v); v != "" {
				list = append(list, v)
			}
		}
		f.Set(reflect.ValueOf(list))
	case reflect.Int:
		n, err := strconv.Atoi(last)
		if err != nil {
			l.fault("%s (%s) is %q; it is a whole number", s.Name, source, last)
			return
		}
		f.SetInt(int64(n))
	default:
		f.SetString(last)
	}
	l.c.sources[s.Name] = source
}

func (l *loader) file(path string) {
	text, err := readBounded(path, maxConfigFileBytes)
	if err != nil {
		l.fault("config: %v", err)
		return
	}
	l.toml(filepath.Base(path), path, string(text))
}

// toml reads the text of a file. Only flat files are taken: each top-level key is a setting.
func (l *loader) toml(base, path, text string) {
	var raw map[string]toml.Primitive
	md, err := toml.Decode(text, &raw)
	var pe toml.ParseError
	switch {
	case errors.As(err, &pe):
		l.fault("%s:%d: %s", path, pe.Position.Line, pe.Message)
		return
	case err != nil:
		l.fault("%s: %v", path, err)
		return
	}
	for _, key := range md.Keys() {
		if len(key) > 1 {
			continue // inside of a table, which is refused as a whole
		}
		name := key[0]
		line := lineOf(&md, raw[name])
		f := l.c.field(name)
		switch {
		case name == "" || !f.IsValid():
			l.fault("%s:%d: unknown setting %q%s", path, line, name, suggest(name))
		case md.PrimitiveDecode(raw[name], f.Addr().Interface()) != nil:
			l.fault("%s:%d: %s needs %s", path, line, name, wants(f.Kind()))
		default:
			if f.Kind() == reflect.Slice && f.Len() == 0 {
				f.SetZero() // as if it was not there
			}
			l.c.sources[name] = fmt.Sprintf("%s:%d", base, line)
		}
	}
}

func wants(k reflect.Kind) string {
	switch k {
	case reflect.Slice:
		return `a list of texts, such as ["pi1:7946", "pi2:7946"]`
	case reflect.Int:
		return "a whole number without quotes"
	}
	return "a text in quotes"
}

// lineOf finds where a value stands. The TOML library tells positions only in its
// errors, so it is given a target that refuses.
func lineOf(md *toml.MetaData, p toml.Primitive) int {
	var pe toml.ParseError
	if errors.As(md.PrimitiveDecode(p, &refuser{}), &pe) {
		return pe.Position.Line
	}
	return 0
}

type refuser struct{}

func (*refuser) UnmarshalTOML(any) error { return errors.New("asked for the position only") }

// suggest finds the setting that was meant when only case, - or _ differ.
func suggest(name string) string {
	plain := func(s string) string {
		return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(s))
	}
	for _, s := range Settings() {
		if plain(s.Name) == plain(name) {
			return fmt.Sprintf("; did you mean %s?", s.Name)
		}
	}
	return "; `edged config show` lists all"
}

// platformService is what Kubernetes and Docker make of services whose names begin with edged.
var platformService = regexp.MustCompile(`_SERVICE_(HOST|PORT)(_|$)|_PORT_[0-9]+_(TCP|UDP|SCTP)(_|$)`)

// StrayVariables gives a line for each variable of an environment (os.Environ) that begins with EDGED_ and names no
// setting: most likely one was meant.
func StrayVariables(environ []string) []string {
	known := []string{"EDGED_CONFIG"}
	for _, s := range Settings() {
		known = append(known, s.Env)
	}
	var out []string
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "EDGED_") || value == "" || slices.Contains(known, name) || isPlatforms(name, value) {
			continue
		}
		text := "the variable " + name + " names no setting and is ignored"
		if near := nearest(name, known); near != "" {
			out = append(out, text+"; did you mean "+near+"?")
		} else {
			out = append(out, text+"; `edged config show` lists all")
		}
	}
	slices.Sort(out)
	return out
}

// isPlatforms tells that a container platform made the variable: EDGED_SERVICE_HOST, EDGED_PORT=tcp://….
func isPlatforms(name, value string) bool {
	return platformService.MatchString(name) || name == "EDGED_PORT" && strings.Contains(value, "://")
}

// nearest is the name that was most likely meant, empty if none is near.
func nearest(name string, known []string) string {
	best, closest := 0.9, ""
	for _, k := range known {
		if s := smetrics.JaroWinkler(strings.TrimPrefix(name, "EDGED_"), strings.TrimPrefix(k, "EDGED_"), 0.7, 4); s > best {
			best, closest = s, k
		}
	}
	return closest
}

// TOML writes the configuration as a file that Load takes, each value with its source.
func (c Config) TOML() string {
	var b strings.Builder
	for _, s := range Settings() {
		var value string
		switch v := c.field(s.Name).Interface().(type) {
		case []string:
			quoted := make([]string, len(v))
			for i := range v {
				quoted[i] = tomlQuote(v[i])
			}
			value = "[" + strings.Join(quoted, ", ") + "]"
		case int:
			value = strconv.Itoa(v)
		case string:
			value = tomlQuote(v)
		}
		fmt.Fprintf(&b, "%-44s # %s\n", s.Name+" = "+value, c.Source(s.Name))
	}
	return b.String()
}

// tomlQuote writes a TOML basic string; strconv.Quote would use escapes that TOML lacks.
func tomlQuote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// readBounded reads a whole file of at most limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes; this is no configuration file", path, limit)
	}
	return b, nil
}
