package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/snappy/xerial"
	"github.com/twmb/franz-go/pkg/kgo"
)

var plainText = strings.Repeat("temperature=21.5 humidity=40 ", 40)

// What other implementations make of plainText: the zstd, lz4 and gzip commands and
// Google's Snappy. Each differs from what we write.
var foreign = []struct {
	name  string
	codec Codec
	hex   string
}{
	{"zstd, level 3, no size in front", Zstd, "28b52ffd04582d0100e874656d70657261747572653d32312e352068756d69646974793d3430200100a1017ee504f86e287b"},
	{"zstd, level 3, size in front", Zstd, "28b52ffd6488032d0100e874656d70657261747572653d32312e352068756d69646974793d3430200100a1017ee504f86e287b"},
	{"lz4, independent blocks, checksum", LZ4, "04224d186440a72c000000ff0e74656d70657261747572653d32312e352068756d69646974793d3430201d00ffffffff5750793d343020000000001a7b5aec"},
	{"lz4, dependent blocks, size, block checksums", LZ4, "04224d187c408804000000000000da2c000000ff0e74656d70657261747572653d32312e352068756d69646974793d3430201d00ffffffff5750793d343020c038db37000000001a7b5aec"},
	{"gzip, level 9", Gzip, "1f8b08000000000002032b49cd2d482d4a2c292d4ab53532d43355c828cdcd4cc92ca9b43531502819951c951c951c95a4bd240007363faf88040000"},
	{"snappy without framing", Snappy, rawSnappy},
	{"snappy, xerial framing of two blocks", Snappy, "82534e4150505900 00000001 00000001" +
		"0000003b d8047074656d70657261747572653d32312e352068756d69646974793d343020fe1d00fe1d00fe1d00fe1d00fe1d00fe1d00fe1d00fe1d00ea1d00" +
		"0000003b b0047069646974793d34302074656d70657261747572653d32312e352068756dfe1d00fe1d00fe1d00fe1d00fe1d00fe1d00fe1d00fe1d004a1d00"},
}

const rawSnappy = "88097074656d70657261747572653d32312e352068756d69646974793d343020fe1d00fe1d00fe1d00fe1d00fe1d00fe1d00fe1d00fe1d00fe1d00fe1d00fe1d00fe1d00fe1d00fe1d00fe1d00fe1d00fe1d00aa1d00"

func TestDecompress_readsWhatOthersWrite(t *testing.T) {
	for _, c := range foreign {
		got, err := decompress(c.codec, unhex(t, c.hex))
		if err != nil || string(got) != plainText {
			t.Errorf("%s: %d bytes, error %v", c.name, len(got), err)
		}
	}
}

func TestDecompress_readsGzipOfSeveralMembers(t *testing.T) {
	var joined []byte
	for _, c := range foreign {
		if c.codec == Gzip {
			joined = append(unhex(t, c.hex), unhex(t, c.hex)...)
		}
	}
	if got, err := decompress(Gzip, joined); err != nil || string(got) != plainText+plainText {
		t.Errorf("%d bytes, error %v", len(got), err)
	}
}

func TestCompress_isReadByFranzGo(t *testing.T) {
	types := map[Codec]kgo.CompressionCodecType{Gzip: kgo.CodecGzip, Snappy: kgo.CodecSnappy, LZ4: kgo.CodecLz4, Zstd: kgo.CodecZstd}
	reader := kgo.DefaultDecompressor()
	for codec, theirs := range types {
		small, err := compress(codec, nil, []byte(plainText))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := reader.Decompress(small, theirs); err != nil || string(got) != plainText {
			t.Errorf("%v: %d bytes, error %v", codec, len(got), err)
		}
	}
}

// Java reads Snappy in the xerial framing with big-endian versions, and LZ4 only with
// independent blocks.
func TestCompress_writesWhatJavaReads(t *testing.T) {
	small, err := compress(Snappy, nil, []byte(plainText))
	if err != nil || !bytes.HasPrefix(small, unhex(t, "82534e41505059000000000100000001")) {
		t.Errorf("snappy begins with %x, error %v", small[:min(16, len(small))], err)
	}
	small, err = compress(LZ4, nil, []byte(plainText))
	if err != nil || len(small) < 5 {
		t.Fatal(err)
	}
	const version1, independent = 0x40, 0x20
	if flags := small[4]; flags&0xc0 != version1 || flags&independent == 0 {
		t.Errorf("lz4 flags are %08b", flags)
	}
}

func TestDecompress_refusesMoreThanItsBound(t *testing.T) {
	zeros := make([]byte, MaxDecompressed+1)
	for _, codec := range allCodecs[1:] {
		exact, err := compress(codec, nil, zeros[:MaxDecompressed])
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decompress(codec, exact); err != nil || len(got) != MaxDecompressed {
			t.Errorf("%v: exactly the bound gave %d bytes, error %v", codec, len(got), err)
		}
		bomb, err := compress(codec, nil, zeros)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decompress(codec, bomb); !errors.Is(err, errTooLong) {
			t.Errorf("%v: one byte over the bound gave %d bytes, error %v", codec, len(got), err)
		}
		_, err = collect(bodyBatch(codec, 1, bomb))
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), codec.String()) {
			t.Errorf("%v: Records said %v", codec, err)
		}
		if _, err := decompress(codec, zeros); !errors.Is(err, errTooLong) {
			t.Errorf("%v: compressed bytes over the bound: %v", codec, err)
		}
	}
}

// A few bytes must not take memory by what they claim. The bound of the test is far
// below each claim and above what coders take for themselves.
func TestDecompress_doesNotAllocateByAClaimedLength(t *testing.T) {
	claim := func(n uint64) []byte { return binary.AppendUvarint(nil, n) }
	for _, c := range []struct {
		name  string
		codec Codec
		in    []byte
	}{
		{"snappy of 30 MiB", Snappy, append(claim(30<<20), 0, 'a')},
		{"snappy of 4 GiB", Snappy, append(claim(1<<32-1), 0, 'a')},
		{"xerial block of 30 MiB", Snappy, append(unhex(t, "82534e4150505900 0000000100000001 00000006"), append(claim(30<<20), 0, 'a')...)},
		{"xerial block past the end", Snappy, unhex(t, "82534e4150505900 0000000100000001 7fffffff 00")},
		{"xerial block of negative length", Snappy, unhex(t, "82534e4150505900 0000000100000001 ffffffff 00")},
		{"zstd frame of 30 MiB", Zstd, unhex(t, "28b52ffd a0 0000e001 010000")},
		{"zstd frame of 2^63 bytes", Zstd, unhex(t, "28b52ffd e0 ffffffffffffff7f 010000")},
		{"zstd frame with its window of 128 MiB", Zstd, unhex(t, "28b52ffd 00 88 010000")},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _ = decompress(c.codec, c.in)
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
				t.Errorf("%d bytes took %d bytes of memory", len(c.in), took)
			}
		})
	}
}

func TestDecompress_worksAfterDamage(t *testing.T) {
	for _, codec := range allCodecs[1:] {
		good, err := compress(codec, nil, []byte(plainText))
		if err != nil {
			t.Fatal(err)
		}
		for cut := range len(good) {
			if got, err := decompress(codec, good[:cut]); err == nil && string(got) == plainText {
				t.Errorf("%v: %d of %d bytes were enough", codec, cut, len(good))
			}
			if got, err := decompress(codec, good); err != nil || string(got) != plainText {
				t.Fatalf("%v: after %d of %d bytes a sound input gave %d bytes, error %v", codec, cut, len(good), len(got), err)
			}
		}
	}
}

func TestCodecs_serveManyGoroutines(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			codec := allCodecs[i%len(allCodecs)]
			for n := 1; n < 40; n++ {
				got, err := collect(sample(t, codec, n))
				if err != nil || len(got) != n {
					t.Errorf("%v: %d records of %d, error %v", codec, len(got), n, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestCodec_namesAreKafkas(t *testing.T) {
	for codec, want := range map[Codec]string{None: "none", Gzip: "gzip", Snappy: "snappy", LZ4: "lz4", Zstd: "zstd", 6: "codec 6"} {
		if codec.String() != want {
			t.Errorf("codec %d is called %q, want %q", int8(codec), codec, want)
		}
	}
}

// The limit that keeps claimed lengths in check rests on this.
func TestSnappyDensest_isMoreThanSnappyGains(t *testing.T) {
	zeros := make([]byte, 1<<20)
	if gain := len(zeros) / len(xerial.Encode(nil, zeros)); gain >= snappyDensest {
		t.Errorf("snappy gained %d", gain)
	}
}

// The window costs memory in some readers, so there is a limit; who meets it learns what to do.
func TestDecompress_namesAWindowThatIsTooLarge(t *testing.T) {
	level22 := unhex(t, "28b52ffd04882d0100e874656d70657261747572653d32312e352068756d69646974793d3430200100a1017ee504f86e287b")
	if _, err := decompress(Zstd, level22); !errors.Is(err, errWindow) {
		t.Errorf("got %v", err)
	}
	level20 := unhex(t, "28b52ffd04782d0100e874656d70657261747572653d32312e352068756d69646974793d3430200100a1017ee504f86e287b")
	if got, err := decompress(Zstd, level20); err != nil || string(got) != plainText {
		t.Errorf("level 20: %d bytes, error %v", len(got), err)
	}
}
