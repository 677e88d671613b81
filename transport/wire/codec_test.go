package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"edged/record"
)

// messages is one of each message there is.
func messages() []Message {
	return []Message{
		&HelloRequest{}, &HelloInfo{}, &MetadataRequest{}, &Metadata{}, &ProduceRequest{}, &ProduceResponse{},
		&FetchRequest{}, &FetchResponse{}, &OffsetsRequest{}, &OffsetsResponse{}, &ProducerIDRequest{}, &ProducerIDResponse{},
		&CreateTopicRequest{}, &CreateTopicResponse{}, &DeleteTopicRequest{}, &AlterTopicRequest{}, &TransferLeaderRequest{},
		&TransferLeaderResponse{}, &LeaderHistoryRequest{}, &LeaderHistoryResponse{}, &StatusRequest{}, &Status{},
		&DescribeNodeRequest{}, &NodeDescription{}, &RemoveNodeRequest{}, &RemoveNodeResponse{}, &ListGroupsRequest{}, &ListGroupsResponse{}, &DescribeGroupRequest{},
		&GroupDescription{}, &DeleteGroupRequest{}, &CommitGroupRequest{}, &Empty{},
	}
}

// fill sets every field of a message that goes on the wire to something of its own.
func fill(v reflect.Value, r *rand.Rand) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.UnixMilli(1 + r.Int64N(1<<41)).UTC()))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), r)
		}
	case reflect.Slice:
		n := 1 + r.IntN(3)
		if v.Type().Elem().Kind() == reflect.Uint8 {
			n = r.IntN(3 * inlineBlob)
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(v.Index(i), r)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(4) {
			v.SetMapIndex(reflect.ValueOf(fmt.Sprint("k", r.Int())), reflect.ValueOf(fmt.Sprint("v", r.Int())))
		}
	case reflect.String:
		v.SetString(strings.Repeat("é", r.IntN(200)))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Uint8:
		v.SetUint(uint64(r.Uint32() & 0xff))
	case reflect.Uint16:
		v.SetUint(uint64(r.Uint32() & 0xffff))
	case reflect.Uint64:
		v.SetUint(r.Uint64() >> 1)
	case reflect.Int16:
		v.SetInt(int64(int16(r.Uint32())))
	case reflect.Int32:
		v.SetInt(int64(int32(r.Uint32())))
	case reflect.Int64:
		v.SetInt([]int64{r.Int64(), -1, 0, math.MinInt64, math.MaxInt64}[r.IntN(5)])
	case reflect.Func, reflect.Interface: // Reserve is not on the wire; errors have a test of their own
	default:
		panic("no way to fill a " + v.Kind().String())
	}
}

func body(t testing.TB, m Message) []byte {
	t.Helper()
	w := newWriter()
	w.out.Write(make([]byte, lengthSize))
	w.message(m)
	f, err := w.finish()
	if err != nil {
		t.Fatalf("%T: %v", m, err)
	}
	return bytes.Join(f.Pieces, nil)[lengthSize:]
}

func TestMessages_comeBackAsTheyWere(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		for _, m := range messages() {
			fill(reflect.ValueOf(m).Elem(), r)
			raw := body(t, m)
			back := reflect.New(reflect.TypeOf(m).Elem()).Interface().(Message)
			rd := newReader(raw, maxResponseElements)
			rd.message(back)
			if rd.err != nil {
				t.Fatalf("%T: %v", m, rd.err)
			}
			if rd.src.Len() != 0 {
				t.Fatalf("%T: %d bytes left", m, rd.src.Len())
			}
			if want, got := fmt.Sprintf("%+v", m), fmt.Sprintf("%+v", back); want != got {
				t.Fatalf("%T:\nsent %s\ngot  %s", m, want, got)
			}
		}
	}
}

// A client or node of the next version sends more fields, one of the last version fewer.
func TestMessages_otherAgesAreUnderstood(t *testing.T) {
	full := body(t, &OffsetsRequest{Topic: "t", Partition: 7, At: -2})
	longer := append([]byte{full[0] + 2}, full[1:]...)
	longer = append(longer, 0x93, 0x01, 0x81, 0xa1, 'k', 0xc4, 1, 9, 0xc0, 0xd6, 1, 2, 3, 4, 5) // [1, {"k": bin}, nil], ext
	shorter := append([]byte{full[0] - 2}, full[1:3]...)
	for name, c := range map[string]struct {
		raw  []byte
		want OffsetsRequest
	}{
		"longer":  {longer, OffsetsRequest{Topic: "t", Partition: 7, At: -2}},
		"shorter": {shorter, OffsetsRequest{Topic: "t"}},
		"nil":     {[]byte{0xc0}, OffsetsRequest{}},
	} {
		var got OffsetsRequest
		w := newReader(c.raw, maxRequestElements)
		w.message(&got)
		if w.err != nil || got != c.want || w.src.Len() != 0 {
			t.Errorf("%s: %+v, err %v, %d bytes left", name, got, w.err, w.src.Len())
		}
	}
}

func TestMetadataRequest_nilIsNotEmpty(t *testing.T) {
	for _, topics := range [][]string{nil, {}, {"a"}} {
		w := newReader(body(t, &MetadataRequest{Topics: topics}), maxRequestElements)
		var back MetadataRequest
		w.message(&back)
		if w.err != nil || !reflect.DeepEqual(back.Topics, topics) {
			t.Errorf("%#v came back as %#v, err %v", topics, back.Topics, w.err)
		}
	}
}

// What a stranger claims is compared with what is there before memory is given for it.
func TestReader_refusesAbsurdClaims(t *testing.T) {
	deep := append([]byte{0x94, 0xa0, 0, 0}, bytes.Repeat([]byte{0x91}, 1<<16)...)
	many := append([]byte{0x91, 0xdc, 0x7f, 0xff}, bytes.Repeat([]byte{0xa0}, 0x7fff)...)
	for _, c := range []struct {
		name, want string
		into       Message
		raw        []byte
	}{
		{"array32", "claims 4294967295 elements", &MetadataRequest{}, []byte{0x91, 0xdd, 0xff, 0xff, 0xff, 0xff}},
		{"array of more than there is", "claims 100 elements", &MetadataRequest{}, []byte{0x91, 0xdc, 0, 100, 0xa0}},
		{"map32", "claims 2147483647 elements", &CreateTopicRequest{}, []byte{0x94, 0xa0, 0, 0, 0xdf, 0x7f, 0xff, 0xff, 0xff}},
		{"str32", "claims 4026531840 bytes", &DeleteTopicRequest{}, []byte{0x91, 0xdb, 0xf0, 0, 0, 0}},
		{"bin32", "claims 268435456 bytes", &ProduceRequest{}, []byte{0x96, 0xa0, 0, 0, 0, 0, 0xc6, 0x10, 0, 0, 0}},
		{"long string", "a string of 5000 bytes", &DeleteTopicRequest{}, append([]byte{0x91, 0xda, 0x13, 0x88}, make([]byte, 5000)...)},
		{"number too large", "300000 does not fit", &CreateTopicRequest{}, []byte{0x93, 0xa0, 0, 0xce, 0, 4, 0x93, 0xe0}},
		{"negative where none can be", "does not fit", &HelloInfo{}, []byte{0x96, 0, 0xa0, 0xa0, 0xc2, 0, 0x91, 0x91, 0xff}},
		{"string for a number", "invalid code", &OffsetsRequest{}, []byte{0x92, 0xa0, 0xa1, 'x'}},
		{"nested", "nested more than", &OffsetsRequest{}, deep},
		{"elements", "too many list elements", &MetadataRequest{}, many},
		{"extension as map", "a map was expected", &CreateTopicRequest{}, []byte{0x94, 0xa0, 0, 0, 0xd4, 1, 2}},
		{"extension of nothing", "an extension claims", &OffsetsRequest{}, []byte{0x94, 0xa0, 0, 0, 0xc9, 0x7f, 0, 0, 0, 1}},
		{"cut short", "EOF", &OffsetsRequest{}, []byte{0x93, 0xa1, 't', 0}},
	} {
		w := newReader(c.raw, maxRequestElements)
		w.message(c.into)
		if w.err == nil || !strings.Contains(w.err.Error(), c.want) {
			t.Errorf("%s: error %v, wanted one with %q", c.name, w.err, c.want)
		}
	}
}

func TestErrors_surviveTheTrip(t *testing.T) {
	long := strings.Repeat("ü\n", maxErrorMessage)
	for _, c := range []struct {
		err  error
		want error
	}{
		{fmt.Errorf("topic %q: %w", "x", record.ErrUnknownTopic), record.ErrUnknownTopic},
		{errors.New("something else"), record.ErrInternal},
		{fmt.Errorf("%w: %s", record.ErrBusy, long), record.ErrBusy},
		{&record.NotLeaderError{Leader: 7, Addr: "h:1", Epoch: 3}, nil},
		{&record.NotLeaderError{Leader: record.NoNode, Epoch: 9}, nil},
	} {
		f, err := encodeResponse(5, c.err, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := ParseResponse(bytes.Join(f.Pieces, nil)[lengthSize:])
		if err != nil {
			t.Fatal(err)
		}
		if r.Correlation != 5 || strings.Contains(r.Err.Error(), "\n") {
			t.Errorf("correlation %d, error %q", r.Correlation, r.Err)
		}
		var nl *record.NotLeaderError
		if errors.As(c.err, &nl) {
			if !reflect.DeepEqual(r.Err, c.err) {
				t.Errorf("%#v came back as %#v", c.err, r.Err)
			}
			continue
		}
		if !errors.Is(r.Err, c.want) || record.Retriable(r.Err) != record.Retriable(c.err) {
			t.Errorf("%v came back as %#v", c.err, r.Err)
		}
		if len(c.err.Error()) < maxErrorMessage && r.Err.Error() != c.err.Error() {
			t.Errorf("text %q came back as %q", c.err, r.Err)
		}
	}
}

// What another msgpack library writes reads the same: it may choose wider numbers
// than we do.
func TestReader_takesWhatOtherLibrariesWrite(t *testing.T) {
	var out bytes.Buffer
	e := msgpack.NewEncoder(&out)
	must := func(errs ...error) {
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	must(e.EncodeArrayLen(7), e.EncodeString("t"), e.EncodeInt64(3), e.EncodeNil(), e.EncodeUint64(5), e.EncodeInt32(6), e.EncodeInt8(1), e.EncodeUint16(8))
	var got FetchRequest
	w := newReader(out.Bytes(), maxRequestElements)
	w.message(&got)
	want := FetchRequest{Topic: "t", Partition: 3, Offset: 5, MaxBytes: 6, MinBytes: 1, MaxWaitMs: 8}
	if w.err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, err %v", got, w.err)
	}
}

func TestBatch_aliasesTheFrame(t *testing.T) {
	raw := body(t, &ProduceRequest{Topic: "t", Batch: bytes.Repeat([]byte{7}, 2*inlineBlob)})
	var req ProduceRequest
	w := newReader(raw, maxRequestElements)
	w.message(&req)
	raw[bytes.LastIndexByte(raw, 7)] = 8
	if got := req.Batch[len(req.Batch)-1]; got != 8 {
		t.Error("the batch was copied")
	}
	if cap(req.Batch) != len(req.Batch) {
		t.Error("the batch can grow into what follows it")
	}
}

func TestAPI_hasAName(t *testing.T) {
	for _, v := range supported() {
		if strings.HasPrefix(v.API.String(), "api ") {
			t.Errorf("%d", v.API)
		}
	}
	if got := API(99).String(); got != "api 99" {
		t.Error(got)
	}
}

func FuzzRequest(f *testing.F) {
	for i, m := range messages() {
		frame, err := EncodeRequest(API(i), 1, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Join(frame.Pieces, nil)[lengthSize:])
	}
	f.Add([]byte{0x94, 0, 1, 1, 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, frame []byte) {
		if _, _, err := parseRequest(frame); err != nil {
			return
		}
		for _, m := range messages() {
			_, w, _ := parseRequest(frame)
			w.message(m)
			if w.err != nil {
				continue
			}
			// What was understood can be said again and is understood the same way.
			again := reflect.New(reflect.TypeOf(m).Elem()).Interface().(Message)
			rd := newReader(body(t, m), maxResponseElements)
			rd.message(again)
			if want, got := fmt.Sprintf("%+v", m), fmt.Sprintf("%+v", again); rd.err != nil || want != got {
				t.Fatalf("%T:\nfirst %s\nagain %s\nerr %v", m, want, got, rd.err)
			}
		}
	})
}

func FuzzResponse(f *testing.F) {
	for _, m := range messages() {
		frame, err := encodeResponse(1, &record.NotLeaderError{Leader: 1, Addr: "a:1"}, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Join(frame.Pieces, nil)[lengthSize:])
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		for _, m := range messages() {
			r, err := ParseResponse(frame)
			if err != nil {
				return
			}
			_ = r.Decode(m) // any error is fine, a panic is not
		}
	})
}
