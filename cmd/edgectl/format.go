package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"edged/client"
	"edged/record"
)

// format is a parsed --format: it appends one message to a buffer, piece by piece.
type format []func(dst []byte, m *client.Message) []byte

// parseFormat reads a printf-like text. %t topic, %p partition, %o offset, %e leader
// epoch, %T timestamp (ms since 1970), %I timestamp (RFC 3339), %k key, %v value, %K and
// %V their lengths in bytes (-1 for null), %h headers as name=value with commas between, %% a percent sign; \n \t \r \0 \\ as in C.
// null is what a null key or value prints as.
func parseFormat(text, null string) (format, error) {
	var f format
	var literal []byte
	flush := func() {
		if len(literal) > 0 {
			lit := string(literal)
			f = append(f, func(dst []byte, _ *client.Message) []byte { return append(dst, lit...) })
			literal = nil
		}
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c != '%' && c != '\\' {
			literal = append(literal, c)
			continue
		}
		if i++; i == len(text) {
			return nil, fmt.Errorf("--format ends in the middle of %q", string(c))
		}
		if c == '\\' {
			esc := strings.IndexByte(`ntr0\`, text[i])
			if esc < 0 {
				return nil, fmt.Errorf(`--format has \%c; known are \n \t \r \0 \\`, text[i])
			}
			literal = append(literal, "\n\t\r\x00\\"[esc])
			continue
		}
		if text[i] == '%' {
			literal = append(literal, '%')
			continue
		}
		piece := formatPiece(text[i], null)
		if piece == nil {
			return nil, fmt.Errorf("--format has %%%c; known are %%t %%p %%o %%e %%T %%I %%k %%K %%v %%V %%h %%%%", text[i])
		}
		flush()
		f = append(f, piece)
	}
	flush()
	return f, nil
}

func formatPiece(verb byte, null string) func([]byte, *client.Message) []byte {
	bytes := func(dst, b []byte) []byte {
		if b == nil {
			return append(dst, null...)
		}
		return append(dst, b...)
	}
	length := func(dst, b []byte) []byte {
		if b == nil {
			return append(dst, "-1"...)
		}
		return strconv.AppendInt(dst, int64(len(b)), 10)
	}
	switch verb {
	case 't':
		return func(dst []byte, m *client.Message) []byte { return append(dst, m.Topic...) }
	case 'p':
		return func(dst []byte, m *client.Message) []byte { return strconv.AppendInt(dst, int64(m.Partition), 10) }
	case 'o':
		return func(dst []byte, m *client.Message) []byte { return strconv.AppendInt(dst, int64(m.Offset), 10) }
	case 'e':
		return func(dst []byte, m *client.Message) []byte { return strconv.AppendInt(dst, int64(m.Epoch), 10) }
	case 'T':
		return func(dst []byte, m *client.Message) []byte { return strconv.AppendInt(dst, m.Timestamp, 10) }
	case 'I':
		return func(dst []byte, m *client.Message) []byte {
			return time.UnixMilli(m.Timestamp).UTC().AppendFormat(dst, "2006-01-02T15:04:05.000Z")
		}
	case 'k':
		return func(dst []byte, m *client.Message) []byte { return bytes(dst, m.Key) }
	case 'K':
		return func(dst []byte, m *client.Message) []byte { return length(dst, m.Key) }
	case 'v':
		return func(dst []byte, m *client.Message) []byte { return bytes(dst, m.Value) }
	case 'V':
		return func(dst []byte, m *client.Message) []byte { return length(dst, m.Value) }
	case 'h':
		return func(dst []byte, m *client.Message) []byte {
			for i, h := range m.Headers {
				if i > 0 {
					dst = append(dst, ',')
				}
				dst = bytes(append(append(dst, h.Key...), '='), h.Value)
			}
			return dst
		}
	}
	return nil
}

func (f format) append(dst []byte, m *client.Message) []byte {
	for _, piece := range f {
		dst = piece(dst, m)
	}
	return dst
}

// messageJSON is the line that consume --json prints for a record.
type messageJSON struct {
	Topic     string        `json:"topic"`
	Partition int32         `json:"partition"`
	Offset    record.Offset `json:"offset"`
	Epoch     record.Epoch  `json:"epoch"`
	Timestamp int64         `json:"timestamp"` // ms since 1970
	Key       any           `json:"key"`
	Value     any           `json:"value"`
	Headers   []headerJSON  `json:"headers,omitempty"`
}

type headerJSON struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
}

func toJSON(m *client.Message) messageJSON {
	j := messageJSON{
		Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Epoch: m.Epoch,
		Timestamp: m.Timestamp, Key: textJSON(m.Key), Value: textJSON(m.Value),
	}
	for _, h := range m.Headers {
		j.Headers = append(j.Headers, headerJSON{h.Key, textJSON(h.Value)})
	}
	return j
}

// textJSON is null for null, a string where the bytes are UTF-8, else {"base64": …}, so
// that no two contents look the same.
func textJSON(b []byte) any {
	switch {
	case b == nil:
		return nil
	case utf8.Valid(b):
		return string(b)
	}
	return map[string]string{"base64": base64.StdEncoding.EncodeToString(b)}
}

// fromJSON reads what consume --json printed: key, value, headers and timestamp. Offset and partition are the
// log's to give.
func fromJSON(line []byte) (r client.Record, err error) {
	var j struct {
		Key, Value json.RawMessage
		Timestamp  int64
		Headers    []struct {
			Key   string
			Value json.RawMessage
		}
	}
	if err := json.Unmarshal(line, &j); err != nil {
		return r, err
	}
	if j.Value == nil {
		return r, errors.New("it has no value")
	}
	r.Timestamp = j.Timestamp
	if r.Key, err = fromTextJSON(j.Key); err != nil {
		return r, err
	}
	if r.Value, err = fromTextJSON(j.Value); err != nil {
		return r, err
	}
	for _, h := range j.Headers {
		v, err := fromTextJSON(h.Value)
		if err != nil {
			return r, err
		}
		r.Headers = append(r.Headers, record.Header{Key: h.Key, Value: v})
	}
	return r, nil
}

// fromTextJSON is textJSON backwards.
func fromTextJSON(raw json.RawMessage) ([]byte, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if raw[0] == '"' {
		var text string
		err := json.Unmarshal(raw, &text)
		return []byte(text), err
	}
	var b struct{ Base64 []byte }
	if err := json.Unmarshal(raw, &b); err != nil {
		return nil, err
	}
	if b.Base64 == nil {
		return nil, fmt.Errorf("%.40q is no text, null or {\"base64\": …}", raw)
	}
	return b.Base64, nil
}
