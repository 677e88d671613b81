package node

import "reflect"

// Reload takes over from cfg what can change while the node runs (Setting.Reload), or nothing at all: the
// error is a *ConfigError that names every setting that has changed and needs a restart.
func (n *Node) Reload(cfg Config) error {
	v := validator{c: cfg}
	now := n.live.Load()
	for _, s := range Settings() {
		if was, is := now.field(s.Name), cfg.field(s.Name); !s.Reload && !reflect.DeepEqual(was.Interface(), is.Interface()) {
			v.fault(s.Name, "is %v now and was %v; it takes effect with a restart", is, was)
		}
	}
	if err := v.err(); err != nil {
		n.notes.add(eventConfig, "the settings were not taken: "+err.Error())
		return err
	}
	n.live.Store(&cfg)
	n.clock.vouch(cfg.ClockTrust == clockAlways)
	tbw, _ := parseBytes(cfg.CardTBW) // Validate has looked
	n.wear.made(tbw)
	n.notes.add(eventConfig, "the settings were read again")
	n.wake()
	return nil
}
