package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// pending is a stream with events to remove, not before a time. It is stored under the position of the event that caused
// it, which may leave something to remove in two streams: the one that metadata describes, and its own.
type pending struct {
	cause  uint64
	stream string
	due    time.Time
}

// overtaken says that a stream was deleted behind what would be removed at once: the deletion has a time of its own.
func (p pending) overtaken(v *view) (bool, error) {
	if p.due.UnixNano() != 0 {
		return false, nil
	}
	return v.ended(p.stream)
}

// stays reports whether a removal must be repeated later: the newest event of the log is never
// removed, and here it is metadata that a client wrote for a tombstoned stream.
func (p pending) stays(v *view) (bool, error) {
	if p.cause != v.head {
		return false, nil
	}
	state, err := loadState(v.snapshot, p.stream)
	if err != nil {
		return false, err
	}
	return state.deleted() && state.tombstone != p.cause, nil
}

// ended says whether a stream is deleted and may be written again: its events wait for their time.
func (v *view) ended(stream string) (bool, error) {
	state, err := loadState(v.snapshot, stream)
	if err != nil {
		return false, err
	}
	return state.softDeleted() && !state.deleted(), nil
}

func (p pending) key() []byte {
	key := pendingKey(p.cause)
	if isMeta(p.stream) {
		key = append(key, metaPrefix...)
	}
	return key
}

func (p pending) encode() []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(p.due.UnixNano())), p.stream...)
}

func decodePending(key, value []byte) (pending, error) {
	if len(key) < 9 || len(value) < 8 {
		return pending{}, errRecord
	}
	return pending{
		cause:  positionOf(key),
		due:    time.Unix(0, int64(binary.BigEndian.Uint64(value))),
		stream: string(value[8:]),
	}, nil
}

// sweeping says how much a sweep takes.
type sweeping struct {
	// all takes what is not due yet, too.
	all bool
	// bounded looks at the streams with a bound of number or age.
	bounded bool
}

// sweep removes what is due, and says how long nothing else will be.
func (s *scavenger) sweep(what sweeping) (wait time.Duration, err error) {
	wait = never
	v, err := s.views.acquire()
	if err != nil {
		return wait, err
	}
	defer func() { err = errors.Join(err, v.release()) }()
	todo, err := pendingOf(v.snapshot)
	if err != nil {
		return wait, err
	}
	due := make([]pending, 0, len(todo))
	for _, p := range todo {
		if left := p.due.Sub(s.now()); left > 0 && !what.all {
			wait = min(wait, left)
			continue
		}
		due = append(due, p)
	}
	if err := s.removeDue(v, due, what.all); err != nil {
		return wait, err
	}
	swept := len(due) > 0
	if what.bounded {
		bounded, err := boundedOf(v.snapshot)
		if err != nil {
			return wait, err
		}
		if err := s.removeBounded(v, bounded, what.all); err != nil {
			return wait, err
		}
		swept = swept || len(bounded) > 0
	}
	if swept {
		s.removed()
	}
	return wait, nil
}

// removeBounded removes the events that are beyond the bounds of their streams.
func (s *scavenger) removeBounded(v *view, bounded []string, all bool) (err error) {
	r := &remover{of: s}
	defer func() { err = errors.Join(err, r.close()) }()
	for _, stream := range bounded {
		ended, err := v.ended(stream)
		if err == nil && (all || !ended) {
			err = s.remove(r, v, stream, true)
		}
		if err != nil {
			return fmt.Errorf("stream %q: %w", stream, err)
		}
	}
	return r.flush()
}

// removeDue removes what is due, and forgets that it was. A stream that is named many times has to lose no more for that.
func (s *scavenger) removeDue(v *view, due []pending, all bool) (err error) {
	r := &remover{of: s}
	defer func() { err = errors.Join(err, r.close()) }()
	for some := range slices.Chunk(due, scavengeBatch) {
		seen := map[string]bool{}
		for _, p := range some {
			if err := s.removeOne(r, v, p, all, seen); err != nil {
				return fmt.Errorf("stream %q: %w", p.stream, err)
			}
		}
	}
	return r.flush()
}

func (s *scavenger) removeOne(r *remover, v *view, p pending, all bool, seen map[string]bool) error {
	overtaken, err := p.overtaken(v)
	if err != nil {
		return err
	}
	if (all || !overtaken) && !seen[p.stream] {
		seen[p.stream] = true
		if err := s.remove(r, v, p.stream, isMeta(p.stream)); err != nil {
			return err
		}
	}
	stays, err := p.stays(v)
	if err != nil || stays {
		return err
	}
	return r.forget(p)
}

func pendingOf(from pebble.Reader) (out []pending, err error) {
	iter, err := from.NewIter(&pebble.IterOptions{LowerBound: []byte{spacePending}, UpperBound: []byte{spacePending + 1}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for valid := iter.First(); valid; valid = iter.Next() {
		value, err := iter.ValueAndErr()
		if err != nil {
			return nil, err
		}
		p, err := decodePending(iter.Key(), value)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, iter.Error()
}

// remove removes what a stream has to lose as of a view, by its bounds too or by $tb alone. What was written after the view is above what it removes.
func (s *scavenger) remove(r *remover, v *view, stream string, bounds bool) error {
	state, err := loadState(v.snapshot, stream)
	if err != nil {
		return err
	}
	if state.deleted() {
		meta, err := loadState(v.snapshot, metaPrefix+stream)
		if err != nil {
			return err
		}
		below := int64(tombstoneRevision)
		if head, err := v.isHead(meta, meta.last); err != nil {
			return err
		} else if head {
			below = meta.last
		}
		return errors.Join(r.below(meta, below), r.below(state, tombstoneRevision))
	}
	below := state.meta.truncateBefore
	if bounds {
		below = state.firstReadable()
	}
	if bounds && state.meta.maxAge > 0 {
		if below, err = v.firstYoung(state, below, s.now()); err != nil {
			return err
		}
	}
	// The last event stays as long as the stream is not ended, as servers have it: the newest event of the log is never removed.
	return r.below(state, min(below, state.last))
}

// isHead reports whether an event of a stream is the newest of the log. The head of a log is found
// by it.
func (v *view) isHead(state *streamState, revision int64) (bool, error) {
	if state.id == 0 {
		return false, nil
	}
	index, found, err := get(v.snapshot, revisionKey(state.id, revision))
	if err != nil || !found {
		return false, err
	}
	position, err := decodePosition(index)
	return position == v.head, err
}

// firstYoung is the revision of the first event, from a revision on, that is not older than its stream allows; behind the last one where all are.
func (v *view) firstYoung(state *streamState, from int64, now time.Time) (int64, error) {
	stored := *state
	stored.meta = streamMeta{} // whatever is still there
	for {
		p, err := v.stream(&stored, from, false, pageEvents, now)
		if err != nil {
			return 0, err
		}
		for _, e := range p.events {
			r, err := parseRecord(e.record)
			if err != nil {
				return 0, fmt.Errorf("event at position %d: %w", e.position, err)
			}
			if !r.created.Before(now.Add(-state.meta.maxAge)) {
				return e.revision, nil
			}
			from = e.revision + 1
		}
		if p.end {
			return from, nil
		}
	}
}
