package kafka

import (
	"regexp"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ApiVersions, key 18, versions 0 to 4.
//
// It answers from the registrations, so it cannot lie. A version that we do not know is answered in
// version 0 with UNSUPPORTED_VERSION and the list all the same (KIP-511): this is the one request
// that a client sends before it knows anything. No features are announced: transaction.version and
// group.version would switch clients to protocols that are not served here.
//
//	v3: flexible; the client tells its software's name and version
//	v4: nothing for us
func init() { register(0, 4, (*call).apiVersions) }

// softwareName is what Kafka takes as a name or version of a client's software.
var softwareName = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

// maxSoftwareName bounds in bytes what is kept for logs.
const maxSoftwareName = 128

func (q *call) apiVersions(req *kmsg.ApiVersionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if q.version >= 3 {
		name, version := req.ClientSoftwareName, req.ClientSoftwareVersion
		if !softwareName.MatchString(name) || !softwareName.MatchString(version) || len(name)+len(version) > maxSoftwareName {
			resp.ErrorCode = q.code(kerr.InvalidRequest)
			return resp
		}
		client := name + " " + version
		if q.conn.client.Swap(&client) == nil {
			q.conn.s.cfg.Logger.Debug("kafka client connected", "from", q.conn.nc.RemoteAddr(), "listener", q.conn.at.Name, "client", client)
		}
	}
	resp.ApiKeys = q.conn.s.advertised()
	return resp
}

// unknownApiVersions answers a version of this request that is not known.
func (q *call) unknownApiVersions() kmsg.Response {
	q.conn.s.metrics.badRequest(BadVersion)
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = q.code(kerr.UnsupportedVersion)
	resp.ApiKeys = q.conn.s.advertised()
	return resp
}

func (s *Server) advertised() []kmsg.ApiVersionsResponseApiKey {
	var keys []kmsg.ApiVersionsResponseApiKey
	for key := range int16(maxKey + 1) {
		if a, ok := s.lookup(key); ok {
			keys = append(keys, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MinVersion: a.min, MaxVersion: a.max})
		}
	}
	return keys
}
