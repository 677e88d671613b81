package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"edged/client"
	"edged/record"
)

func TestParsePosition(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	for text, want := range map[string]position{
		"start":                     {kind: fromStart},
		"end":                       {kind: fromEnd},
		"0":                         {kind: fromOffset, offset: 0},
		"9223372036854775807":       {kind: fromOffset, offset: 1<<63 - 1},
		"-1h":                       {kind: fromTime, time: now.Add(-time.Hour)},
		"-1h30m":                    {kind: fromTime, time: now.Add(-90 * time.Minute)},
		"2026-01-31T12:00:00+01:00": {kind: fromTime, time: time.Date(2026, 1, 31, 11, 0, 0, 0, time.UTC)},
	} {
		got, err := parsePosition(text, now)
		if err != nil || got.kind != want.kind || got.offset != want.offset || !got.time.Equal(want.time) {
			t.Errorf("%s: got %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1", "--1h", "beginning", "1h", "9223372036854775808", "-1000000h", "1969-01-01T00:00:00Z", "2026-01-31"} {
		if got, err := parsePosition(text, now); err == nil {
			t.Errorf("%q was taken as %+v", text, got)
		}
	}
}

func TestFormat(t *testing.T) {
	m := &client.Message{Topic: "t", Partition: 3, Epoch: 7, Record: record.Record{
		Offset: 42, Timestamp: 1_800_000_000_123, Key: []byte("k%"), Value: []byte("v\xff\x00"),
	}}
	null := &client.Message{Topic: "t"}
	empty := &client.Message{Topic: "t", Record: record.Record{Key: []byte{}, Value: []byte{}}}
	for _, tc := range []struct {
		format, null string
		m            *client.Message
		want         string
	}{
		{`%v\n`, "", m, "v\xff\x00\n"},
		{`%t/%p@%o e%e %T %I %k=%v\t%%\\\r\0.`, "", m, "t/3@42 e7 1800000000123 2027-01-15T08:00:00.123Z k%=v\xff\x00\t%\\\r\x00."},
		{`%k:%K,%v:%V`, "", null, ":-1,:-1"},
		{`%k:%K,%v:%V`, "NULL", null, "NULL:-1,NULL:-1"},
		{`%k:%K,%v:%V`, "NULL", empty, ":0,:0"},
		{``, "", m, ""},
		{`é`, "", m, "é"},
	} {
		f, err := parseFormat(tc.format, tc.null)
		if err != nil {
			t.Errorf("%q: %v", tc.format, err)
			continue
		}
		// Twice: a format is used for every record and must not keep anything.
		if got := string(f.append(f.append(nil, tc.m), tc.m)); got != tc.want+tc.want {
			t.Errorf("%q: got %q, want %q twice", tc.format, got, tc.want)
		}
	}
	for _, bad := range []string{"%", "a\\", "%x", `\x`, "%é", `100%`} {
		if _, err := parseFormat(bad, ""); err == nil || !strings.HasPrefix(err.Error(), "--format ") {
			t.Errorf("%q: got error %v", bad, err)
		}
	}
}

// The nine combinations of null, empty and text in key and value stay apart.
func TestToJSON_nullEmptyAndBytesStayApart(t *testing.T) {
	contents := [][]byte{nil, {}, []byte("x"), []byte(`{"base64":"/w=="}`), {0xff}}
	seen := map[string]string{}
	for _, k := range contents {
		for _, v := range contents {
			line, err := json.Marshal(toJSON(&client.Message{Topic: "t", Record: record.Record{Key: k, Value: v}}))
			if err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("%#v %#v", k, v)
			if other, ok := seen[string(line)]; ok {
				t.Errorf("%s and %s print alike: %s", name, other, line)
			}
			seen[string(line)] = name
		}
	}
	m := &client.Message{Topic: "t", Partition: 1, Epoch: 2, Record: record.Record{Offset: 3, Timestamp: 4, Key: []byte{0xff}}}
	line, err := json.Marshal(toJSON(m))
	want := `{"topic":"t","partition":1,"offset":3,"epoch":2,"timestamp":4,"key":{"base64":"/w=="},"value":null}`
	if err != nil || string(line) != want {
		t.Errorf("got %s, %v\nwant %s", line, err, want)
	}
}

func TestLines(t *testing.T) {
	show := func(b []byte) string {
		if b == nil {
			return "null"
		}
		return fmt.Sprintf("%q", b)
	}
	for _, tc := range []struct {
		name, in string
		l        lines
		want     []string
		err      string
	}{
		{"nothing", "", lines{}, nil, ""},
		{"values", "a\n\nb\r\nlast", lines{}, []string{`null "a"`, `null ""`, `null "b\r"`, `null "last"`}, ""},
		{"one key", "a\nb\n", lines{key: []byte("k")}, []string{`"k" "a"`, `"k" "b"`}, ""},
		{"separator", "k:v\n:v\nk:\nk:v:w\n", lines{separator: []byte(":")}, []string{`"k" "v"`, `"" "v"`, `"k" ""`, `"k" "v:w"`}, ""},
		{"no separator", "k:v\nkv\n", lines{separator: []byte(":")}, []string{`"k" "v"`}, `line 2 has no key separator ":"`},
		{"null", "-:v\nk:-\n-:-\n", lines{separator: []byte(":"), null: []byte("-")}, []string{`null "v"`, `"k" null`, `null null`}, ""},
		{"empty is null", "\na\n", lines{null: []byte{}}, []string{`null null`, `null "a"`}, ""},
		{"long", strings.Repeat("x", 100_000) + "\n", lines{}, []string{fmt.Sprintf("null %q", strings.Repeat("x", 100_000))}, ""},
		{"too long", "a\n" + strings.Repeat("x", maxLine+1), lines{}, []string{`null "a"`}, "line 2 is longer than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.l.in = bufio.NewReader(strings.NewReader(tc.in))
			var got []string
			for {
				k, v, err := tc.l.next()
				if err != nil {
					if tc.err == "" && !errors.Is(err, io.EOF) || tc.err != "" && !strings.Contains(err.Error(), tc.err) {
						t.Errorf("ended with %v, want %q", err, tc.err)
					}
					break
				}
				got = append(got, show(k)+" "+show(v))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q\nwant %q", got, tc.want)
			}
		})
	}
}

// Whatever a format is, it prints or is refused, and prints the same each time.
func FuzzParseFormat(f *testing.F) {
	f.Add(`%t %p %o %T %k %v\n`, "")
	f.Add(`%%%\`, "null")
	f.Fuzz(func(t *testing.T, text, null string) {
		parsed, err := parseFormat(text, null)
		if err != nil {
			return
		}
		m := &client.Message{Topic: "t"}
		if a, b := parsed.append(nil, m), parsed.append([]byte("x"), m); "x"+string(a) != string(b) {
			t.Errorf("%q prints %q, then %q", text, a, b)
		}
	})
}

// What consume --json prints, produce --from-json takes back as it was.
func TestFromJSON_isToJSONBackwards(t *testing.T) {
	for _, want := range []client.Record{
		{Key: nil, Value: []byte{}},
		{Key: []byte("k\n\"ü"), Value: []byte("v"), Timestamp: 1796133658135},
		{Key: []byte{0xff, 0}, Value: []byte{0x80}, Headers: []record.Header{{Key: "a", Value: []byte{0xfe}}, {Key: "b", Value: nil}, {Key: "a", Value: []byte("x")}}},
		{Key: []byte(`{"base64": "AA=="}`), Value: nil},
	} {
		line, err := json.Marshal(toJSON(&client.Message{Record: record.Record{Key: want.Key, Value: want.Value, Headers: want.Headers, Timestamp: want.Timestamp}}))
		if err != nil {
			t.Fatal(err)
		}
		l := lines{in: bufio.NewReader(bytes.NewReader(append(line, '\n'))), json: true}
		if got, err := l.record(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", line, got, err, want)
		}
	}
	for _, bad := range []string{"", "a", "[]", "1", `{"key":"k"}`, `{"value":7}`, `{"value":{}}`, `{"value":{"base64":"!"}}`} {
		l := lines{in: bufio.NewReader(strings.NewReader(bad + "\n")), json: true}
		if r, err := l.record(); err == nil || exitCode(err) != exitUsage {
			t.Errorf("%q: %+v, %v", bad, r, err)
		}
	}
}

func TestCountText(t *testing.T) {
	for want, got := range map[string]string{
		"1 node": countText(1, "node"), "0 nodes": countText(0, "node"), "2 entries": countText(2, "entry"), "1 entry": countText(1, "entry"),
		"2 days": countText(2, "day"), "3 ways": countText(3, "way"), "0 retries": countText(0, "retry"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
