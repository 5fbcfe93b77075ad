package node

import (
	"encoding/binary"
	"math"
)

// The key spaces. Everything that the node knows stands in them.
//
//	e <position>             the event as it goes over the wire
//	r <stream id> <revision> its position
//	s <stream name>          the streamState
//	p <position>             what the event there left to remove
//	b <stream name>          a stream that $maxCount or $maxAge bounds
//	h <position> <position>  a range with removed events whose files are still to be rewritten
const (
	spaceEvent    = 'e'
	spaceRevision = 'r'
	spaceStream   = 's'
	spacePending  = 'p'
	spaceBounded  = 'b'
	spaceHole     = 'h'
)

// tombstoneRevision is the revision of the event that ends a stream for ever.
const tombstoneRevision = math.MaxInt64

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

func positionOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[1:9]) }
func revisionOf(key []byte) int64  { return int64(binary.BigEndian.Uint64(key[9:17])) }
