package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// SaslHandshake, key 17, versions 0 to 1, and SaslAuthenticate, key 36, versions 0 to 2.
//
// No listener asks for authentication, so both are answered as Kafka's plain listeners do. They are
// advertised because a client looks at the versions before it knows that.
func init() {
	register(0, 1, (*call).saslHandshake)
	register(0, 2, (*call).saslAuthenticate)
}

var errNoSASL = fmt.Errorf("%w: this listener asks for no authentication; use security.protocol=PLAINTEXT", kerr.IllegalSaslState)

func (q *call) saslHandshake(req *kmsg.SASLHandshakeRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
	resp.ErrorCode = q.code(errNoSASL)
	return resp
}

func (q *call) saslAuthenticate(req *kmsg.SASLAuthenticateRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
	resp.ErrorCode, resp.ErrorMessage = q.code(errNoSASL), message(errNoSASL)
	return resp
}
