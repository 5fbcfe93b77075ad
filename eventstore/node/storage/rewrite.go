package storage

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// holeGap is the largest distance of removed events that are rewritten together: their files
	// are mostly the same.
	holeGap = 4096
	// rewriteTries bounds how often a range is rewritten. Once is enough unless compactions
	// interfere.
	rewriteTries = 16
)

// span is a range of positions, both ends included.
type span struct{ first, last uint64 }

// spans are ranges in rising order.
type spans []span

// add adds a range, and joins it with the last one if they are near. Ranges are added in the order
// of their first positions.
func (s *spans) add(next span) {
	if n := len(*s); n > 0 && next.first <= (*s)[n-1].last+holeGap {
		(*s)[n-1].last = max((*s)[n-1].last, next.last)
		return
	}
	*s = append(*s, next)
}

// holeKey records a range with removed events until its files are rewritten.
func holeKey(s span) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64([]byte{spaceHole}, s.first), s.last)
}

// erase removes the bytes of removed events from the files. The order matters:
//
//  1. End the views and the compactions that are older than the removal, since the engine keeps
//     what they see.
//  2. Make every new log a new file, and flush the memory: the logs so far are no longer needed.
//  3. Rewrite the files that contain removed events.
//  4. Delete the old logs, and wait for the engine to delete the old files, which it does once no
//     reader has them open.
//
// Without force it does nothing if nothing was removed.
func (s *scavenger) erase(force bool) error {
	keys, holes, err := s.holes()
	if err != nil || len(keys) == 0 && !force {
		return err
	}
	if err := s.store.lockFiles(s.ctx); err != nil {
		return err
	}
	defer s.store.unlockFiles()
	if err := s.drainReaders(s.ctx); err != nil {
		return err
	}
	last := s.store.disk.freshLogs(true)
	defer s.store.disk.freshLogs(false)
	if err := s.store.flush(s.ctx); err != nil {
		return err
	}
	if err := s.store.jobs.awaitRunning(s.ctx); err != nil {
		return err
	}
	if err := s.rewrite(holes); err != nil {
		return err
	}
	if err := s.store.disk.removeLogs(last); err != nil {
		return err
	}
	if err := s.store.awaitDeleted(s.ctx); err != nil {
		return err
	}
	if err := syncFolder(s.store.disk.FS, s.store.disk.dir); err != nil {
		return err
	}
	if len(keys) == 0 {
		return nil
	}
	batch := s.store.db.NewBatch()
	for _, key := range keys {
		if err := batch.Delete(key, nil); err != nil {
			return errors.Join(err, batch.Close())
		}
	}
	return s.store.commit(batch)
}

// rewrite makes the engine rewrite the files that may contain removed events.
func (s *scavenger) rewrite(holes spans) error {
	// Later compactions write clean files, or files that a removal on its way down still reaches.
	mark, err := s.store.newestTable()
	if err != nil {
		return err
	}
	for _, hole := range holes {
		if err := s.rewriteHole(hole, mark); err != nil {
			return err
		}
	}
	return nil
}

func (s *scavenger) rewriteHole(hole span, mark uint64) error {
	for range rewriteTries {
		suspects, err := s.store.suspects(hole, mark)
		if err != nil || len(suspects) == 0 {
			return err
		}
		if err := s.rewriteTables(suspects); err != nil {
			return err
		}
	}
	return fmt.Errorf("rewrite files: those of positions %d to %d are still the old ones", hole.first, hole.last)
}

// rewriteTables makes the engine rewrite files. It skips a file of its lowest level, and moves a
// file without anything below it, unless new keys belong into it. So each file is given a deletion
// to merge: of a position without an event.
func (s *scavenger) rewriteTables(suspects []suspect) error {
	batch := s.store.db.NewBatch()
	for _, t := range suspects {
		if err := batch.Delete(eventKey(t.gap), nil); err != nil {
			return errors.Join(err, batch.Close())
		}
	}
	if err := s.store.commit(batch); err != nil {
		return err
	}
	first, last := suspects[0].first, suspects[0].last
	for _, t := range suspects {
		first, last = min(first, t.first), max(last, t.last)
	}
	if err := s.store.db.Compact(s.ctx, eventKey(first), eventKey(last+1), false); err != nil {
		return fmt.Errorf("rewrite files: %w", err)
	}
	return nil
}

// holes lists the ranges to rewrite, joined, and the keys that record them.
func (s *scavenger) holes() (keys [][]byte, joined spans, err error) {
	iter, err := s.store.db.NewIter(&pebble.IterOptions{LowerBound: []byte{spaceHole}, UpperBound: []byte{spaceHole + 1}})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for valid := iter.First(); valid; valid = iter.Next() {
		key := append([]byte(nil), iter.Key()...)
		if len(key) != 17 {
			return nil, nil, ErrDamagedRecord
		}
		keys = append(keys, key)
		joined.add(span{positionOf(key), binary.BigEndian.Uint64(key[9:])})
	}
	return keys, joined, iter.Error()
}

// suspect is a file that may contain removed events: the part of a hole that it spans, and a
// position in it without an event.
type suspect struct {
	first, last uint64
	gap         uint64
}

// suspects lists the files up to a number that overlap a hole where events are missing.
func (s *store) suspects(hole span, upTo uint64) ([]suspect, error) {
	levels, err := s.db.SSTables(pebble.WithKeyRangeFilter(eventKey(hole.first), eventKey(hole.last+1)))
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	var out []suspect
	for _, level := range levels {
		for _, t := range level {
			if uint64(t.BackingSSTNum) > upTo {
				continue
			}
			found := suspect{first: hole.first, last: hole.last}
			if key := t.Smallest.UserKey; key[0] == spaceEvent {
				found.first = max(found.first, positionOf(key))
			}
			if key := t.Largest.UserKey; key[0] == spaceEvent {
				found.last = min(found.last, positionOf(key))
			}
			gap, missing, err := s.gap(found.first, found.last)
			if err != nil {
				return nil, err
			}
			if missing {
				found.gap = gap
				out = append(out, found)
			}
		}
	}
	return out, nil
}

// gap returns the first position of a range without an event.
func (s *store) gap(first, last uint64) (position uint64, missing bool, err error) {
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: eventKey(first), UpperBound: eventKey(last + 1)})
	if err != nil {
		return 0, false, fmt.Errorf("read the log: %w", err)
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	next := first
	for valid := iter.First(); valid && positionOf(iter.Key()) == next; valid = iter.Next() {
		next++
	}
	if err := iter.Error(); err != nil {
		return 0, false, fmt.Errorf("read the log: %w", err)
	}
	return next, next <= last, nil
}
