package node

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// holeGap is how far apart removed events may lie to be rewritten together: their files are mostly the same.
const holeGap = 4096

// span is a range of positions, both ends included.
type span struct{ first, last uint64 }

// spans are ranges in rising order.
type spans []span

// add joins a range with the one before it where they are near. Ranges come in order of their beginnings.
func (s *spans) add(next span) {
	if n := len(*s); n > 0 && next.first <= (*s)[n-1].last+holeGap {
		(*s)[n-1].last = max((*s)[n-1].last, next.last)
		return
	}
	*s = append(*s, next)
}

// holeKey remembers a range with removed events until its files were rewritten.
func holeKey(s span) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64([]byte{spaceHole}, s.first), s.last)
}

// rewrite lets the storage engine rewrite the files that held removed events, so that their bytes are gone.
func (s *scavenger) rewrite() error {
	keys, holes, err := s.holes()
	if err != nil || len(keys) == 0 {
		return err
	}
	for _, hole := range holes {
		if err := s.db.Compact(s.ctx, eventKey(hole.first), eventKey(hole.last+1), false); err != nil {
			return fmt.Errorf("rewrite files: %w", err)
		}
	}
	batch := s.db.NewBatch()
	for _, key := range keys {
		if err := batch.Delete(key, nil); err != nil {
			return errors.Join(err, batch.Close())
		}
	}
	return errors.Join(batch.Commit(pebble.Sync), batch.Close())
}

// holes lists what is to be rewritten: the keys that say so, and the ranges, joined.
func (s *scavenger) holes() (keys [][]byte, joined spans, err error) {
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{spaceHole}, UpperBound: []byte{spaceHole + 1}})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for valid := iter.First(); valid; valid = iter.Next() {
		key := append([]byte(nil), iter.Key()...)
		if len(key) != 17 {
			return nil, nil, errRecord
		}
		keys = append(keys, key)
		joined.add(span{positionOf(key), binary.BigEndian.Uint64(key[9:])})
	}
	return keys, joined, iter.Error()
}
