package node

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// scavengeBatch is how many events are removed at once, so that appends are not held up.
	scavengeBatch = 256
	// softDeleteGrace is how long the events of a soft-deleted stream are kept.
	softDeleteGrace = time.Hour
	// rewritePause lies between two rewrites of the files that held removed events: a rewrite also copies their neighbours.
	rewritePause = 10 * time.Minute
	// never is longer than any process runs.
	never = time.Duration(math.MaxInt64)
)

// scavenger removes the events that no reader of their stream sees any more: those of tombstoned streams, their
// metadata too, and those below $tb. Tombstones stay. What it has to do stands in the log beside what caused it, so a
// restart goes on with it.
//
// A removal is final for readers at once. From the files the events go when the files are rewritten, which the
// scavenger asks for; the storage engine also keeps up to five 16 MiB files of its write-ahead log for reuse, whose old
// content stays until it is overwritten or the node starts anew.
type scavenger struct {
	db      *pebble.DB
	views   *views
	log     *slog.Logger
	removed func() // called after events were removed
	now     func() time.Time
	pause   time.Duration

	due    chan struct{}
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	done   chan struct{}

	rewriteAt time.Time // belongs to run
}

func newScavenger(db *pebble.DB, views *views, log *slog.Logger) *scavenger {
	s := &scavenger{
		db: db, views: views, log: log, removed: func() {}, now: time.Now, pause: rewritePause,
		due: make(chan struct{}, 1), done: make(chan struct{}),
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

func (s *scavenger) run() {
	defer close(s.done)
	s.rewriteAt = s.now().Add(s.pause)
	timer := time.NewTimer(never)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.due:
		case <-timer.C:
		}
		wait, err := s.sweep()
		if err == nil && !s.now().Before(s.rewriteAt) {
			s.rewriteAt = s.now().Add(s.pause)
			err = s.rewrite()
		}
		if s.ctx.Err() != nil {
			return
		}
		if err != nil {
			s.log.Error("removal of deleted events failed", "err", err)
		}
		timer.Reset(min(wait, s.pause))
	}
}

func (s *scavenger) close() {
	s.cancel()
	<-s.done
}
