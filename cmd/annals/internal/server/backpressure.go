package server

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/runner"
	"github.com/annals-project/annals/projections/usage"
)

const (
	// resumePercent is how much of the limit must be free before a disk that was full accepts writes.
	resumePercent = 125
	// deletionsPercent is the share of the limit up to which deletions are accepted, since they free
	// space.
	deletionsPercent = 100 / 8
)

// neededByWrites are the projections that a write needs: the caller, the data points, the limits
// and the directory. A write does not need the others, such as the recall index.
var neededByWrites = []string{access.Name, datapoints.Name, usage.Name, directory.Name}

// healthOfWrites returns the states of the projections that writes need.
func healthOfWrites(health func(context.Context) []runner.Status) func(context.Context) []runner.Status {
	return func(ctx context.Context) []runner.Status {
		return slices.DeleteFunc(health(ctx), func(s runner.Status) bool { return !slices.Contains(neededByWrites, s.Name) })
	}
}

// pressureSources is what backpressure reads.
type pressureSources struct {
	// minFree is how many bytes of the disk must be free; 0 checks no disk.
	minFree uint64
	free    func() (bytes uint64, err error)
	// logSpace returns what the disk of the embedded log has left; nil for a cluster.
	logSpace func() node.Space
	// stopped returns why the log accepts no more writes until a restart, nil while it does.
	stopped func() error
	head    func(ctx context.Context) (eventstore.Position, error)
	// countAfter counts the events after a position, up to a limit.
	countAfter func(ctx context.Context, after eventstore.Position, limit int) (int, error)
	// health returns the states of the projections that writes need.
	health func(ctx context.Context) []runner.Status
	// index returns the state of the recall index while it applies pages; nil ignores the index.
	index func(ctx context.Context) (s runner.Status, ok bool)
	// backlog knows which organizations the newest events belong to, and owners knows the
	// organizations of projects. Without them all organizations are refused together.
	backlog *backlog
	owners  func(ctx context.Context, projects []uuid.UUID) (map[uuid.UUID]uuid.UUID, error)
	// queue is the queue of derivation, nil if derivation is switched off.
	queue derivationQueue
	// deriveElsewhere is true if other processes derive.
	deriveElsewhere bool
	// slowExtractor is true if a model derives. Then the queue refuses nobody, because the model's
	// endpoint sets the speed.
	slowExtractor bool
	// bulkItems and bulkBytes bound what waits in batches.
	bulkItems int
	bulkBytes int64
	// now measures durations. clock is the clock that acceptance times are compared with.
	now, clock func() time.Time
	logger     *slog.Logger
}

func buildBackpressure(_ context.Context, s *Server) (adds, error) {
	s.backpressure = newBackpressure(sourcesOf(s.cfg, s.storage, s.read))
	s.backpressure.register(s.registry)
	if !s.cfg.Roles.HasAny(Roles{RoleWrite, RolePipeline}) {
		return adds{}, nil
	}
	return adds{watch: []task{{"pressure", s.backpressure.run}}}, nil
}

func sourcesOf(cfg Config, st *storage, read *readSide) pressureSources {
	sources := pressureSources{
		minFree: cfg.MinFreeDisk, free: diskFree(cfg.Data.Dir), stopped: st.logStopped, head: st.store.Head,
		countAfter: countEventsAfter(st.store), health: healthOfWrites(read.runtime.Health),
		index: workingIndex(read.runtime.Health), backlog: read.backlog, owners: read.access.Owners,
		slowExtractor: cfg.Model.URL != "", bulkItems: cfg.BulkItems, bulkBytes: cfg.BulkBytes,
		now: time.Now, clock: cfg.now, logger: cfg.Logger,
	}
	if st.node != nil {
		sources.logSpace = st.node.Space
	}
	if cfg.Derive {
		sources.queue, sources.deriveElsewhere = read.work.dataPoints, !cfg.Roles.Has(RolePipeline)
	}
	return sources
}

// backpressure lets writes wait for room while projections lag by events of their project, or more is sent than can
// be derived, and refuses them while all is late or the disk of the data folder is nearly full. Reads continue. It
// checks four times a second; a request only reads the result.
type backpressure struct {
	pressureSources
	room   *admission.Room
	speed  speed
	marks  map[string]mark
	known  map[uuid.UUID]uuid.UUID // organizations by project
	result atomic.Pointer[blocks]
	watch  condition.Watch
	// derives is true while derivation with the built-in extractor runs. Only items accepted after
	// derivesFrom count. leasedAt is when another process was last seen deriving; only check uses it.
	derives     atomic.Bool
	derivesFrom atomic.Uint64
	leasedAt    time.Time
}

func newBackpressure(sources pressureSources) *backpressure {
	return &backpressure{
		pressureSources: sources, room: admission.NewRoom(admission.RoomWait), marks: map[string]mark{},
		known: map[uuid.UUID]uuid.UUID{},
	}
}

// mark is the head of the log at a time at which a projection had not reached it.
type mark struct {
	head eventstore.Position
	at   time.Time
}

// blocks are the reasons why writes are refused. The zero value refuses nothing.
type blocks struct {
	lagging, full, nearlyFull, logFull string
	// free and logFree are the numbers of a disk that is nearly full or full, for operators.
	free, logFree string
	// slowest is what all projections that count have applied.
	slowest eventstore.Position
	// ahead are the projects that wait because of their own unapplied events, delaying those whose own delay others
	// in the recall index.
	ahead, delaying map[uuid.UUID]amount
	// derivation is what waits for derivation, bulk why projects with batches wait.
	derivation derivationState
	bulk       bulkState
	// found are the blocks as operators read them.
	found condition.List
}

// run checks until the context ends.
func (p *backpressure) run(ctx context.Context) error {
	for {
		p.check(ctx)
		if !sleep(ctx, admission.CheckEvery) {
			return nil
		}
	}
}

func (p *backpressure) check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	before := p.state()
	now := p.checkLag(ctx, before)
	now.nearlyFull, now.full, now.free = p.checkDisk(before)
	now.logFull, now.logFree = p.checkLog()
	now.derivation = p.checkDerivation(ctx, before.derivation)
	now.bulk = p.checkBulk(ctx, before.bulk)
	now.found = now.conditions()
	began, ended := p.watch.Note(p.now(), now.found)
	p.logChanges(ctx, began, ended)
	p.result.Store(&now)
	p.setRoom(now)
}

// setRoom gives the room what a check found, so that it grants what fits.
func (p *backpressure) setRoom(now blocks) {
	floods := map[uuid.UUID]bool{}
	for project := range now.delaying {
		floods[project] = p.room.Live(project) > floodOfLive
	}
	s := admission.State{Waits: func(o allowance.Owner, l admission.Lane) string {
		return now.waits(o.Project, l, floods)
	}}
	if p.backlog != nil {
		s.Budget, s.All, s.Unapplied = p.speed.measure(p.backlog, now.slowest, p.now(), p.room.Waiting() > 0)
	}
	p.room.Set(s)
}

// waits returns why a write of a project waits for room, "" if it does not. What derives nothing only waits for the
// projections, and a deletion for nothing.
func (r blocks) waits(project uuid.UUID, lane admission.Lane, floods map[uuid.UUID]bool) string {
	_, ahead := r.ahead[project]
	_, delaying := r.delaying[project]
	derives := lane == admission.Live || lane == admission.Bulk
	switch {
	case lane == admission.NoRoom:
		return ""
	case ahead:
		return "the project sends faster than its events are processed"
	case derives && delaying && (lane == admission.Bulk || floods[project]):
		return "the project delays others in the recall index"
	case lane == admission.Live && r.derivation.late != "":
		return r.derivation.late
	case lane == admission.Live && r.derivation.own[project]:
		return "the project sends more than can be derived"
	case lane == admission.Bulk:
		return r.bulk.waits(project)
	default:
		return ""
	}
}

// state returns the result of the last check.
func (p *backpressure) state() blocks {
	if r := p.result.Load(); r != nil {
		return *r
	}
	return blocks{}
}

// checkDisk returns why writes and why deletions are refused because of the disk, with its numbers. If the disk
// cannot be read, it returns the previous result.
func (p *backpressure) checkDisk(before blocks) (nearlyFull, full, numbers string) {
	if p.minFree == 0 {
		return "", "", ""
	}
	free, err := p.free()
	if err != nil {
		return before.nearlyFull, before.full, before.free
	}
	limit, last := p.minFree, p.minFree*deletionsPercent/100
	if before.nearlyFull != "" {
		limit = limit * resumePercent / 100
	}
	if before.full != "" {
		last = last * resumePercent / 100
	}
	reason := "the disk of the data folder is nearly full"
	if free < limit {
		nearlyFull = reason
		numbers = fmt.Sprintf("%d MiB are free, %d MiB must be (ANNALS_MIN_FREE_DISK is %d)",
			free>>20, limit>>20, p.minFree>>20)
	}
	if free < last {
		full = reason
	}
	return nearlyFull, full, numbers
}

// disk returns how much of the disk of the data folder is free, and how much must be: the greater of what the setting
// and the embedded log want. ok is false if neither wants any, or if it cannot be read.
func (p *backpressure) disk() (free, required uint64, ok bool) {
	required = p.minFree
	if p.logSpace != nil {
		required = max(required, p.logSpace().Reserve)
	}
	if required == 0 {
		return 0, 0, false
	}
	free, err := p.free()
	return free, required, err == nil
}

// checkLog returns why the embedded log stores no events, "" if it does, with the numbers of its disk.
func (p *backpressure) checkLog() (full, numbers string) {
	if p.logSpace == nil {
		return "", ""
	}
	s := p.logSpace()
	if !s.Full {
		return "", ""
	}
	numbers = "writes wait for space, or for a file descriptor"
	if s.Free < s.Reserve {
		numbers = fmt.Sprintf("%d MiB are free on the disk of ANNALS_DATA_DIR, the log leaves %d MiB free",
			s.Free>>20, s.Reserve>>20)
	}
	return "the disk of the event store is full", numbers
}

// admit returns once a write may pass; see httpx.Config.Writes.
func (p *backpressure) admit(ctx context.Context, w admission.Write) (leave func(), err error) {
	if err := p.refuse(w.Lane); err != nil {
		return nil, err
	}
	if w.Lane == admission.NoRoom {
		return func() {}, nil
	}
	if leave, err = p.room.Enter(ctx, w); err != nil {
		return nil, err
	}
	if err := p.refuse(w.Lane); err != nil { // it may have waited
		leave()
		return nil, err
	}
	return leave, nil
}

// refuse returns the fault with which a write is refused now without a wait, nil if it is not. A deletion passes
// whatever lags, and keeps a part of the disk.
func (p *backpressure) refuse(lane admission.Lane) error {
	r, deletion := p.state(), lane == admission.NoRoom
	refused := func(format string, args ...any) error {
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, format, args...)
	}
	switch {
	case p.stopped() != nil:
		return refused("the event store cannot write until the service is restarted; reads continue")
	case r.logFull != "":
		return refused("%s: writes are refused until space is free, retry later; reads continue", r.logFull)
	case r.lagging != "" && !deletion:
		return refused("%s: writes are refused until it has caught up, retry later; reads continue", r.lagging)
	case r.full != "", r.nearlyFull != "" && !deletion:
		return refused("%s: writes are refused until space is free, retry later; reads continue", r.nearlyFull)
	default:
		return nil
	}
}

// register registers the metric of the writes that wait.
func (p *backpressure) register(registry prometheus.Registerer) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "annals_writes_waiting", Help: "Writes that wait for room before their body is read.",
	}, func() float64 { return float64(p.room.Waiting()) }))
}

// pausesDerivation reports whether nothing is to be derived: the disk is nearly full, or the log accepts no writes.
func (p *backpressure) pausesDerivation() bool {
	now := p.state()
	return p.stopped() != nil || now.nearlyFull != "" || now.logFull != ""
}

// diskFree returns how many bytes of the disk of a folder this process may still write.
func diskFree(folder string) func() (uint64, error) {
	return func() (uint64, error) {
		var s syscall.Statfs_t
		if err := syscall.Statfs(folder, &s); err != nil {
			return 0, fmt.Errorf("read free space of %s: %w", folder, err)
		}
		return s.Bavail * uint64(s.Bsize), nil //nolint:gosec // the size of a block is positive
	}
}
