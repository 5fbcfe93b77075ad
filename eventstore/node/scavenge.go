package node

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"
)

const (
	// scavengeBatch is how many events are removed at once, so that appends are not held up.
	scavengeBatch = 256
	// gatherTime is the pause between a deletion and its removal, unless a scavenge is requested:
	// everything deleted meanwhile is removed together.
	gatherTime = time.Second
	// softDeleteGrace is how long the events of a soft-deleted stream are kept where nobody asks for a scavenge.
	softDeleteGrace = time.Hour
	// supersededGrace is how long metadata is kept that newer metadata replaced.
	supersededGrace = time.Hour
	// rewritePause lies between two rewrites of the files that held removed events: a rewrite also copies their neighbours.
	rewritePause = 10 * time.Minute
	// failurePause follows a removal that failed; it doubles up to failureRest while they fail.
	failurePause = time.Second
	failureRest  = time.Minute
	// never is longer than any process runs.
	never = time.Duration(math.MaxInt64)
)

// Scavenge removes for good what tombstones, deletions, $tb, $maxCount and $maxAge took from the readers before the call: of a
// tombstoned stream everything but the tombstone, its metadata too; of any other stream all that its metadata hides
// except its last event. Positions and revisions stay as they are, and the whole log shows what is removed no longer.
// When it returns nil, no file of the data folder holds a byte of it.
//
// Reads, appends and subscriptions go on meanwhile. Calls that come while a scavenge runs share the next one. The end of the
// context ends the wait and not the scavenge. The node also removes by itself, some minutes later.
func (n *Node) Scavenge(ctx context.Context) error {
	r := n.scavenger.request()
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
	case <-n.Failed():
		return n.Err()
	case <-n.scavenger.done:
	}
	select { // it may have been the last thing that was done
	case <-r.done:
		return r.err
	default:
		return errClosing
	}
}

// round is one scavenge and those who wait for it.
type round struct {
	done chan struct{}
	err  error // readable once done is closed
}

// scavenger removes the events that no reader of their stream sees any more. What it has to do stands in the log beside
// what caused it, so a restart goes on with it.
//
// A removal is final for readers at once. From the files the events go when the files are rewritten and the old logs are taken
// away: at the latest with the next call of Scavenge, or after rewritePause.
type scavenger struct {
	store   *store
	views   *views
	log     *slog.Logger
	removed func() // called after events were removed
	// renewed returns once readers see a view that is newer than the removals so far.
	renewed func(context.Context) error
	now     func() time.Time
	pause   time.Duration
	gather  time.Duration
	// asleep removes nothing unless it is asked, so that a test knows what is there.
	asleep bool

	due    chan struct{}
	urgent chan struct{}   // somebody asks for a round
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	asked *round // the round that has not begun, nil while nobody asks for one

	rewriteAt time.Time // belongs to run
}

func newScavenger(st *store, views *views, log *slog.Logger) *scavenger {
	s := &scavenger{
		store: st, views: views, log: log, removed: func() {}, renewed: func(context.Context) error { return nil },
		now: time.Now, pause: rewritePause, gather: gatherTime,
		due: make(chan struct{}, 1), urgent: make(chan struct{}, 1), done: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wake()
	return s
}

// wake says that there may be something to remove.
func (s *scavenger) wake() {
	select {
	case s.due <- struct{}{}:
	default:
	}
}

// request joins the next round: the one that runs may have looked at the log before the caller's deletions.
func (s *scavenger) request() *round {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked == nil {
		s.asked = &round{done: make(chan struct{})}
		s.wake()
		select {
		case s.urgent <- struct{}{}:
		default:
		}
	}
	return s.asked
}

// isAsked reports whether a round is requested.
func (s *scavenger) isAsked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked != nil
}

func (s *scavenger) begin() *round {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.asked
	s.asked = nil
	return r
}

func (s *scavenger) run() {
	defer close(s.done)
	s.rewriteAt = s.now().Add(s.pause)
	timer := time.NewTimer(never)
	defer timer.Stop()
	failing := failurePause
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.due:
		case <-timer.C:
		}
		if !s.asleep && !s.isAsked() && !s.rest(s.gather) {
			return
		}
		asked := s.begin()
		if asked == nil && s.asleep {
			continue
		}
		wait, err := s.once(asked)
		if err == nil {
			err = s.note()
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
		if !s.rest(failing) {
			return
		}
		failing = min(2*failing, failureRest)
		s.wake()
	}
}

// rest waits, unless a round is requested; false means that the node closes.
func (s *scavenger) rest(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.urgent:
	case <-s.ctx.Done():
		return false
	}
	return true
}

// once removes what is due; for a round that was asked for, or after the pause, from the files too. It says how long nothing else will be due.
func (s *scavenger) once(asked *round) (wait time.Duration, err error) {
	pause := !s.now().Before(s.rewriteAt)
	wait, err = s.sweep(sweeping{all: asked != nil, bounded: asked != nil || pause})
	if err == nil && (asked != nil || pause) {
		s.rewriteAt = s.now().Add(s.pause)
		err = s.erase(asked != nil)
	}
	if asked != nil {
		asked.err = err
		if s.ctx.Err() != nil {
			asked.err = errClosing
		}
		close(asked.done)
	}
	return wait, err
}

// note notes how far the log has come.
func (s *scavenger) note() error {
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
