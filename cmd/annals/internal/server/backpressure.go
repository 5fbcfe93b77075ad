package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dustin/go-humanize/english"
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
	spaceIsFree      = "space is free"
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
	gauges []gauge
	result atomic.Pointer[blocks]
	watch  condition.Watch
	// derives is true while derivation with the built-in extractor runs. Only items accepted after
	// derivesFrom count. leasedAt is when another process was last seen deriving; only check uses it.
	derives     atomic.Bool
	derivesFrom atomic.Uint64
	leasedAt    time.Time
}

func newBackpressure(sources pressureSources) *backpressure {
	p := &backpressure{
		pressureSources: sources, room: admission.NewRoom(admission.RoomWait), marks: map[string]mark{},
		known: map[uuid.UUID]uuid.UUID{},
	}
	p.gauges = []gauge{
		{p.checkLog, []cause{logRefused}},
		{p.checkLag, []cause{behind, projectsBehind, projectDelays}},
		{p.checkDisk, []cause{diskFull}},
		{p.checkDerivation, []cause{waiting, projectsWait}},
		{p.checkBulk, []cause{batchesWait, projectBatches}},
	}
	return p
}

// mark is the head of the log at a time at which a projection had not reached it.
type mark struct {
	head eventstore.Position
	at   time.Time
}

// blocks are why writes are refused or wait. The zero value holds nothing.
type blocks struct {
	holds []hold // the first one that concerns a write is what its caller reads
	// found are the holds as operators read them.
	found condition.List
	// slowest is what all projections that count have applied.
	slowest eventstore.Position
	// open is what waits for derivation.
	open datapoints.Waiting
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
	now := blocks{slowest: before.slowest, open: before.open}
	for _, g := range p.gauges {
		holds, err := g.measure(ctx, before, &now)
		if err != nil {
			holds = before.only(g.causes...)
		}
		now.holds = append(now.holds, holds...)
	}
	now.found = now.conditions()
	began, ended := p.watch.Note(p.now(), now.found)
	p.logChanges(ctx, began, ended, now)
	p.result.Store(&now)
	p.setRoom(now)
}

// setRoom gives the room what a check found, so that it grants what fits.
func (p *backpressure) setRoom(now blocks) {
	s := admission.State{Waits: func(o allowance.Owner, l admission.Lane) string { return now.waits(o.Project, l) }}
	if p.backlog != nil {
		s.Budget, s.All, s.Unapplied = p.speed.measure(p.backlog, now.slowest, p.now(), p.room.Waiting() > 0)
	}
	p.room.Set(s)
}

// state returns the result of the last check.
func (p *backpressure) state() blocks {
	if r := p.result.Load(); r != nil {
		return *r
	}
	return blocks{}
}

// checkDisk holds writes, and below a part of the limit deletions, while the disk of the data folder is nearly full.
func (p *backpressure) checkDisk(_ context.Context, before blocks, _ *blocks) ([]hold, error) {
	if p.minFree == 0 {
		return nil, nil
	}
	free, err := p.free()
	if err != nil {
		return nil, err
	}
	limit, last := p.minFree, p.minFree*deletionsPercent/100
	for _, h := range before.only(diskFull) {
		limit = limit * resumePercent / 100
		if h.deletions {
			last = last * resumePercent / 100
		}
	}
	if free >= limit {
		return nil, nil
	}
	const words = "the disk of the data folder is nearly full"
	return []hold{{
		of: diskFull, words: words, until: spaceIsFree, deletions: free < last,
		more: fmt.Sprintf("%s: %d MiB are free, %d MiB must be (ANNALS_MIN_FREE_DISK is %d)",
			words, free>>20, limit>>20, p.minFree>>20),
	}}, nil
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

// checkLog holds all writes while the embedded log stores no events.
func (p *backpressure) checkLog(context.Context, blocks, *blocks) ([]hold, error) {
	if p.logSpace == nil || !p.logSpace().Full {
		return nil, nil
	}
	s := p.logSpace()
	const words = "the disk of the event store is full"
	numbers := "writes wait for space, or for a file descriptor"
	if s.Free < s.Reserve {
		numbers = fmt.Sprintf("%d MiB are free on the disk of ANNALS_DATA_DIR, the log leaves %d MiB free",
			s.Free>>20, s.Reserve>>20)
	}
	return []hold{{of: logRefused, words: words, more: words + ": " + numbers, until: spaceIsFree, deletions: true}}, nil
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

// refuse returns the fault with which a write is refused now without a wait, nil if it is not.
func (p *backpressure) refuse(lane admission.Lane) error {
	if p.stopped() != nil {
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the event store cannot write until the service is restarted; reads continue")
	}
	return p.state().refuse(lane)
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
	return p.stopped() != nil || now.has(diskFull) || now.has(logRefused)
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

// hold is a cause for which writes are refused or wait for room: callers, operators, metrics and the log read it here.
type hold struct {
	of cause
	// words are the cause for callers, more what operators read instead. Operators do not read of a cause without it.
	words, more string
	// projects are those whose writes it holds, nil for all.
	projects map[uuid.UUID]bool
	// lanes are those whose writes wait for room. Without any, writes are refused at once.
	lanes []admission.Lane
	// until is when what is refused is accepted again. Deletions is true if deletions are refused too.
	until     string
	deletions bool
}

// gauge measures something that has a limit. It returns the holds while that is over the limit, and until it is down to
// where it resumes. If it fails, the holds of its causes before it stay.
type gauge struct {
	// measure gets what the check before found, and adds what else it finds to the current one.
	measure func(ctx context.Context, before blocks, now *blocks) ([]hold, error)
	causes  []cause
}

// cause names a hold, as annals_writes_refused names the first four.
type cause string

const (
	behind         cause = "behind"
	waiting        cause = "waiting"
	diskFull       cause = "disk"
	logRefused     cause = "log"
	batchesWait    cause = "batches"
	projectsBehind cause = "projects-behind"
	projectsWait   cause = "projects-waiting"
	projectDelays  cause = "project-delays"
	projectBatches cause = "project-batches"
)

// maxLoggedProjects bounds the projects of one line.
const maxLoggedProjects = 8

// has reports whether a check found a cause.
func (r blocks) has(of cause) bool { return len(r.only(of)) > 0 }

// only returns what a check found of some causes.
func (r blocks) only(of ...cause) (list []hold) {
	for _, h := range r.holds {
		if slices.Contains(of, h.of) {
			list = append(list, h)
		}
	}
	return list
}

// held returns the projects that a cause holds.
func (r blocks) held(of cause) map[uuid.UUID]bool {
	for _, h := range r.only(of) {
		return h.projects
	}
	return nil
}

// waits returns why a write of a project waits for room, "" if it does not.
func (r blocks) waits(project uuid.UUID, lane admission.Lane) string {
	for _, h := range r.holds {
		if slices.Contains(h.lanes, lane) && (h.projects == nil || h.projects[project]) {
			return h.words
		}
	}
	return ""
}

// refuse returns the fault with which a write is refused now without a wait, nil if it is not. A deletion passes
// whatever lags, and keeps a part of the disk.
func (r blocks) refuse(lane admission.Lane) error {
	for _, h := range r.holds {
		if len(h.lanes) == 0 && (h.deletions || lane != admission.NoRoom) {
			return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
				"%s: writes are refused until %s, retry later; reads continue", h.words, h.until)
		}
	}
	return nil
}

// conditions returns why writes are refused or wait, for operators.
func (r blocks) conditions() (list condition.List) {
	for _, h := range r.holds {
		if h.more == "" {
			continue
		}
		c := remark(condition.WritesRefused, h.more)
		c.Of = string(h.of)
		c.Projects = slices.SortedFunc(maps.Keys(h.projects), func(a, b uuid.UUID) int {
			return cmp.Compare(a.String(), b.String())
		})
		list = append(list, c)
	}
	return list
}

// holdProjects returns the hold of some projects, none without any. One and more are what they do, for operators.
func holdProjects(of cause, projects map[uuid.UUID]bool, words, one, more string, lanes ...admission.Lane) []hold {
	if len(projects) == 0 {
		return nil
	}
	h := hold{of: of, words: words, projects: projects, lanes: lanes}
	if one != "" {
		h.more = english.Plural(len(projects), "project", "projects") + " " + english.PluralWord(len(projects), one, more)
	}
	return []hold{h}
}

// logChanges logs each cause when it begins and when it ends.
func (p *backpressure) logChanges(ctx context.Context, began, ended condition.List, now blocks) {
	for _, c := range began {
		message := "writes are refused"
		if len(now.only(cause(c.Of))[0].lanes) > 0 {
			message = "writes wait for room, and are refused after a while"
		}
		args := []any{slog.String("why", c.Of), slog.String("reason", string(c.Words))}
		if len(c.Projects) > 0 {
			args = append(args, slog.Any("projects", c.Projects[:min(len(c.Projects), maxLoggedProjects)]))
		}
		p.logger.WarnContext(ctx, message, args...) //nolint:sloglint // one of two constants
	}
	for _, c := range ended {
		p.logger.InfoContext(ctx, "writes are accepted again", "why", c.Of)
	}
}

// conditions returns why writes are refused or wait.
func (p *backpressure) conditions() (list condition.List) {
	if err := p.stopped(); err != nil {
		c := withCause(condition.WritesRefused, "the event store cannot write until the service is restarted", err.Error())
		c.Of = string(logRefused)
		list = append(list, c)
	}
	return append(list, p.state().found...)
}
