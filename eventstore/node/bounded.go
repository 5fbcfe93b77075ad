package node

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// boundedKey marks a stream that its metadata bounds by number or age: it loses events without anybody deleting them.
func boundedKey(stream string) []byte { return append([]byte{spaceBounded}, stream...) }

// bounded says whether a stream loses events by being written or by growing old.
func (m streamMeta) bounded() bool { return m.maxCount > 0 || m.maxAge > 0 }

// boundedOf lists the streams that are bounded.
func boundedOf(from pebble.Reader) (streams []string, err error) {
	iter, err := from.NewIter(&pebble.IterOptions{LowerBound: []byte{spaceBounded}, UpperBound: []byte{spaceBounded + 1}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for valid := iter.First(); valid; valid = iter.Next() {
		streams = append(streams, string(iter.Key()[1:]))
	}
	return streams, iter.Error()
}
