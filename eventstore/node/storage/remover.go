package storage

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

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
