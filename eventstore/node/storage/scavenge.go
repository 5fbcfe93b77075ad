package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/annals-project/annals/eventstore/backoff"
)

const (
	// scavengeBatch is how many events are removed with one commit, so that appends are not
	// delayed.
	scavengeBatch = 256
	// gatherTime is the pause between a deletion and its removal, unless a scavenge is requested:
	// everything deleted meanwhile is removed together.
	gatherTime = time.Second
	// softDeleteGrace is how long the events of a soft-deleted stream are kept, unless a scavenge
	// is requested.
	softDeleteGrace = time.Hour
	// supersededGrace is how long metadata is kept after newer metadata replaced it.
	supersededGrace = time.Hour
	// rewritePause is the pause between two rewrites of files with removed events: a rewrite also
	// copies the other events in them.
	rewritePause = 10 * time.Minute
	// failurePause follows a failed removal. It doubles up to failureLongest while removals fail.
	failurePause   = time.Second
	failureLongest = time.Minute
	// forever is longer than any process runs.
	forever = time.Duration(math.MaxInt64)
)

// Scavenge removes permanently what tombstones, deletions, $tb, $maxCount and $maxAge hid from
// readers before the call: of a tombstoned stream everything but the tombstone, including its
// metadata; of any other stream everything that its metadata hides, except its last event.
// Positions and revisions do not change; the whole log no longer shows what was removed. When it
// returns nil, no file of the data folder contains a byte of it.
//
// Reads, appends and subscriptions continue meanwhile. Calls during a scavenge share the next one.
// If the context ends, the wait ends, but the scavenge continues. The engine also removes without a
// request, some minutes later.
func (e *Engine) Scavenge(ctx context.Context) error {
	r := e.scavenger.request()
	select {
	case <-r.done:
		return r.err
	default:
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	case <-e.Failed():
		return e.Err()
	case <-e.scavenger.done:
	}
	select { // it may have been the last thing that was done
	case <-r.done:
		return r.err
	default:
		return ErrClosing
	}
}

// round is one scavenge and its waiting callers.
type round struct {
	done chan struct{}
	err  error // readable once done is closed
}

// scavenger removes the events that no reader of their stream sees any more. Its pending work is in
// the log, so it continues after a restart.
//
// Removed events disappear for readers at once. Their bytes leave the files when the files are
// rewritten and the old logs deleted: with the next call of Scavenge, or after rewritePause.
type scavenger struct {
	store     *store
	views     *views
	log       *slog.Logger
	republish func() // called after events were removed
	// drainReaders returns once all readers see a view that is newer than the removals so far.
	drainReaders func(context.Context) error
	now          func() time.Time
	pause        time.Duration
	gather       time.Duration
	// manual waits for requests, so that a test knows what is in the log.
	manual bool

	due    chan struct{}
	urgent chan struct{}   // a round is requested
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	done   chan struct{}

	mu        sync.Mutex
	requested *round // the round that has not begun, nil while nobody asks for one

	rewriteAt time.Time // belongs to run
}

func newScavenger(st *store, views *views, log *slog.Logger) *scavenger {
	s := &scavenger{
		store: st, views: views, log: log, republish: func() {}, drainReaders: func(context.Context) error { return nil },
		now: time.Now, pause: rewritePause, gather: gatherTime,
		due: make(chan struct{}, 1), urgent: make(chan struct{}, 1), done: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wake()
	return s
}

// wake signals that there may be something to remove.
func (s *scavenger) wake() {
	select {
	case s.due <- struct{}{}:
	default:
	}
}

// request joins the next round. The current one may have read the log before the caller's
// deletions.
func (s *scavenger) request() *round {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requested == nil {
		s.requested = &round{done: make(chan struct{})}
		s.wake()
		select {
		case s.urgent <- struct{}{}:
		default:
		}
	}
	return s.requested
}

// isRequested reports whether a round is requested.
func (s *scavenger) isRequested() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requested != nil
}

func (s *scavenger) begin() *round {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.requested
	s.requested = nil
	return r
}

func (s *scavenger) run() {
	defer close(s.done)
	defer s.store.failure.recoverPanic("the scavenger")
	s.rewriteAt = s.now().Add(s.pause)
	timer := time.NewTimer(forever)
	defer timer.Stop()
	failing := failurePause
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.due:
		case <-timer.C:
		}
		if !s.manual && !s.isRequested() && !s.sleep(s.gather) {
			return
		}
		requests := s.begin()
		if requests == nil && s.manual {
			continue
		}
		wait, err := s.runOnce(requests)
		if err == nil {
			err = s.saveMark()
		}
		if s.ctx.Err() != nil {
			return
		}
		if err == nil {
			failing = failurePause
			timer.Reset(min(wait, s.pause))
			continue
		}
		s.log.Error("removal of deleted events failed", "err", err)
		if !s.sleep(failing) {
			return
		}
		failing = min(2*failing, failureLongest)
		s.wake()
	}
}

// sleep waits, unless a round is requested; false means that the node closes.
func (s *scavenger) sleep(d time.Duration) bool {
	return backoff.Pause(s.ctx, d, s.urgent) == nil
}

// runOnce removes what is due; for a requested round, or after the pause, also from the files. It
// returns how long until more is due.
func (s *scavenger) runOnce(requests *round) (wait time.Duration, err error) {
	pause := !s.now().Before(s.rewriteAt)
	wait, err = s.sweep(sweeping{all: requests != nil, bounded: requests != nil || pause})
	if err == nil && (requests != nil || pause) {
		s.rewriteAt = s.now().Add(s.pause)
		err = s.erase(requests != nil)
	}
	if requests != nil {
		requests.err = err
		if s.ctx.Err() != nil {
			requests.err = ErrClosing
		}
		close(requests.done)
	}
	return wait, err
}

// saveMark writes the mark for the newest view.
func (s *scavenger) saveMark() error {
	v, err := s.views.acquire()
	if err != nil {
		return err
	}
	return errors.Join(s.store.writeMark(v.head), v.release())
}

func (s *scavenger) close() {
	s.cancel()
	<-s.done
}

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
