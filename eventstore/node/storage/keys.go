package storage

import (
	"encoding/binary"
	"math"
)

// The key families: see the package comment.
const (
	spaceEvent    = 'e'
	spaceRevision = 'r'
	spaceStream   = 's'
	spacePending  = 'p'
	spaceBounded  = 'b'
	spaceHole     = 'h'
)

// TombstoneRevision is the revision of the event that ends a stream permanently.
const TombstoneRevision = math.MaxInt64

func eventKey(position uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{spaceEvent}, position)
}

// revisionKey orders the events of one stream; revisions are never negative.
func revisionKey(streamID uint64, revision int64) []byte {
	key := append(make([]byte, 0, 17), spaceRevision)
	key = binary.BigEndian.AppendUint64(key, streamID)
	return binary.BigEndian.AppendUint64(key, uint64(revision))
}

func pendingKey(position uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{spacePending}, position)
}

func streamKey(name string) []byte { return append([]byte{spaceStream}, name...) }

// boundedKey marks a stream that loses events by being written or by growing old.
func boundedKey(stream string) []byte { return append([]byte{spaceBounded}, stream...) }

func positionOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[1:9]) }
func revisionOf(key []byte) int64  { return int64(binary.BigEndian.Uint64(key[9:17])) }
