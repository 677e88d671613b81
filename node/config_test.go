package node

import (
	"encoding/base64"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func faults(t *testing.T, err error) []string {
	t.Helper()
	var ce *ConfigError
	if !errors.As(err, &ce) {
		t.Fatalf("got %v, want a *ConfigError", err)
	}
	return ce.Faults
}

func TestDefaultConfig_isValidAndWhole(t *testing.T) {
	c := DefaultConfig()
	c.NodeName = "pi1" // the machine's own may be anything
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if len(Settings()) != reflect.TypeFor[Config]().NumField()-1 {
		t.Error("a field of Config has no toml tag")
	}
	for _, s := range Settings() {
		if s.Value == "" || s.Usage == "" {
			t.Errorf("%s has no value or usage tag", s.Name)
		}
	}
}

// Each source is set on top of all weaker ones, for a text, a number and a list.
func TestLoad_strongerSourceWins(t *testing.T) {
	file := write(t, "edged.toml", "zone = \"file\"\nbootstrap-expect = 3\n\njoin = [\"file:1\",\n  \"file:2\"]\n")
	vars := env("EDGED_ZONE", "env", "EDGED_BOOTSTRAP_EXPECT", "4", "EDGED_JOIN", "env:1, env:2",
		"EDGED_PORT", "tcp://10.0.0.1:80", "EDGED_CLUSTER", "")
	flags := map[string][]string{"zone": {"flag"}, "bootstrap-expect": {"5"}, "join": {"flag:1", "flag:2"}}
	for _, tc := range []struct {
		name   string
		in     Inputs
		zone   string
		expect int
		join   []string
		source [3]string
	}{
		{"nothing", Inputs{}, "", 0, nil, [3]string{"default", "default", "default"}},
		{"file", Inputs{File: file}, "file", 3, []string{"file:1", "file:2"}, [3]string{"edged.toml:1", "edged.toml:2", "edged.toml:4"}},
		{"file and variables", Inputs{File: file, LookupEnv: vars}, "env", 4, []string{"env:1", "env:2"}, [3]string{"EDGED_ZONE", "EDGED_BOOTSTRAP_EXPECT", "EDGED_JOIN"}},
		{"all", Inputs{File: file, LookupEnv: vars, Flags: flags}, "flag", 5, []string{"flag:1", "flag:2"}, [3]string{"--zone", "--bootstrap-expect", "--join"}},
		{"file and flags", Inputs{File: file, Flags: flags}, "flag", 5, []string{"flag:1", "flag:2"}, [3]string{"--zone", "--bootstrap-expect", "--join"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := Load(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			if c.Zone != tc.zone || c.BootstrapExpect != tc.expect || !slices.Equal(c.Join, tc.join) {
				t.Errorf("got zone %q, bootstrap-expect %d, join %q", c.Zone, c.BootstrapExpect, c.Join)
			}
			if got := [3]string{c.Source("zone"), c.Source("bootstrap-expect"), c.Source("join")}; got != tc.source {
				t.Errorf("sources are %q, want %q", got, tc.source)
			}
			if c.Cluster != "edge" || c.Source("cluster") != "default" {
				t.Errorf("an empty variable counted: %q from %s", c.Cluster, c.Source("cluster"))
			}
		})
	}
}

func TestLoad_stateDirectoryIsTheDefaultForData(t *testing.T) {
	vars := env("STATE_DIRECTORY", "/var/lib/edged:/var/lib/other")
	c, err := Load(Inputs{LookupEnv: vars})
	if err != nil || c.DataDir != "/var/lib/edged" || c.Source("data-dir") != "$STATE_DIRECTORY" {
		t.Errorf("got %q from %s, %v", c.DataDir, c.Source("data-dir"), err)
	}
	c, err = Load(Inputs{LookupEnv: vars, Flags: map[string][]string{"data-dir": {"/data"}}})
	if err != nil || c.DataDir != "/data" {
		t.Errorf("got %q, %v", c.DataDir, err)
	}
}

// One fault of each kind at once: every one must be named, with its place.
func TestLoad_listsEveryFault(t *testing.T) {
	file := write(t, "edged.toml", `# comment
data_dir = "/x"
Bootstrap-Expect = 3
zone = 5
join = "a:1"
bootstrap-expect = "three"
kafka-addr = ":7400"

[log]
level = "debug"
`)
	_, err := Load(Inputs{File: file, LookupEnv: env("EDGED_LOG_LEVEL", "loud", "EDGED_BOOTSTRAP_EXPECT", "many"),
		Flags: map[string][]string{"cluster": {"a b"}, "join": {"pi1"}}})
	want := []string{
		file + `:2: unknown setting "data_dir"; did you mean data-dir?`,
		file + `:3: unknown setting "Bootstrap-Expect"; did you mean bootstrap-expect?`,
		file + `:4: zone needs a text in quotes`,
		file + `:5: join needs a list of texts, such as ["pi1:7946", "pi2:7946"]`,
		file + `:6: bootstrap-expect needs a whole number without quotes`,
		file + ":9: unknown setting \"log\"; `edged config show` lists all",
		`bootstrap-expect (EDGED_BOOTSTRAP_EXPECT) is "many"; it is a whole number`,
		`cluster (--cluster) has the character ' '; a name has the characters a-z A-Z 0-9 . _ -`,
		`kafka-addr (edged.toml:7) is ":7400", but port 7400 is already taken by native-addr`,
		`join (--join) is "pi1"; it needs the form HOST:PORT, such as 192.168.1.5:7400, [fd00::5]:7400 or :7400`,
		`log-level (EDGED_LOG_LEVEL) is "loud"; it is one of debug, info, warn, error`,
	}
	if got := faults(t, err); !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestLoad_refusesWhatIsNoConfigurationFile(t *testing.T) {
	for name, tc := range map[string]struct{ path, want string }{
		"missing":   {filepath.Join(t.TempDir(), "none.toml"), "no such file or directory"},
		"directory": {t.TempDir(), "is a directory"},
		"huge":      {write(t, "huge.toml", strings.Repeat("#", maxConfigFileBytes+1)), "is larger than 65536 bytes"},
		"syntax":    {write(t, "bad.toml", "zone = \"a\"\nzone = \n"), "bad.toml:2: "},
		"twice":     {write(t, "twice.toml", "zone = \"a\"\nzone = \"b\"\n"), "twice.toml:2: "},
	} {
		_, err := Load(Inputs{File: tc.path})
		if got := faults(t, err); len(got) != 1 || !strings.Contains(got[0], tc.want) || strings.Contains(got[0], "\n") {
			t.Errorf("%s: got %q, want one line with %q", name, got, tc.want)
		}
	}
}

func TestValidate_eachFaultIsNamed(t *testing.T) {
	for _, tc := range []struct {
		change func(*Config)
		want   string // "" is valid
	}{
		{func(c *Config) { c.DataDir = "" }, "data-dir is empty"},
		{func(c *Config) { c.NodeName = strings.Repeat("n", 65) }, "node-name has 65 characters; at most 64"},
		{func(c *Config) { c.NodeName = "" }, "node-name is empty"},
		{func(c *Config) { c.NodeName = "pi\xff" }, "node-name has the character"},
		{func(c *Config) { c.Zone = "küche" }, "zone has the character 'ü'"},
		{func(c *Config) { c.Zone = "" }, ""},
		{func(c *Config) { c.NativeAddr = "7400" }, "native-addr is \"7400\"; it needs the form HOST:PORT"},
		{func(c *Config) { c.NativeAddr = ":70000" }, "native-addr is \":70000\"; the port is a number from 0 to 65535"},
		{func(c *Config) { c.NativeAddr = ":-1" }, "the port is a number"},
		{func(c *Config) { c.NativeAddr = "fd00::5:7400" }, "native-addr is \"fd00::5:7400\"; it needs the form"},
		{func(c *Config) { c.NativeAddr = "[fd00::5]:7400" }, ""},
		{func(c *Config) { c.NativeAddr = "tcp://x:1" }, "native-addr"},
		{func(c *Config) { c.NativeAddr, c.KafkaAddr, c.GossipAddr, c.HTTPAddr = ":0", ":0", ":0", ":0" }, ""},
		{func(c *Config) { c.HTTPAddr = "127.0.0.1:9092" }, "http-addr is \"127.0.0.1:9092\", but port 9092 is already taken by kafka-addr"},
		{func(c *Config) { c.HTTPAddr, c.KafkaAddr = "127.0.0.1:9092", "127.0.0.2:9092" }, ""},
		{func(c *Config) { c.Advertise = "0.0.0.0" }, "advertise is 0.0.0.0, which nobody can connect to"},
		{func(c *Config) { c.Advertise = "::" }, "advertise is ::, which nobody can connect to"},
		{func(c *Config) { c.Advertise = "[::]" }, "nobody can connect to"},
		{func(c *Config) { c.Advertise = "224.0.0.1" }, "nobody can connect to"},
		{func(c *Config) { c.Advertise = "pi1:7400" }, "it is a host without a port"},
		{func(c *Config) { c.Advertise = "fd00::5" }, ""},
		{func(c *Config) { c.Advertise = "pi1.local" }, ""},
		{func(c *Config) { c.Join = []string{"pi1:0"} }, "join \"pi1:0\" needs a host and a port"},
		{func(c *Config) { c.Join = []string{":7946"} }, "join \":7946\" needs a host and a port"},
		{func(c *Config) { c.Join = slices.Repeat([]string{"pi1:7946"}, 65) }, "join has 65 addresses; at most 64"},
		{func(c *Config) { c.BootstrapExpect = -1 }, "bootstrap-expect is -1"},
		{func(c *Config) { c.BootstrapExpect = 16 }, "bootstrap-expect is 16; it is 1 to 15"},
		{func(c *Config) { c.LogLevel = "INFO" }, "log-level is \"INFO\"; it is one of"},
		{func(c *Config) { c.LogFormat = "xml" }, "log-format is \"xml\"; it is one of text, json"},
	} {
		c := DefaultConfig()
		c.NodeName = "pi1"
		tc.change(&c)
		err := c.Validate()
		if tc.want == "" {
			if err != nil {
				t.Errorf("got %v, want none", err)
			}
			continue
		}
		if err == nil {
			t.Errorf("no error, want %q", tc.want)
			continue
		}
		if got := faults(t, err); len(got) != 1 || !strings.Contains(got[0], tc.want) {
			t.Errorf("got %q, want one fault with %q", got, tc.want)
		}
	}
}

func TestClusterSecret(t *testing.T) {
	key := strings.Repeat("k", 32)
	good := write(t, "secret", base64.StdEncoding.EncodeToString([]byte(key))+"\n")
	open := write(t, "open", base64.StdEncoding.EncodeToString([]byte(key)))
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ path, want string }{
		{good, ""},
		{open, "every user of this machine can read"},
		{write(t, "short", "c2hvcnQ="), "does not hold 16, 24 or 32 bytes"},
		{write(t, "text", "correct horse"), "does not hold 16, 24 or 32 bytes"},
		{filepath.Join(t.TempDir(), "none"), "no such file"},
	} {
		got, err := Config{ClusterSecretFile: tc.path}.ClusterSecret()
		if tc.want == "" && (err != nil || string(got) != key) {
			t.Errorf("%s: got %q, %v", tc.path, got, err)
		}
		if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v, want %q", tc.path, err, tc.want)
		}
	}
	if got, err := (Config{}).ClusterSecret(); got != nil || err != nil {
		t.Errorf("without a file: %q, %v", got, err)
	}
}

func TestAdvertiseHost(t *testing.T) {
	addrs := func(pairs ...string) []ifaceAddr {
		var all []ifaceAddr
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, ifaceAddr{pairs[i], netip.MustParseAddr(pairs[i+1])})
		}
		return all
	}
	lo := []string{"lo", "127.0.0.1", "lo", "::1"}
	for name, tc := range map[string]struct {
		change func(*Config)
		route  string
		addrs  []string
		want   string // host, or after "!" a part of the error
	}{
		"default route":           {nil, "192.168.1.5", []string{"eth0", "192.168.1.5", "wlan0", "10.0.0.7"}, "192.168.1.5"},
		"no route, one address":   {nil, "", append(lo, "eth0", "192.168.1.5", "eth0", "fe80::1"), "192.168.1.5"},
		"no route, v4 before v6":  {nil, "", []string{"eth0", "fd00::5", "eth0", "192.168.1.5"}, "192.168.1.5"},
		"no route, only v6":       {nil, "", []string{"eth0", "fd00::5", "eth0", "fe80::1"}, "fd00::5"},
		"no route, containers":    {nil, "", []string{"docker0", "172.17.0.1", "br-12ab", "172.18.0.1", "eth0", "192.168.1.5"}, "192.168.1.5"},
		"no route, two addresses": {nil, "", []string{"eth0", "192.168.1.5", "wlan0", "10.0.0.7"}, "!eth0 192.168.1.5, wlan0 10.0.0.7"},
		"no network, alone":       {nil, "", lo, "127.0.0.1"},
		"no network, to join":     {func(c *Config) { c.Join = []string{"pi1:7946"} }, "", lo, "127.0.0.1"},
		"no network, to form":     {func(c *Config) { c.BootstrapExpect = 3 }, "", lo, "127.0.0.1"},
		"link-local route":        {nil, "169.254.3.4", append(lo, "eth0", "169.254.3.4"), "127.0.0.1"},
		"bound to loopback": {func(c *Config) {
			c.NativeAddr, c.GossipAddr, c.KafkaAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
		}, "192.168.1.5", nil, "127.0.0.1"},
		"native bound":            {func(c *Config) { c.NativeAddr = "10.0.0.7:7400" }, "192.168.1.5", nil, "10.0.0.7"},
		"bound to different":      {func(c *Config) { c.NativeAddr, c.KafkaAddr = "10.0.0.7:7400", "192.168.1.5:9092" }, "192.168.1.5", nil, "!different addresses (10.0.0.7, 192.168.1.5)"},
		"set to an address":       {func(c *Config) { c.Advertise = "[fd00::9]" }, "192.168.1.5", nil, "fd00::9"},
		"set to a name":           {func(c *Config) { c.Advertise = "pi1.local" }, "192.168.1.5", lo, "pi1.local"},
		"set to an interface":     {func(c *Config) { c.Advertise = "wlan0" }, "192.168.1.5", []string{"eth0", "192.168.1.5", "wlan0", "fd00::7", "wlan0", "10.0.0.7"}, "10.0.0.7"},
		"interface without addr":  {func(c *Config) { c.Advertise = "wlan0" }, "192.168.1.5", []string{"eth0", "192.168.1.5", "wlan0", "fe80::7"}, "127.0.0.1"},
		"name that leads nowhere": {func(c *Config) { c.Advertise = "nowhere.local" }, "192.168.1.5", lo, "nowhere.local"},
	} {
		t.Run(name, func(t *testing.T) {
			c := DefaultConfig()
			if tc.change != nil {
				tc.change(&c)
			}
			nw := network{
				source: func(family string) (netip.Addr, bool) {
					if tc.route == "" || family != "udp4" {
						return netip.Addr{}, false
					}
					return netip.MustParseAddr(tc.route), true
				},
				addrs:   func() ([]ifaceAddr, error) { return addrs(tc.addrs...), nil },
				resolve: func(name string) (netip.Addr, bool) { return netip.MustParseAddr("192.168.1.5"), name == "pi1.local" },
			}
			p, err := c.place(nw)
			host, why := p.host, p.why
			if part, isErr := strings.CutPrefix(tc.want, "!"); isErr {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("got %q (%s), %v; want an error with %q", host, why, err, part)
				}
				return
			}
			if err != nil || host != tc.want || why == "" {
				t.Errorf("got %q (%s), %v; want %q", host, why, err, tc.want)
			}
			bound, set := name == "bound to loopback", name == "set to an address" || name == "native bound"
			if p.waits != (p.ip == loopback && !bound) || p.follows == (bound || set) || net.ParseIP(p.ip) == nil {
				t.Errorf("%+v", p)
			}
		})
	}
}

func TestTOML_isReadBackAsItWas(t *testing.T) {
	c := DefaultConfig()
	c.NodeName, c.DataDir, c.Join, c.BootstrapExpect = "pi1", "/data/\"q\\\t\x7fü", []string{"pi1:1", "pi2:2"}, 3
	got, err := Load(Inputs{File: write(t, "edged.toml", c.TOML())})
	if err != nil {
		t.Fatal(err)
	}
	got.sources = nil
	if !reflect.DeepEqual(got, c) {
		t.Errorf("got %+v, want %+v", got, c)
	}
}

// Laws: no panic; an error is a *ConfigError whose faults are single lines; what is
// taken is valid and, printed, is taken again as the same.
func FuzzLoad_file(f *testing.F) {
	f.Add("data-dir = \"/x\"\njoin = [\"a:1\"]\n")
	f.Add("[log]\nlevel = 1\n\"\" = 2\n")
	f.Add("bootstrap-expect = 99999999999999999999\n")
	f.Add("join = [1, [2]]\nzone.a = 1\nadvertise = \"\\u0000\"")
	f.Add("data-dir = \"\"\"\nx\n\"\"\"\nzone = 1979-05-27T07:32:00Z")
	f.Fuzz(func(t *testing.T, text string) {
		l := loader{c: DefaultConfig()}
		l.c.NodeName, l.c.sources = "pi1", map[string]string{}
		l.toml("f.toml", "f.toml", text)
		for _, fault := range l.faults {
			if !strings.HasPrefix(fault, "f.toml:") {
				t.Errorf("fault without a place: %q", fault)
			}
			if strings.ContainsAny(fault, "\n\r") {
				t.Errorf("fault of several lines: %q", fault)
			}
		}
		if len(l.faults) > 0 || l.c.ClusterSecretFile != "" {
			return
		}
		if err := l.c.Validate(); err != nil {
			faults(t, err)
			return
		}
		again := loader{c: DefaultConfig()}
		again.c.sources = map[string]string{}
		again.toml("g.toml", "g.toml", l.c.TOML())
		l.c.sources, again.c.sources = nil, nil
		if len(l.c.Join) == 0 && len(again.c.Join) == 0 {
			l.c.Join, again.c.Join = nil, nil // [] and no list are the same
		}
		if len(again.faults) > 0 || !reflect.DeepEqual(again.c, l.c) {
			t.Errorf("printed and read back:\n%+v\n%+v\n%q", l.c, again.c, again.faults)
		}
	})
}

// A machine may have any name or none; the node starts without a setting all the same.
func TestDefaultConfig_nodeNameIsOneThatANodeMayHave(t *testing.T) {
	for host, want := range map[string]string{
		"pi1": "pi1", "Pi-1.local": "Pi-1.local", "(none)": "edged", "": "edged", "my pi": "my-pi", "küche": "k-che", "---": "edged", strings.Repeat("a", 100): strings.Repeat("a", 64),
	} {
		c := DefaultConfig()
		c.NodeName = nodeName(host)
		if err := c.Validate(); err != nil || c.NodeName != want {
			t.Errorf("%q: %q, %v", host, c.NodeName, err)
		}
	}
}

func TestStrayVariables(t *testing.T) {
	for env, want := range map[string]string{
		"EDGED_DATA_DIR=/x": "", "EDGED_CONFIG=/x": "", "EDGED_BOGUS=": "", "HOME=/": "", "EDGEDX=1": "",
		"EDGED_SERVICE_HOST=10.0.0.1": "", "EDGED_PORT=tcp://10.0.0.1:7400": "", "EDGED_KAFKA_PORT_9092_TCP_ADDR=10.0.0.1": "",
		"EDGED_BOGUS=1":       "`edged config show` lists all",
		"EDGED_PORT=7400":     "EDGED_PORT names no setting",
		"EDGED_DATADIR=/x":    "did you mean EDGED_DATA_DIR?",
		"EDGED_LOGLEVEL=info": "did you mean EDGED_LOG_LEVEL?",
		"EDGED_JOINS=a:1":     "did you mean EDGED_JOIN?",
		"EDGED_KAFKA_ADRR=:1": "did you mean EDGED_KAFKA_ADDR?",
	} {
		if got := strings.Join(StrayVariables([]string{env}), "\n"); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q", env, got)
		}
	}
}
