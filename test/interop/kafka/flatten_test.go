package kafka

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// flatten gives every field of an answer by its path. What may differ without a difference in meaning
// (ids, addresses, texts, the order of lists) gets a name that is the same for both servers.
func (c *conversation) flatten(resp kmsg.Response) map[string]string {
	out := map[string]string{}
	c.walk(out, "", reflect.ValueOf(resp).Elem())
	return out
}

func (c *conversation) walk(out map[string]string, path string, v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() || f.Name == "Version" {
			continue
		}
		at := strings.TrimPrefix(path+"."+f.Name, ".")
		if f.Name == "UnknownTags" {
			if n := v.Field(i).Addr().MethodByName("Len").Call(nil)[0].Int(); n != 0 {
				out[at] = fmt.Sprint(n)
			}
			continue
		}
		c.field(out, at, f.Name, v.Field(i))
	}
}

func (c *conversation) field(out map[string]string, at, name string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		c.walk(out, at, v)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			c.bytes(out, at, name, v)
			return
		}
		if v.IsNil() {
			out[at] = "null or none" // told apart by the encoding
			return
		}
		out[at] = fmt.Sprintf("%d of them", v.Len())
		seen := map[string]int{}
		for i := range v.Len() {
			key := c.key(name, v.Index(i))
			seen[key]++
			if n := seen[key]; n > 1 {
				key += "#" + strconv.Itoa(n)
			}
			c.field(out, at+"["+key+"]", name, v.Index(i))
		}
		if v.Len() == 0 {
			out[at] = "none"
		}
	case reflect.Pointer:
		if v.IsNil() {
			out[at] = "null"
			return
		}
		c.field(out, at, name, v.Elem())
	default:
		out[at] = c.scalar(name, v)
	}
}

// keys are the fields that say which element of a list is meant.
var keys = []string{"Topic", "TopicID", "Partition", "Group", "ResourceName", "Name", "CoordinatorKey", "Key", "MemberID", "NodeID", "ApiKey", "Dir"}

func (c *conversation) key(name string, v reflect.Value) string {
	if v.Kind() != reflect.Struct {
		return c.scalar(name, v)
	}
	for _, k := range keys {
		f := v.FieldByName(k)
		if !f.IsValid() {
			continue
		}
		if f.Kind() == reflect.Pointer {
			if f.IsNil() {
				continue
			}
			f = f.Elem()
		}
		if s := c.scalar(k, f); s != `""` && s != "id 0" {
			return s
		}
	}
	return ""
}

// scalar names a value.
func (c *conversation) scalar(name string, v reflect.Value) string {
	switch v.Kind() {
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.String:
		return c.text(name, v.String())
	case reflect.Array: // a topic id
		id := fmt.Sprintf("%x", v.Interface())
		if strings.Trim(id, "0") == "" {
			return "id 0"
		}
		if known, ok := c.said[id]; ok {
			return known
		}
		return "an id"
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return c.number(name, v.Int())
	}
	return fmt.Sprint(v.Interface())
}

func (c *conversation) text(name, s string) string {
	switch name {
	case "ErrorMessage", "Documentation", "ClusterID", "Dir":
		if s != "" {
			return "some text"
		}
	case "Host":
		if s != "" && strings.HasPrefix(c.server.addr, s+":") {
			return "the server's"
		}
	case "ClientHost":
		return strings.TrimPrefix(s, "/")
	case "MemberID", "LeaderID":
		if s == "" {
			return `""`
		}
		known, ok := c.said[s]
		if !ok {
			return "a member id" // see conversation.member
		}
		return known
	}
	return strconv.Quote(strings.ReplaceAll(s, c.topic, "topic"))
}

func (c *conversation) number(name string, n int64) string {
	switch name {
	case "ErrorCode":
		if n == 0 {
			return "NONE"
		}
		if e, ok := kerr.ErrorForCode(int16(n)).(*kerr.Error); ok {
			return e.Message
		}
	case "NodeID", "Leader", "ControllerID", "LeaderID", "Replicas", "ISR", "OfflineReplicas":
		if n == int64(c.server.node) {
			return "the server"
		}
	case "Port":
		if strings.HasSuffix(c.server.addr, fmt.Sprintf(":%d", n)) {
			return "the server's"
		}
	case "LeaderEpoch":
		if base, ok := c.epochs[c.topic]; ok && n >= 0 {
			return fmt.Sprintf("the topic's%+d", n-int64(base))
		}
	case "BaseOffset":
		if n >= 0 {
			n -= c.offsetsFrom
		}
	case "SessionID":
		if n > 0 {
			return "a session"
		}
	case "ProducerID":
		if n >= 0 {
			return "a producer id"
		}
	case "LogAppendTime", "Timestamp", "FirstTimestamp", "MaxTimestamp":
		if off := time.Since(time.UnixMilli(n)); off < time.Hour && off > -time.Hour {
			return "now"
		}
	case "Size", "TotalBytes", "UsableBytes":
		if n > 0 {
			return "some bytes"
		}
	}
	return strconv.FormatInt(n, 10)
}

// bytes shows what is opaque; record batches are taken apart.
func (c *conversation) bytes(out map[string]string, at, name string, v reflect.Value) {
	b := v.Bytes()
	if name != "RecordBatches" || len(b) == 0 {
		if b == nil {
			out[at] = "null"
		} else {
			out[at] = strconv.Quote(string(b))
		}
		return
	}
	n := 0
	for ; len(b) >= 61; n++ {
		size := 12 + int(binary.BigEndian.Uint32(b[8:]))
		if size > len(b) {
			break
		}
		var batch kmsg.RecordBatch
		if err := batch.ReadFrom(b[:size]); err != nil {
			out[fmt.Sprintf("%s[%d]", at, n)] = err.Error()
			break
		}
		here := fmt.Sprintf("%s[%d]", at, n)
		put := func(field string, value int64) { out[here+"."+field] = c.number(field, value) }
		put("FirstOffset", batch.FirstOffset)
		put("LeaderEpoch", int64(batch.PartitionLeaderEpoch))
		put("Magic", int64(batch.Magic))
		put("Attributes", int64(batch.Attributes))
		put("LastOffsetDelta", int64(batch.LastOffsetDelta))
		put("FirstTimestamp", batch.FirstTimestamp)
		put("MaxTimestamp", batch.MaxTimestamp)
		put("ProducerID", batch.ProducerID)
		put("ProducerEpoch", int64(batch.ProducerEpoch))
		put("FirstSequence", int64(batch.FirstSequence))
		put("NumRecords", int64(batch.NumRecords))
		out[here+".Records"] = strconv.Quote(string(batch.Records))
		out[here+".CRC"] = strconv.FormatBool(crc32.Checksum(b[21:size], crc32.MakeTable(crc32.Castagnoli)) == uint32(batch.CRC))
		b = b[size:]
	}
	out[at] = fmt.Sprintf("%d batches and %d bytes", n, len(b))
}
