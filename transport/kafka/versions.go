package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxKey is the highest API key that may be served.
const maxKey = 95

// api is one request that this package serves.
type api struct {
	name     string
	min, max int16 // advertised
	// served is the lowest version that is really served, where that is above min: some old clients
	// look whether a version is advertised and never use it.
	served int16
	groups bool // only with Config.Groups
	// empty makes a request of this kind. kmsg.RequestForKey would too, and would keep the code of every
	// other kind, served or not, in the program: 1 MB.
	empty func() kmsg.Request
	serve func(*call) kmsg.Response
}

// apis is filled by the init functions of the files of each key, and never changes after that.
// Entries without a serve function are keys that are not known here.
var apis [maxKey + 1]api

// option changes a registration.
type option func(*api)

// servedFrom answers lower versions with UNSUPPORTED_VERSION.
func servedFrom(v int16) option { return func(a *api) { a.served = v } }

// ofGroups is for what needs consumer groups.
func ofGroups(a *api) { a.groups = true }

// request is a pointer to a message of kmsg that is a request.
type request[T any] interface {
	*T
	kmsg.Request
	Default()
}

// register says which versions of a request are advertised and who answers it.
func register[Q request[T], T any](min, max int16, serve func(*call, Q) kmsg.Response, options ...option) {
	var q Q
	key := q.Key()
	if most := q.MaxVersion(); max > most || min > max || apis[key].serve != nil {
		panic(fmt.Sprintf("kafka: key %d is registered twice or with versions %d to %d of at most %d", key, min, max, most))
	}
	a := api{name: kmsg.NameForKey(key), min: min, max: max}
	a.empty = func() kmsg.Request { q := Q(new(T)); q.Default(); return q }
	a.serve = func(c *call) kmsg.Response { return serve(c, c.req.(Q)) }
	for _, o := range options {
		o(&a)
	}
	apis[key] = a
}

// lookup finds who answers a key.
func (s *Server) lookup(key int16) (api, bool) {
	if key < 0 || key > maxKey {
		return api{}, false
	}
	a := apis[key]
	return a, a.serve != nil && (!a.groups || s.cfg.Groups != nil)
}
