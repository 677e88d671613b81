package storage

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"edged/record"
)

// BenchmarkCommit on the real file system: 16 appends of 1 KiB to a commit, synced. It reports
// how many bytes reach files for each byte that is appended, and syncs of any file per commit.
func BenchmarkCommit(b *testing.B) {
	for _, groups := range []int{1, 16, 128} {
		for _, size := range []int{200, 1024, 16 << 10} {
			b.Run(fmt.Sprintf("groups=%d/size=%d", groups, size), func(b *testing.B) {
				fs := newHookFS(vfs.Default)
				var written, syncs atomic.Int64
				fs.set(func(op fsOp) error {
					switch {
					case op.kind == opWrite && op.after:
						written.Add(int64(op.bytes))
					case op.kind == opSync && op.after:
						syncs.Add(1)
					}
					return nil
				})
				s, err := Open(b.TempDir(), fs, Options{})
				if err != nil {
					b.Fatal(err)
				}
				f := newFiller(b, s, groups, 16, size)
				start, startSyncs := written.Load(), syncs.Load()
				f.written = 0
				b.SetBytes(int64(16 * size))
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					if err := f.commit(); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(written.Load()-start)/float64(f.written), "written/byte")
				b.ReportMetric(float64(syncs.Load()-startSyncs)/float64(b.N), "syncs/op")
			})
		}
	}
}

// BenchmarkRead of one group of 16 in a store of 64 MiB: a fetch of 64 KiB, a raft read of the
// newest entries, the headers of all.
func BenchmarkRead(b *testing.B) {
	s := mustOpen(b, vfs.NewMem(), Options{})
	defer mustClose(b, s)
	f := newFiller(b, s, 16, 64, 1024)
	f.sync = false
	for f.written < 64<<20 {
		if err := f.commit(); err != nil {
			b.Fatal(err)
		}
	}
	last := f.index[3]
	b.Run("fetch=64KiB", func(b *testing.B) {
		b.SetBytes(64 << 10)
		b.ReportAllocs()
		buf := make([]byte, 0, 128<<10)
		from := record.Offset(0)
		for range b.N {
			out, next, err := s.ReadFrom(3, from, record.Offset(last), 64<<10, buf[:0])
			if err != nil {
				b.Fatal(err)
			}
			buf, from = out, next
			if next == record.Offset(last) {
				from = 0
			}
		}
	})
	b.Run("tail=4", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := s.Entries(3, last-3, last+1, 1<<20); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("headers", func(b *testing.B) {
		b.SetBytes(int64(last) * 1024)
		b.ReportAllocs()
		for range b.N {
			if err := s.Headers(3, 1, last+1, func(Entry, int64) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkOpen of a store with a thousand groups, in memory.
func BenchmarkOpen(b *testing.B) {
	fs := vfs.NewMem()
	s := mustOpen(b, fs, Options{})
	f := newFiller(b, s, 1000, 100, 1024)
	f.sync = false
	for f.written < 64<<20 {
		if err := f.commit(); err != nil {
			b.Fatal(err)
		}
	}
	mustClose(b, s)
	b.ResetTimer()
	for range b.N {
		mustClose(b, mustOpen(b, fs, Options{}))
	}
}
