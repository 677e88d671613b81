package node

import (
	"reflect"
)

// Reload takes over from cfg what can change while the node runs, or nothing at all: the error is a
// *ConfigError that names every setting that has changed and needs a restart.
func (n *Node) Reload(cfg Config) error {
	v := validator{c: cfg}
	for _, s := range Settings() {
		if was, is := n.cfg.field(s.Name), cfg.field(s.Name); !reflect.DeepEqual(was.Interface(), is.Interface()) {
			v.fault(s.Name, "is %v now and was %v; it takes effect with a restart", is, was)
		}
	}
	return v.err()
}
