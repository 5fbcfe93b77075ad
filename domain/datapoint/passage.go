package datapoint

import (
	"encoding/binary"

	"github.com/google/uuid"
)

// passageVersion is the version of the ids of passages. Nodes have version 5, so the two never meet.
const passageVersion = 8

// PassageID is the id of the n-th passage of a revision, given the id of its node. It differs from that in the version
// and in the last four bytes, so that the node is found by the id of a passage although no passage is stored.
func PassageID(node uuid.UUID, n int) uuid.UUID {
	id := withVersion(node, passageVersion)
	binary.BigEndian.PutUint32(id[12:], tail(node)^uint32(n))
	return id
}

// NodesOfPassage returns the bounds, both inclusive, of the ids of the nodes that a passage may belong to. ok is false
// if the id is not one of a passage.
func NodesOfPassage(id uuid.UUID) (low, high uuid.UUID, ok bool) {
	if id.Version() != passageVersion {
		return low, high, false
	}
	low = withVersion(id, 5)
	high = low
	binary.BigEndian.PutUint32(low[12:], 0)
	binary.BigEndian.PutUint32(high[12:], ^uint32(0))
	return low, high, true
}

// PassageNumber returns the number of a passage of a node.
func PassageNumber(id, node uuid.UUID) int { return int(tail(id) ^ tail(node)) }

func tail(id uuid.UUID) uint32 { return binary.BigEndian.Uint32(id[12:]) }

func withVersion(id uuid.UUID, version byte) uuid.UUID {
	id[6] = id[6]&0x0f | version<<4
	return id
}
