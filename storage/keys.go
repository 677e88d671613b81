package storage

import (
	"encoding/binary"

	"edged/record"
)

// This file alone builds and parses keys. All numbers are big-endian, so that keys sort
// by them; README.md draws the layout.
//
//	D bucket u32                          that the bucket was begun
//	D bucket u32 group u64                where a group's log goes on in the bucket
//	F                                     format of the store
//	H group u64 kind u8 [...]             what must be known of a group, see the kinds below
//	L class u8 bucket u32 group u64 index u64        one entry
//	L class u8 bucket u32 group u64 1<<63|offset u64 one point of the sparse index
//
// A bucket is one memtable's worth of entries of all groups. What is written with each bucket
// sorts by it, so flushed tables of D and L never overlap, and are never rewritten for each
// other's sake. An index is below 1<<63, so a group's points stand behind its entries in the
// same bucket and go where they go.
const (
	prefixDir    byte = 'D'
	prefixFormat byte = 'F'
	prefixMeta   byte = 'H'
	prefixLog    byte = 'L'
	prefixEnd    byte = 'M'

	metaGroup      byte = 'a' // replica, class
	metaHardState  byte = 'b' // stays where a Reset deletes the rest
	metaBase       byte = 'c'
	metaCheckpoint byte = 'd'
	metaRun        byte = 'q' // + index u64
	metaEnd        byte = 'z'

	logKeyLen  = 1 + 1 + 4 + 8 + 8
	metaKeyLen = 1 + 8 + 1 // without the kind's own suffix
	noteKeyLen = 1 + 4
	dirKeyLen  = noteKeyLen + 8

	pointBit  = uint64(1) << 63
	maxBucket = 1<<29 - 1 // shares a uint32 with the class in memory
)

// slot names a bucket of a class: the unit in which space is given back.
type slot uint32

func makeSlot(class uint8, bucket uint32) slot { return slot(uint32(class)<<29 | bucket) }
func (s slot) class() uint8                    { return uint8(s >> 29) }
func (s slot) bucket() uint32                  { return uint32(s) & maxBucket }

func formatKey() []byte { return []byte{prefixFormat} }

// appendNoteKey builds the key that the first batch of a bucket writes; it is the first key
// of the bucket's directory.
func appendNoteKey(b []byte, bucket uint32) []byte {
	return binary.BigEndian.AppendUint32(append(b, prefixDir), bucket)
}

func appendDirKey(b []byte, bucket uint32, g record.GroupID) []byte {
	return binary.BigEndian.AppendUint64(appendNoteKey(b, bucket), uint64(g))
}

// parseDirKey gives the bucket of a directory key, and its group unless it is the bucket's note.
func parseDirKey(k []byte) (bucket uint32, g record.GroupID, note, ok bool) {
	if len(k) != noteKeyLen && len(k) != dirKeyLen || k[0] != prefixDir {
		return 0, 0, false, false
	}
	bucket = binary.BigEndian.Uint32(k[1:])
	if len(k) == dirKeyLen {
		g = record.GroupID(binary.BigEndian.Uint64(k[noteKeyLen:]))
	}
	return bucket, g, len(k) == noteKeyLen, bucket > 0 && bucket <= maxBucket
}

// appendLogKey builds the key of an entry, or of a point if index has pointBit.
func appendLogKey(b []byte, s slot, g record.GroupID, index uint64) []byte {
	b = append(b, prefixLog, s.class())
	b = binary.BigEndian.AppendUint32(b, s.bucket())
	b = binary.BigEndian.AppendUint64(b, uint64(g))
	return binary.BigEndian.AppendUint64(b, index)
}

// appendSlotKey is the first key of a bucket, and so the end of the one before.
func appendSlotKey(b []byte, class uint8, bucket uint32) []byte {
	b = append(b, prefixLog, class)
	return binary.BigEndian.AppendUint32(b, bucket)
}

func parseLogKey(k []byte) (s slot, g record.GroupID, index uint64, ok bool) {
	if len(k) != logKeyLen || k[0] != prefixLog || k[1] >= NumClasses {
		return 0, 0, 0, false
	}
	bucket := binary.BigEndian.Uint32(k[2:])
	if bucket > maxBucket {
		return 0, 0, 0, false
	}
	g = record.GroupID(binary.BigEndian.Uint64(k[6:]))
	return makeSlot(k[1], bucket), g, binary.BigEndian.Uint64(k[14:]), true
}

func appendMetaKey(b []byte, g record.GroupID, kind byte) []byte {
	b = append(b, prefixMeta)
	b = binary.BigEndian.AppendUint64(b, uint64(g))
	return append(b, kind)
}

func appendRunKey(b []byte, g record.GroupID, index uint64) []byte {
	return binary.BigEndian.AppendUint64(appendMetaKey(b, g, metaRun), index)
}

// parseMetaKey gives a meta key's group and kind, and the number behind the kinds that have one.
func parseMetaKey(k []byte) (g record.GroupID, kind byte, number uint64, ok bool) {
	if len(k) < metaKeyLen || k[0] != prefixMeta {
		return 0, 0, 0, false
	}
	g = record.GroupID(binary.BigEndian.Uint64(k[1:]))
	kind = k[9]
	rest := k[metaKeyLen:]
	switch kind {
	case metaGroup, metaHardState, metaBase, metaCheckpoint:
		return g, kind, 0, len(rest) == 0
	case metaRun:
		if len(rest) != 8 {
			return g, kind, 0, false
		}
		return g, kind, binary.BigEndian.Uint64(rest), true
	}
	return g, kind, 0, false
}

// cutAfter tells the engine where a table must end at the latest: between directory, meta and
// log and between classes, so that a bucket of one class can be dropped without touching another
// table, and what overlaps (meta) does not lie in one table with what does not.
func cutAfter(k []byte) []byte {
	switch {
	case len(k) == 0 || k[0] < prefixFormat:
		return []byte{prefixFormat}
	case k[0] < prefixLog:
		return []byte{prefixLog}
	case k[0] == prefixLog && len(k) > 1 && k[1] < NumClasses-1:
		return []byte{prefixLog, k[1] + 1}
	}
	return []byte{prefixEnd}
}
