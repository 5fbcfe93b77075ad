package node

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// holeGap is how far apart removed events may lie to be rewritten together: their files are mostly the same.
	holeGap = 4096
	// rewriteTries bounds how often the same range is rewritten; once is enough, unless compactions come in between.
	rewriteTries = 16
)

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

// erase takes what was removed out of the files. The order matters:
//
//   - The view of the readers and the compactions under way that are older than the removal end, since the engine keeps what they see.
//   - From then on every log is a new file, and what is in memory is flushed: the logs so far are done with.
//   - The files that hold removed events are rewritten.
//   - The old logs are taken away, and the old files waited for: the engine deletes them once no reader has them open.
//
// Without force it does nothing where nothing was removed.
func (s *scavenger) erase(force bool) error {
	keys, holes, err := s.holes()
	if err != nil || len(keys) == 0 && !force {
		return err
	}
	if err := s.store.lockFiles(s.ctx); err != nil {
		return err
	}
	defer s.store.unlockFiles()
	if err := s.renewed(s.ctx); err != nil {
		return err
	}
	last := s.store.disk.freshLogs(true)
	defer s.store.disk.freshLogs(false)
	if err := s.store.flush(s.ctx); err != nil {
		return err
	}
	if err := s.store.jobs.settle(s.ctx); err != nil {
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

// rewrite lets the engine rewrite the files that may hold removed events.
func (s *scavenger) rewrite(holes spans) error {
	// What compactions write from here on is clean, or is met by a removal that is still on its way down to it.
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

// rewriteTables lets the engine rewrite files. It leaves a file of its lowest level alone, and one that nothing lies below it moves as it is,
// unless something new belongs into it: so each file is given a removal to take in, of a position that has no event.
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

// holes lists what is to be rewritten: the keys that say so, and the ranges, joined.
func (s *scavenger) holes() (keys [][]byte, joined spans, err error) {
	iter, err := s.store.db.NewIter(&pebble.IterOptions{LowerBound: []byte{spaceHole}, UpperBound: []byte{spaceHole + 1}})
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

// suspect is a file that may hold removed events: the part of a hole that it spans, and a position in it that has no event.
type suspect struct {
	first, last uint64
	gap         uint64
}

// suspects lists the files up to a number that reach into a hole where events are missing.
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

// gap finds the first position of a range that has no event.
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
