package storage

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

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
