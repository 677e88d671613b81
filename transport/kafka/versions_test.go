package kafka

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// advertised is what clients of all ages need to see, and nothing that is half done.
var wantAdvertised = map[int16][2]int16{
	0: {0, 11}, 1: {4, 16}, 2: {1, 8}, 3: {0, 12}, 8: {2, 9}, 9: {1, 9}, 10: {0, 5}, 11: {0, 9}, 12: {0, 4}, 13: {0, 5}, 14: {0, 5},
	15: {0, 5}, 16: {0, 5}, 17: {0, 1}, 18: {0, 4}, 19: {0, 7}, 20: {0, 6}, 21: {0, 2}, 22: {0, 5}, 23: {0, 4}, 32: {0, 4}, 33: {0, 2},
	35: {0, 4}, 36: {0, 2}, 37: {0, 3}, 42: {0, 2}, 43: {0, 2}, 44: {0, 1}, 46: {0, 0}, 47: {0, 0}, 60: {0, 1},
}

var groupKeys = []int16{8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47}

func TestApiVersions_advertisesWhatIsServed(t *testing.T) {
	for version := range int16(5) {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "test", "1.0"
		resp := ask[*kmsg.ApiVersionsResponse](start(t).dial(), req, version)
		got := map[int16][2]int16{}
		for _, k := range resp.ApiKeys {
			got[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
		}
		for key, want := range wantAdvertised {
			if got[key] != want {
				t.Errorf("v%d: %s is advertised as %v, want %v", version, kmsg.NameForKey(key), got[key], want)
			}
		}
		if len(got) != len(wantAdvertised) || resp.ErrorCode != 0 || len(resp.SupportedFeatures) != 0 {
			t.Errorf("v%d: %d keys, error %d, features %v", version, len(got), resp.ErrorCode, resp.SupportedFeatures)
		}
	}
}

// Some clients guess a release from the versions and then speak as that one does.
func TestApiVersions_lookLikeARelease(t *testing.T) {
	resp := ask[*kmsg.ApiVersionsResponse](start(t).dial(), kmsg.NewPtrApiVersionsRequest(), 0)
	v := kversion.FromApiVersionsResponse(resp)
	for _, max := range resp.ApiKeys {
		if most, ok := kversion.V3_9_0().LookupMaxKeyVersion(max.ApiKey); !ok || most < max.MaxVersion {
			t.Errorf("%s up to %d, Kafka 3.9 has %d", kmsg.NameForKey(max.ApiKey), max.MaxVersion, most)
		}
	}
	t.Log(v.VersionGuess())
}

func TestApiVersions_unknownVersionIsAnsweredInTheFirst(t *testing.T) {
	for _, version := range []int16{5, 99, -1} {
		c := start(t).dial()
		// Flexible or not, the client's header is of no interest: nothing behind the version is read.
		req := kmsg.NewPtrApiVersionsRequest()
		correlation := c.send(req, version)
		req.SetVersion(0)
		resp := c.receive(req, correlation).(*kmsg.ApiVersionsResponse)
		if resp.ErrorCode != kerr.UnsupportedVersion.Code || len(resp.ApiKeys) != len(wantAdvertised) {
			t.Errorf("version %d: error %d with %d keys", version, resp.ErrorCode, len(resp.ApiKeys))
		}
		// The connection lives on: the client asks again in a version that it has seen.
		if resp := ask[*kmsg.ApiVersionsResponse](c, kmsg.NewPtrApiVersionsRequest(), 0); resp.ErrorCode != 0 {
			t.Errorf("after version %d: error %d", version, resp.ErrorCode)
		}
	}
}

func TestApiVersions_checksTheNameOfTheSoftware(t *testing.T) {
	c := start(t).dial()
	for _, x := range []struct {
		name, version string
		want          int16
	}{{"apache-kafka-java", "3.9.0", 0}, {"", "1", 42}, {"a b", "1", 42}, {"-a", "1", 42}, {"a", "1-", 42}, {"a", "", 42}} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = x.name, x.version
		if resp := ask[*kmsg.ApiVersionsResponse](c, req, 3); resp.ErrorCode != x.want {
			t.Errorf("%q %q: error %d, want %d", x.name, x.version, resp.ErrorCode, x.want)
		}
	}
}

func TestApiVersions_withoutGroupsNothingOfThem(t *testing.T) {
	b := start(t, func(c *Config) { c.Groups = nil })
	resp := ask[*kmsg.ApiVersionsResponse](b.dial(), kmsg.NewPtrApiVersionsRequest(), 0)
	for _, k := range resp.ApiKeys {
		if slices.Contains(groupKeys, k.ApiKey) {
			t.Errorf("%s is advertised", kmsg.NameForKey(k.ApiKey))
		}
	}
	c := b.dial()
	c.send(kmsg.NewPtrFindCoordinatorRequest(), 0)
	c.gone()
}

func TestSasl_isAnsweredAsOnAPlainListener(t *testing.T) {
	c := start(t).dial()
	hand := kmsg.NewPtrSASLHandshakeRequest()
	hand.Mechanism = "PLAIN"
	for v := range int16(2) {
		if resp := ask[*kmsg.SASLHandshakeResponse](c, hand, v); resp.ErrorCode != kerr.IllegalSaslState.Code {
			t.Errorf("handshake v%d: %d", v, resp.ErrorCode)
		}
	}
	if resp := ask[*kmsg.SASLAuthenticateResponse](c, kmsg.NewPtrSASLAuthenticateRequest(), 2); resp.ErrorCode != kerr.IllegalSaslState.Code {
		t.Errorf("authenticate: %d", resp.ErrorCode)
	}
}
