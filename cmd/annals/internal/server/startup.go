package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/projections/memories"
)

const (
	startRetry = time.Second
	// startReport is how often a start that waits for projections logs that it does.
	startReport = time.Minute
)

// startup admits requests once the projections have reached the head of the log at the start, and
// what the roles of the process need is done: interrupted fan-outs are complete, organizations and
// vault are prepared.
type startup struct {
	storage *storage
	read    *readSide
	// index is nil if this process does not answer recall.
	index *localIndex
	// projections are those that must have reached the head.
	projections []string
	// steps come then, in order, each repeated until it succeeds.
	steps     []step
	progress  *startProgress
	admission *opening
	ready     func()
	logger    *slog.Logger
	// done is closed when the service is ready.
	done chan struct{}
}

func buildStart(_ context.Context, s *Server) (adds, error) {
	up := &startup{
		storage: s.storage, read: s.read, steps: all(s.added, func(a adds) []step { return a.steps }),
		progress: s.health.progress, admission: s.health.admission, ready: func() { s.cfg.Ready(s.urls) },
		logger: s.cfg.Logger, done: make(chan struct{}),
	}
	if s.cfg.Roles.HasAny(Roles{RoleWrite, RoleRead, RoleProjector, RolePipeline}) {
		up.projections = append(slices.Clone(neededByWrites), memories.Name)
	}
	if s.cfg.Roles.Has(RoleRead) {
		up.index = s.index
	}
	s.startup = up
	return adds{edge: []task{{"start", up.run}}}, nil
}

// step is a step of a start.
type step struct {
	name string
	do   func(context.Context) error
}

// run starts the service and waits for the end of the context.
func (s *startup) run(ctx context.Context) error {
	head, err := s.head(ctx)
	if err != nil {
		return err
	}
	s.progress.begin(head)
	panics.Go(ctx, s.logger, "report of the start panicked", func() { s.reportProgress(ctx) })
	for _, name := range s.projections {
		if !s.catchUp(ctx, head, name) {
			return nil
		}
	}
	if s.index != nil {
		s.index.await(ctx)
	}
	if ctx.Err() != nil {
		return nil
	}
	for _, next := range s.steps {
		if !s.retry(ctx, next) {
			return nil
		}
	}
	if s.storage.wentBack() != nil {
		<-ctx.Done()
		return nil
	}
	close(s.done)
	s.admission.open.Store(true)
	s.ready()
	<-ctx.Done()
	return nil
}

// head reads the end of the log. It waits for the end of the context if the log went back: /readyz then names
// the cause, which a process that starts again and again could not.
func (s *startup) head(ctx context.Context) (eventstore.Position, error) {
	for {
		head, err := s.storage.store.Head(ctx)
		switch {
		case err == nil:
			return head, nil
		case s.storage.wentBack() != nil:
			<-ctx.Done()
			return 0, nil
		case !errors.Is(err, eventstore.ErrUnavailable) || ctx.Err() != nil:
			return 0, err
		}
		s.logger.WarnContext(ctx, "startup: end of the log not read, will retry", "err", err)
		if !sleep(ctx, startRetry) {
			return 0, nil
		}
	}
}

// catchUp waits until a projection has reached a position. It returns false if the context ends
// first. Requests stay refused while a projection that writes need is missing. If one of the
// others is stopped, only its reads are refused, so the start continues.
func (s *startup) catchUp(ctx context.Context, head eventstore.Position, name string) bool {
	report := time.Now().Add(startReport)
	for {
		err := s.read.waiter.Wait(ctx, head, name)
		needed := slices.Contains(neededByWrites, name)
		if err == nil && s.storage.wentBack() == nil && !(needed && s.read.isStopped(ctx, name)) {
			return true
		}
		if !needed && s.read.isStopped(ctx, name) {
			return true
		}
		if time.Now().After(report) {
			s.logger.WarnContext(ctx, "startup: projection has not caught up, still waiting", "projection", name, "err", err)
			report = time.Now().Add(startReport)
		}
		if !sleep(ctx, startRetry) {
			return false
		}
	}
}

// retry repeats a step of the start until it succeeds. It returns false if the context ends first.
func (s *startup) retry(ctx context.Context, next step) bool {
	for {
		err := next.do(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() != nil { // the stop is the cause
			return false
		}
		s.logger.WarnContext(ctx, "startup: step failed, will retry", "step", next.name, "err", err)
		if !sleep(ctx, startRetry) {
			return false
		}
	}
}

// after delays a task until the service is ready, because its work lists are incomplete before.
func (s *startup) after(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-s.done:
			return run(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}
