package node

import (
	"math"
	"math/rand/v2"
	"net"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"edged/record"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// anyRequest makes requests out of what is likely to be something, and of what never is.
type anyRequest struct {
	*rand.Rand
	version int16
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func (a anyRequest) fill(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		if a.IntN(3) == 0 {
			v.SetZero()
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		a.fill(v.Elem(), depth)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "Version" && f.Name != "UnknownTags" {
				a.fill(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(a.bytes())
			return
		}
		n := pick(a.Rand, 0, 1, 1, 1, 2, 3)
		if n == 0 && a.IntN(2) == 0 {
			v.SetZero()
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			a.fill(v.Index(i), depth+1)
		}
	case reflect.Array: // an id
		for i := range v.Len() {
			v.Index(i).SetUint(uint64(pick(a.Rand, 0, 0, 1)))
		}
	case reflect.String:
		v.SetString(pick(a.Rand, "t", "t", "t", "t", "g", "g", "", "a b", "new", "member", "consumer", "range", "retention.ms", "cleanup.policy", "1", "-1", "compact", strings.Repeat("x", 300), "\x00\xff", "__groups", "i"))
	case reflect.Bool:
		v.SetBool(a.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		bits := v.Type().Bits()
		n := pick[int64](a.Rand, 0, 0, 0, 1, 1, 2, 3, 5, -1, -1, -2, 10, 100, 6000, 30000, math.MaxInt64>>(64-bits), math.MinInt64>>(64-bits))
		v.SetInt(n << (64 - bits) >> (64 - bits))
	case reflect.Float64:
		v.SetFloat(a.Float64())
	}
}

// bytes are a batch, a subscription, or nothing that makes sense.
func (a anyRequest) bytes() []byte {
	b := record.NewBuilder(pick(a.Rand, record.None, record.Gzip, record.Zstd), 1<<16)
	for range 1 + a.IntN(3) {
		b.Append(time.Now().UnixMilli(), pick(a.Rand, nil, []byte("k")), []byte("v"), nil)
	}
	batch := b.Build()
	switch a.IntN(5) {
	case 0:
		return nil
	case 1:
		return []byte("junk")
	case 2:
		batch[a.IntN(len(batch))] ^= byte(1 << a.IntN(8))
	case 3:
		sub := kmsg.ConsumerMemberMetadata{Version: int16(a.IntN(4)), Topics: []string{"t"}}
		return sub.AppendTo(nil)
	}
	return batch
}

// Whatever a client asks for in any request of any version, the node lives on, answers others, keeps no
// memory and no connection, and never has to say that it does not know what went wrong.
// EDGED_TEST_REQUESTS asks for more of them, EDGED_TEST_SEED for others.
func TestKafka_anyRequest(t *testing.T) {
	t.Parallel()
	count, seed := 1500, uint64(1)
	if s := os.Getenv("EDGED_TEST_REQUESTS"); s != "" {
		count, _ = strconv.Atoi(s)
	}
	if s := os.Getenv("EDGED_TEST_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	nodes := startCluster(t, 1)
	n := nodes[0]
	ask := kmsg.NewPtrApiVersionsRequest()
	ask.ClientSoftwareName, ask.ClientSoftwareVersion = "any", "1"
	versions := raw[*kmsg.ApiVersionsResponse](t, n, ask).ApiKeys
	r := rand.New(rand.NewPCG(seed, 0))
	unknown := func() int64 { return n.kafka.server.Metrics().Errors["UNKNOWN_SERVER_ERROR"] }
	for i := range count {
		k := versions[r.IntN(len(versions))]
		version := k.MinVersion + int16(r.IntN(int(k.MaxVersion-k.MinVersion)+1))
		req := kmsg.RequestForKey(k.ApiKey)
		req.SetVersion(version)
		anyRequest{r, version}.fill(reflect.ValueOf(req).Elem(), 0)
		req.SetVersion(version)
		before := unknown()
		if err := converse(n.Addrs().Kafka, req); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if unknown() != before {
			t.Errorf("request %d is answered with UNKNOWN_SERVER_ERROR: %s version %d, %+v", i, kmsg.NameForKey(k.ApiKey), version, req)
		}
	}
	c := kafkaClient(t, nodes)
	if _, err := kadm.NewClient(c).BrokerMetadata(within(t)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	c.Close()
	await(t, "all connections and their memory are gone", func() bool {
		m := n.kafka.server.Metrics()
		return m.Connections == 0 && m.RequestBytes == 0 && m.ResponseBytes == 0
	})
}

// converse sends one request and waits a moment for an answer: some have none, some wait for others.
func converse(addr string, req kmsg.Request) error {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(30 * time.Millisecond)); err != nil {
		return err
	}
	// No answer within that, or the end of the connection, may be what is fit.
	if _, err := nc.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("any")).AppendRequest(nil, req, 7)); err == nil {
		_, _ = nc.Read(make([]byte, 1))
	}
	return nil
}
