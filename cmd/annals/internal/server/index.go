package server

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/domain/fault"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/explained"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/runner"
)

const (
	// indexPoll is the longest time between two checks of the lease of the index; startPoll is that of
	// a start.
	indexPoll = 500 * time.Millisecond
	startPoll = 20 * time.Millisecond
	// sharedPoll is how often the process that feeds a shared index checks that it still exists.
	sharedPoll = 5 * time.Second
	// indexCatchUp bounds one wait for the index to reach the head.
	indexCatchUp = 5 * time.Second
	// indexGrace bounds how long a start waits for the index.
	indexGrace = 5 * time.Second
)

// localIndex knows whether the recall index of this process can answer. A shared index answers every
// process. An embedded index belongs to one process: of several, the one that holds the lease of its
// projection feeds its own index and answers recall. The others are standbys, and build theirs once
// they hold the lease.
type localIndex struct {
	read    *readSide
	storage *storage
	// ownsIndex is true if no other process can hold the lease, because the log is embedded. Then a
	// lease that changes within the process, as at the end of a rebuild, interrupts no recall.
	ownsIndex bool
	// shared is the index that all processes search, nil if each has its own. Recall needs no lease then.
	shared recallindex.Shared
	// feeds is true if this process runs projections: it may hold the lease.
	feeds bool
	// grace is how long a start waits for the index.
	grace  time.Duration
	logger *slog.Logger
	// readyEpoch is the epoch of this process in which the index reached the head, 0 for none.
	readyEpoch atomic.Int64
	// checked is when a shared index was last checked. Only watch uses it.
	checked time.Time
	// goal is the position that the index must reach in epoch goalEpoch: the head of the log when that
	// epoch began. The current head would move away while sends do not pause. Only watch uses both.
	goal      eventstore.Position
	goalEpoch int64
	// stopped is true while the projection is stopped in this process and no other process continues
	// it: then the index is as complete as it can be.
	stopped atomic.Bool
}

func buildIndex(_ context.Context, s *Server) (adds, error) {
	cfg, st := s.cfg, s.storage
	x := &localIndex{
		read: s.read, storage: st, ownsIndex: cfg.EventStore == Embedded, feeds: cfg.Roles.Has(RoleProjector),
		grace: indexGrace, logger: cfg.Logger,
	}
	x.shared, _ = st.index.(recallindex.Shared)
	s.index = x
	if !x.feeds {
		return adds{}, nil
	}
	return adds{watch: []task{{"index", x.watch}, {"refill", x.refill}}}, nil
}

// isFed reports whether this process feeds its index, or would if the projection had not stopped. A
// shared index counts as fed by all.
func (x *localIndex) isFed() bool {
	if x.shared != nil {
		return true
	}
	_, active := x.read.runtime.Active(recallindex.Name)
	return active || x.stopped.Load()
}

// isReady reports whether the index has reached the head in the current epoch, or is stopped.
func (x *localIndex) isReady() bool {
	epoch, active := x.read.runtime.Active(recallindex.Name)
	return active && epoch == x.readyEpoch.Load() || x.stopped.Load()
}

// unavailableReason returns why this process refuses recall, "" if it does not.
func (x *localIndex) unavailableReason() string {
	switch _, active := x.read.runtime.Active(recallindex.Name); {
	case x.shared != nil, x.isReady(), x.ownsIndex && x.readyEpoch.Load() != 0:
		return ""
	case active, x.ownsIndex:
		return "the index of this process is being built; recall is available after that"
	default:
		return "another process feeds its index and serves recall"
	}
}

// watch follows the lease of the index until the context ends.
func (x *localIndex) watch(ctx context.Context) error {
	moved, stop := x.read.waiter.Watch(recallindex.Name)
	defer stop()
	for ctx.Err() == nil {
		x.check(ctx)
		_ = backoff.Pause(ctx, indexPoll, moved)
	}
	return nil
}

// refill fills the parts of the index that lost their documents, until the context ends.
func (x *localIndex) refill(ctx context.Context) error {
	index := recallindex.New(x.storage.index, x.storage.journal(), x.read.analyzers, x.logger)
	return index.RefillLosses(ctx, x.storage.work)
}

func (x *localIndex) check(ctx context.Context) {
	epoch, active := x.read.runtime.Active(recallindex.Name)
	if active && x.shared != nil {
		x.checkShared(ctx)
	}
	if active && epoch == x.readyEpoch.Load() {
		return
	}
	if !active {
		x.stopped.Store(x.read.runtime.StoppedHere(ctx, recallindex.Name))
		return
	}
	if x.read.isStopped(ctx, recallindex.Name) { // it repeats a page
		x.stopped.Store(x.publish(ctx) == nil)
		return
	}
	err := x.reachGoal(ctx, epoch)
	if _, still := x.read.runtime.Active(recallindex.Name); err == nil && still {
		err = x.publish(ctx)
	}
	// If the lease was lost meanwhile, Active returns another epoch.
	if err == nil {
		x.readyEpoch.Store(epoch)
		x.stopped.Store(false)
	}
}

// reachGoal waits for the index to reach the head of the log that was there when an epoch began, at
// most for indexCatchUp.
func (x *localIndex) reachGoal(ctx context.Context, epoch int64) error {
	if x.goalEpoch != epoch {
		head, err := x.storage.store.Head(ctx)
		if err != nil {
			return err
		}
		x.goal, x.goalEpoch = head, epoch
	}
	limited, cancel := context.WithTimeout(ctx, indexCatchUp)
	defer cancel()
	return x.read.waiter.Wait(limited, x.goal, recallindex.Name)
}

// publish makes a shared index that was empty answer recalls, in all processes.
func (x *localIndex) publish(ctx context.Context) error {
	if x.shared == nil {
		return nil
	}
	err := x.shared.Publish(ctx)
	if err != nil {
		x.logger.WarnContext(ctx, "recall index is complete and not published, will retry", "err", err)
	}
	return err
}

// checkShared checks from time to time whether the index still exists. If not, it begins a new
// generation; the lease ends, and the next one builds that.
func (x *localIndex) checkShared(ctx context.Context) {
	if time.Since(x.checked) < sharedPoll {
		return
	}
	x.checked = time.Now()
	if err := x.shared.Check(ctx); err != nil && ctx.Err() == nil {
		x.logger.WarnContext(ctx, "check of recall index failed, will retry", "err", err)
	}
}

// await waits until the index is ready or another process is known to feed its own or the shared one,
// at most for the grace. After that the service starts although the index is not ready; recall is refused
// while the index cannot answer.
func (x *localIndex) await(ctx context.Context) {
	if x.shared != nil && !x.feeds {
		return
	}
	limited, cancel := context.WithTimeout(ctx, x.grace)
	defer cancel()
	switch {
	case x.isStandby(limited):
		if x.shared != nil {
			return
		}
		x.logger.InfoContext(ctx, "another process feeds its index, recall is refused until this process takes over")
	case limited.Err() != nil && ctx.Err() == nil:
		x.logger.WarnContext(ctx, "recall index is not ready, recall may be refused until it is")
	}
}

// isStandby reports whether a live process other than this one feeds its index. It polls until
// that is known or the index of this process is ready.
func (x *localIndex) isStandby(ctx context.Context) bool {
	var first runner.Lease
	for ctx.Err() == nil && !x.isReady() {
		var lease runner.Lease
		var err error
		_, active := x.read.runtime.Active(recallindex.Name)
		if !active && !x.ownsIndex {
			lease, err = x.read.runtime.LeaseOf(ctx, recallindex.Name)
		}
		switch {
		case err != nil, active, x.ownsIndex:
			first = runner.Lease{}
		case lease.Epoch != first.Epoch || first.Epoch == 0:
			first = lease
		case lease.Until.After(first.Until):
			return true
		}
		sleep(ctx, startPoll)
	}
	return false
}

// localRecall serves recall while the index of this process can answer, and refuses it otherwise.
type localRecall struct {
	index  *localIndex
	recall *recall.Service
}

func buildRecall(_ context.Context, s *Server) (adds, error) {
	cfg, read := s.cfg, s.read
	var without []string
	if cfg.NoRecallFloor {
		without = append(without, domainrecall.Floor)
	}
	s.recall = localRecall{s.index, recall.New(recall.Config{
		Without: without,
		DB:      s.storage.db, Replica: read.replica, Index: s.storage.index, Analyzers: read.analyzers,
		Viewers: read.directory, Blobs: s.storage.journal(), Projections: read.waiter, Log: cfg.Logger,
		Semantic: s.semantic.search(), Now: cfg.now,
	})}
	return adds{operator: []operatorapi.Route{operatorapi.ExplainRoute(s.explainer())}}, nil
}

// explainer explains recalls.
func (s *Server) explainer() explained.Explainer {
	return explained.Explainer{Access: s.read.access, Recall: s.recall, Plans: s.cfg.PlanTerms}
}

// Explain explains a recall to an operator. Its faults are those of Recall.
func (l localRecall) Explain(ctx context.Context, q recall.Query, sourceIDs []string) (explained.Explanation, error) {
	if reason := l.index.unavailableReason(); reason != "" {
		return explained.Explanation{}, fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "%s", reason)
	}
	return explained.Explain(ctx, l.recall, q, sourceIDs)
}

// Recall searches the memory of a project. Its faults are those of recall.Service, and
// service-unavailable if the index cannot answer.
func (l localRecall) Recall(ctx context.Context, q recall.Query) (recall.Response, error) {
	if reason := l.index.unavailableReason(); reason != "" {
		return recall.Response{}, fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "%s", reason)
	}
	return l.recall.Recall(ctx, q)
}

// localSearch searches the index while that of this process can answer, as localRecall does.
type localSearch struct {
	index *localIndex
	recallindex.Index
}

// Search implements recallindex.Index.
func (l localSearch) Search(ctx context.Context, q recallindex.Query) (recallindex.Found, error) {
	if reason := l.index.unavailableReason(); reason != "" {
		return recallindex.Found{}, fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "%s", reason)
	}
	return l.Index.Search(ctx, q)
}
