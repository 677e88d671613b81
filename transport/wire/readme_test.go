package wire

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"edged/record"
	"edged/transport"
)

// drawn reads the fenced blocks of bytes: in each line what stands before two spaces.
func drawn(t *testing.T, readme string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	name := ""
	lines := bufio.NewScanner(strings.NewReader(readme))
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "```bytes "):
			name = strings.TrimPrefix(line, "```bytes ")
		case strings.HasPrefix(line, "```"):
			name = ""
		case name != "":
			digits, _, _ := strings.Cut(line, "  ")
			b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
			if err != nil {
				t.Fatalf("%s: %q: %v", name, line, err)
			}
			out[name] = append(out[name], b...)
		}
	}
	return out
}

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The frames that README.md draws are those that the code writes.
func TestReadme_drawsTheFramesAsTheyAre(t *testing.T) {
	got := drawn(t, readme(t))
	batch := record.NewBuilder(record.None, 1000)
	batch.SetProducer(41, 0, 0)
	batch.Append(1700000000000, nil, []byte("hi"), nil)
	frames := map[string]func() (Frame, error){
		"hello": func() (Frame, error) { return EncodeRequest(APIHello, 1, &HelloRequest{Client: "demo"}) },
		"hello-answer": func() (Frame, error) {
			return encodeResponse(1, nil, &HelloInfo{Node: 7, ClusterID: "c1", Version: "0.1", Ready: true, MaxFrame: DefaultMaxFrame, APIs: supported()[:2]})
		},
		"produce": func() (Frame, error) {
			return EncodeRequest(APIProduce, 3, &ProduceRequest{Topic: "logs", Partition: 2, Acks: AcksAll, Epoch: -1, TimeoutMs: 5000, Batch: record.Batch("BATCH")})
		},
		"produce-answer": func() (Frame, error) {
			return encodeResponse(3, nil, &ProduceResponse{BaseOffset: 1000, Epoch: 4, Durability: "fsync-majority"})
		},
		"not-leader": func() (Frame, error) {
			return encodeResponse(3, &record.NotLeaderError{Leader: 9, Addr: "10.0.0.9:7400", Epoch: 5}, nil)
		},
		"fetch": func() (Frame, error) {
			return EncodeRequest(APIFetch, 4, &FetchRequest{Topic: "logs", Partition: 2, Epoch: -1, Offset: 1000, MaxBytes: 65536, MinBytes: 1, MaxWaitMs: 500})
		},
		"fetch-answer": func() (Frame, error) {
			return encodeResponse(4, nil, &FetchResponse{HighWatermark: 1001, Epoch: 4, Batches: []byte("BATCH")})
		},
		"batch": func() (Frame, error) { return Frame{Pieces: [][]byte{batch.Build()}}, nil },
	}
	for name, encode := range frames {
		f, err := encode()
		if err != nil {
			t.Fatal(err)
		}
		if want := bytes.Join(f.Pieces, nil); !bytes.Equal(got[name], want) {
			t.Errorf("%s is drawn as\n% x\nbut is\n% x", name, got[name], want)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("README.md draws %q, which no test knows", name)
	}
}

// fields counts the fields of a list as README.md writes them: commas outside of inner lists.
func fields(list string) int {
	list = strings.TrimSpace(list)
	list = strings.TrimSuffix(strings.TrimPrefix(list, "["), "]")
	if list == "" {
		return 0
	}
	n, depth := 1, 0
	for _, c := range list {
		switch {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == ',' && depth == 0:
			n++
		}
	}
	return n
}

// Every API is in the table, with its number, and with as many fields as it has.
func TestReadme_listsEveryField(t *testing.T) {
	text := readme(t)
	requests := map[API][2]Message{
		APIHello:          {&HelloRequest{}, &HelloInfo{}},
		APIMetadata:       {&MetadataRequest{}, &Metadata{}},
		APIProduce:        {&ProduceRequest{}, &ProduceResponse{}},
		APIFetch:          {&FetchRequest{}, &FetchResponse{}},
		APIOffsets:        {&OffsetsRequest{}, &OffsetsResponse{}},
		APIProducerID:     {&ProducerIDRequest{}, &ProducerIDResponse{}},
		APICreateTopic:    {&CreateTopicRequest{}, &CreateTopicResponse{}},
		APIDeleteTopic:    {&DeleteTopicRequest{}, &Empty{}},
		APIAlterTopic:     {&AlterTopicRequest{}, &Empty{}},
		APITransferLeader: {&TransferLeaderRequest{}, &TransferLeaderResponse{}},
		APILeaderHistory:  {&LeaderHistoryRequest{}, &LeaderHistoryResponse{}},
		APIStatus:         {&StatusRequest{}, &Status{}},
		APIDescribeNode:   {&DescribeNodeRequest{}, &NodeDescription{}},
		APIEvents:         {&EventsRequest{}, &EventsResponse{}},
		APINetwork:        {&NetworkRequest{}, &NetworkResponse{}},
		APIRemoveNode:     {&RemoveNodeRequest{}, &RemoveNodeResponse{}},
		APIListGroups:     {&ListGroupsRequest{}, &ListGroupsResponse{}},
		APIDescribeGroup:  {&DescribeGroupRequest{}, &GroupDescription{}},
		APIDeleteGroup:    {&DeleteGroupRequest{}, &Empty{}},
		APICommitGroup:    {&CommitGroupRequest{}, &Empty{}},
	}
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| (\w+) \| (\[.*\]) \| (\[.*\]) \|$`).FindAllStringSubmatch(text, -1)
	if len(rows) != len(apis) || len(requests) != len(apis) {
		t.Errorf("%d rows, %d in this test, %d APIs", len(rows), len(requests), len(apis))
	}
	for _, row := range rows {
		n, err := strconv.Atoi(row[1])
		if err != nil || API(n).String() != row[2] {
			t.Errorf("row %s is called %s, the code says %s", row[1], row[2], API(n))
			continue
		}
		for i, m := range requests[API(n)] {
			checkFields(t, fmt.Sprintf("%s, column %d", row[2], i+3), row[3+i], m)
		}
	}
	inner := map[string]Message{
		"node": &Node{}, "topic": &Topic{}, "partition": &Partition{}, "change": &LeaderChange{},
		"peer": &PeerStatus{}, "device": &DeviceStatus{}, "event": &NodeEvent{}, "reach": &Reach{}, "replica": &NodePartition{}, "group": &GroupListing{}, "member": &GroupMember{},
		"assigned": &TopicPartitions{}, "offsets": &TopicOffsets{}, "position": &PartitionOffset{},
	}
	for name, m := range inner {
		row := regexp.MustCompile(`(?m)^\| ` + name + ` \| (\[.*\]) \|$`).FindStringSubmatch(text)
		if row == nil {
			t.Errorf("no row for %s", name)
			continue
		}
		checkFields(t, name, row[1], m)
	}
}

func checkFields(t *testing.T, name, list string, m Message) {
	t.Helper()
	if want, got := int(body(t, m)[0]&maxFields), fields(list); want != got {
		t.Errorf("%s: %d fields in README.md, %d in the code", name, got, want)
	}
}

// The limits in README.md are those of the code.
func TestReadme_limits(t *testing.T) {
	text := readme(t)
	for _, want := range []string{
		fmt.Sprintf("| one text | %d bytes |", MaxString),
		fmt.Sprintf("all lists together | %d |", maxRequestElements),
		fmt.Sprintf("does not know | %d |", maxSkipDepth),
		fmt.Sprintf("| fetches waiting, per connection | %d |", DefaultMaxFetches),
		fmt.Sprintf("per connection | %d at once |", maxCalls),
		fmt.Sprintf("| connections | %d |", DefaultMaxConns),
		fmt.Sprintf("%d MiB of frames, each counted with %d KiB more", DefaultConnBytes>>20, requestCost>>10),
		fmt.Sprintf("| the same over all connections | %d MiB |", DefaultTotalBytes>>20),
		fmt.Sprintf("| hello | %.0f s |", DefaultHandshakeTimeout.Seconds()),
		fmt.Sprintf("after its length | %.0f s |", DefaultFrameTimeout.Seconds()),
		fmt.Sprintf("%d KiB of answers to be taken by the client | %.0f s |", writeChunk>>10, DefaultWriteTimeout.Seconds()),
		fmt.Sprintf("| the same while others wait for memory | %.0f s |", transport.StallLimit.Seconds()),
		fmt.Sprintf("1 MiB + 12 B + %d KiB (`max_frame`)", FrameSlack>>10),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("README.md does not say %q", want)
		}
	}
}
