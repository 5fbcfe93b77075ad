package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// pending is a removal to do in a stream, not before a time. Its key is the position of the event
// that caused it. Metadata may cause two: in the stream that it describes, and in its own.
type pending struct {
	cause  uint64
	stream string
	due    time.Time
}

// isDelayed reports whether the stream was soft-deleted after an event that caused an immediate
// removal: the deletion has its own grace period.
func (p pending) isDelayed(v *view) (bool, error) {
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

// ended reports whether a stream is soft-deleted: its events wait for the end of their grace
// period.
func (v *view) ended(stream string) (bool, error) {
	state, err := loadState(v.snapshot, stream)
	if err != nil {
		return false, err
	}
	return state.softDeleted() && !state.deleted(), nil
}

func (p pending) key() []byte {
	key := pendingKey(p.cause)
	if IsMeta(p.stream) {
		key = append(key, MetaPrefix...)
	}
	return key
}

func (p pending) encode() []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(p.due.UnixNano())), p.stream...)
}

func decodePending(key, value []byte) (pending, error) {
	if len(key) < 9 || len(value) < 8 {
		return pending{}, ErrDamagedRecord
	}
	return pending{
		cause:  positionOf(key),
		due:    time.Unix(0, int64(binary.BigEndian.Uint64(value))),
		stream: string(value[8:]),
	}, nil
}

// sweeping selects what a sweep removes.
type sweeping struct {
	// all includes what is not due yet.
	all bool
	// bounded includes the streams that are bounded by number or age.
	bounded bool
}

// sweep removes what is due, and returns how long until more is due.
func (s *scavenger) sweep(what sweeping) (wait time.Duration, err error) {
	wait = forever
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
		s.republish()
	}
	return wait, nil
}

// removeBounded removes the events that exceed the bounds of their streams.
func (s *scavenger) removeBounded(v *view, bounded []string, all bool) (err error) {
	r := &remover{scavenger: s}
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

// removeDue removes what is due and deletes its records. It handles a stream once, however many
// records name it.
func (s *scavenger) removeDue(v *view, due []pending, all bool) (err error) {
	r := &remover{scavenger: s}
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
	delayed, err := p.isDelayed(v)
	if err != nil {
		return err
	}
	if (all || !delayed) && !seen[p.stream] {
		seen[p.stream] = true
		if err := s.remove(r, v, p.stream, IsMeta(p.stream)); err != nil {
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

// boundedOf lists the streams that are bounded by number or age.
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

// remove removes what the metadata of a stream hides as of a view: by all its bounds, or by $tb
// alone. Events that are newer than the view are above what it removes.
func (s *scavenger) remove(r *remover, v *view, stream string, bounds bool) error {
	state, err := loadState(v.snapshot, stream)
	if err != nil {
		return err
	}
	if state.deleted() {
		for range metaLevels {
			stream = MetaPrefix + stream
			if err := s.removeMeta(r, v, stream); err != nil {
				return err
			}
		}
		return r.below(state, TombstoneRevision)
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
	// Keep the last event of a stream that is not tombstoned, as servers do: the newest event of
	// the log is never removed.
	return r.below(state, min(below, state.last))
}

// removeMeta removes the metadata of a tombstoned stream.
func (s *scavenger) removeMeta(r *remover, v *view, metastream string) error {
	meta, err := loadState(v.snapshot, metastream)
	if err != nil {
		return err
	}
	below := int64(TombstoneRevision)
	if head, err := v.isHead(meta, meta.last); err != nil {
		return err
	} else if head {
		below = meta.last
	}
	return r.below(meta, below)
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

// firstYoung returns the revision of the first event, from a revision on, that is not too old; the
// revision after the last event if all are.
func (v *view) firstYoung(state *streamState, from int64, now time.Time) (int64, error) {
	stored := *state
	stored.meta = streamMeta{} // ignore what hides events
	for {
		p, err := v.stream(&stored, from, false, PageEvents, now)
		if err != nil {
			return 0, err
		}
		for _, e := range p.Events {
			r, err := ParseRecord(e.Record)
			if err != nil {
				return 0, fmt.Errorf("event at position %d: %w", e.Position, err)
			}
			if !r.Created.Before(now.Add(-state.meta.maxAge)) {
				return e.Revision, nil
			}
			from = e.Revision + 1
		}
		if p.End {
			return from, nil
		}
	}
}

// remover removes events of many streams, scavengeBatch of them with one fsync, together with the
// records of their removals. The caller flushes it at the end, or closes it after an error.
type remover struct {
	scavenger *scavenger
	batch     *pebble.Batch // nil while there is nothing in it
	positions []uint64      // of the events in the batch
	forgotten int           // how many removals the batch marks as done
}

func (r *remover) open() *pebble.Batch {
	if r.batch == nil {
		r.batch = r.scavenger.store.db.NewBatch()
	}
	return r.batch
}

// below removes the events of a stream below a revision.
func (r *remover) below(state *streamState, revision int64) error {
	if state.id == 0 || revision <= 0 {
		return nil
	}
	for from := int64(0); from < revision; {
		if err := r.scavenger.ctx.Err(); err != nil {
			return err
		}
		next, err := r.removeBatch(state, from, revision)
		if err != nil {
			return err
		}
		from = next
		if len(r.positions) >= scavengeBatch {
			if err := r.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeBatch removes as many events of a stream as fit into the batch, and returns the revision at
// which to continue.
func (r *remover) removeBatch(state *streamState, from, below int64) (next int64, err error) {
	iter, err := r.scavenger.store.db.NewIter(&pebble.IterOptions{
		LowerBound: revisionKey(state.id, from), UpperBound: revisionKey(state.id, below),
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	batch := r.open()
	for valid := iter.First(); valid; valid = iter.Next() {
		if len(r.positions) >= scavengeBatch {
			return revisionOf(iter.Key()), nil
		}
		value, err := iter.ValueAndErr()
		if err != nil {
			return 0, err
		}
		position, err := decodePosition(value)
		if err != nil {
			return 0, err
		}
		if err := errors.Join(batch.Delete(eventKey(position), nil), batch.Delete(iter.Key(), nil)); err != nil {
			return 0, err
		}
		r.positions = append(r.positions, position)
	}
	return below, iter.Error()
}

// forget marks a pending removal as done, in the batch of the last events that it removes.
func (r *remover) forget(p pending) error {
	if err := r.open().Delete(p.key(), nil); err != nil {
		return err
	}
	if r.forgotten++; r.forgotten >= scavengeBatch {
		return r.flush()
	}
	return nil
}

// flush commits what is in the batch.
func (r *remover) flush() error {
	if r.batch == nil {
		return nil
	}
	slices.Sort(r.positions) // events of several streams interleave
	var holes spans
	for _, position := range r.positions {
		holes.add(span{position, position})
	}
	for _, hole := range holes {
		if err := r.batch.Set(holeKey(hole), nil, nil); err != nil {
			return err
		}
	}
	batch := r.batch
	r.batch, r.positions, r.forgotten = nil, r.positions[:0], 0
	if batch.Empty() {
		return batch.Close()
	}
	return r.scavenger.store.commit(batch)
}

// close discards what was not flushed.
func (r *remover) close() error {
	if r.batch == nil {
		return nil
	}
	batch := r.batch
	r.batch = nil
	if err := batch.Close(); err != nil {
		return fmt.Errorf("discard a removal: %w", err)
	}
	return nil
}
