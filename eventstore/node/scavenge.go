package node

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// scavengeBatch is how many events are removed at once, so that appends are not held up.
const scavengeBatch = 256

// scavenger removes the events of tombstoned streams, and their metadata. The tombstones stay. What it has to do
// stands in the log beside the tombstones, so a restart goes on with it.
type scavenger struct {
	db      *pebble.DB
	log     *slog.Logger
	removed func() // called after events were removed
	due     chan struct{}
	stop    chan struct{}
	done    sync.WaitGroup
}

func newScavenger(db *pebble.DB, log *slog.Logger) *scavenger {
	s := &scavenger{db: db, log: log, due: make(chan struct{}, 1), stop: make(chan struct{})}
	s.done.Add(1)
	s.wake()
	return s
}

// wake says that a stream was tombstoned.
func (s *scavenger) wake() {
	select {
	case s.due <- struct{}{}:
	default:
	}
}

func (s *scavenger) run() {
	defer s.done.Done()
	for {
		select {
		case <-s.stop:
			return
		case <-s.due:
		}
		if err := s.sweep(); err != nil && !errors.Is(err, errClosing) {
			s.log.Error("removal of deleted events failed", "err", err)
		}
	}
}

func (s *scavenger) close() {
	close(s.stop)
	s.done.Wait()
}

// sweep removes what every pending tombstone ended.
func (s *scavenger) sweep() error {
	for {
		stream, found, err := s.next()
		if err != nil || !found {
			return err
		}
		for _, name := range []string{stream, metaPrefix + stream} {
			if err := s.remove(name); err != nil {
				return fmt.Errorf("stream %q: %w", name, err)
			}
		}
		if err := s.db.Delete(tombstoneKey(stream), pebble.Sync); err != nil {
			return err
		}
		s.removed()
	}
}

func (s *scavenger) next() (stream string, found bool, err error) {
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{spaceTombstone}, UpperBound: []byte{spaceTombstone + 1}})
	if err != nil {
		return "", false, err
	}
	if found = iter.First(); found {
		stream = string(iter.Key()[1:])
	}
	return stream, found, errors.Join(iter.Error(), iter.Close())
}

// remove deletes the events of a stream, its tombstone left out.
func (s *scavenger) remove(stream string) error {
	state, err := loadState(s.db, stream)
	if err != nil || state.id == 0 {
		return err
	}
	for {
		select {
		case <-s.stop:
			return errClosing
		default:
		}
		removed, err := s.removeSome(state)
		if err != nil || removed == 0 {
			return err
		}
	}
}

func (s *scavenger) removeSome(state *streamState) (removed int, err error) {
	iter, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: revisionKey(state.id, 0), UpperBound: revisionKey(state.id, tombstoneRevision),
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	batch := s.db.NewBatch()
	defer func() { err = errors.Join(err, batch.Close()) }()
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
		removed++
	}
	if err := iter.Error(); err != nil || removed == 0 {
		return 0, err
	}
	return removed, batch.Commit(pebble.Sync)
}
