package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// pending is a stream with events to remove, not before a time. It is stored under the position of the event that caused it.
type pending struct {
	cause  uint64
	stream string
	due    time.Time
}

func (p pending) encode() []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(p.due.UnixNano())), p.stream...)
}

func decodePending(key, value []byte) (pending, error) {
	if len(key) != 9 || len(value) < 8 {
		return pending{}, errRecord
	}
	return pending{
		cause:  positionOf(key),
		due:    time.Unix(0, int64(binary.BigEndian.Uint64(value))),
		stream: string(value[8:]),
	}, nil
}

// sweep removes what is due, and says how long nothing else will be.
func (s *scavenger) sweep() (wait time.Duration, err error) {
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
	swept := false
	for _, p := range todo {
		if left := p.due.Sub(s.now()); left > 0 {
			wait = min(wait, left)
			continue
		}
		if err := s.remove(v, p); err != nil {
			return wait, fmt.Errorf("stream %q: %w", p.stream, err)
		}
		swept = true
	}
	if swept {
		s.removed()
	}
	return wait, nil
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

// remove removes what a stream has to lose as of a view. What was written after the view is above what it removes.
func (s *scavenger) remove(v *view, p pending) error {
	state, err := loadState(v.snapshot, p.stream)
	if err != nil {
		return err
	}
	below := min(max(state.meta.truncateBefore, 0), state.last+1)
	if state.deleted() {
		below = tombstoneRevision
		meta, err := loadState(v.snapshot, metaPrefix+p.stream)
		if err != nil {
			return err
		}
		if err := s.removeBelow(meta, below); err != nil {
			return err
		}
	}
	if err := s.removeBelow(state, below); err != nil {
		return err
	}
	return s.db.Delete(pendingKey(p.cause), pebble.Sync)
}

// removeBelow deletes the events of a stream below a revision, a batch at a time.
func (s *scavenger) removeBelow(state *streamState, below int64) error {
	if state.id == 0 || below <= 0 {
		return nil
	}
	for {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		removed, err := s.removeSome(state, below)
		if err != nil || removed == 0 {
			return err
		}
	}
}

func (s *scavenger) removeSome(state *streamState, below int64) (removed int, err error) {
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: revisionKey(state.id, 0), UpperBound: revisionKey(state.id, below)})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	batch := s.db.NewBatch()
	defer func() { err = errors.Join(err, batch.Close()) }()
	var holes spans
	for valid := iter.First(); valid && removed < scavengeBatch; valid = iter.Next() {
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
		holes.add(span{position, position})
		removed++
	}
	if err := iter.Error(); err != nil || removed == 0 {
		return 0, err
	}
	for _, hole := range holes {
		if err := batch.Set(holeKey(hole), nil, nil); err != nil {
			return 0, err
		}
	}
	return removed, batch.Commit(pebble.Sync)
}
