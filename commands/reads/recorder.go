// Package reads appends read records to the log: who was shown which texts of a project.
//
// A request reserves room for its record before it is answered, and the record is appended within a second of the
// answer, together with those of other requests of the project. While the log does not take them, no other request of
// that project is answered: it waits, and then it is refused. So a crash loses the records of that second at most.
// Where reads are proved, the record is appended before the answer, and a crash loses none.
package reads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/lru"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/readlog"
)

const (
	// gather is how long records wait for others.
	gather = 300 * time.Millisecond
	// late is from which age on a record that is not in the log holds up other requests, for at most lateWait.
	late     = time.Second
	lateWait = 3 * time.Second
	// flushTimeout bounds one flush, endTimeout the last one.
	flushTimeout = 10 * time.Second
	endTimeout   = 15 * time.Second
	// knownLeaves is how many nodes are remembered with what records say of them.
	knownLeaves = 32_768
)

// leaves find what records say of nodes.
type leaves interface {
	// Leaves returns what is known of nodes that are not erased, by their ids.
	Leaves(ctx context.Context, nodes []uuid.UUID) (map[uuid.UUID]reads.Shown, error)
}

// Config holds what a Recorder needs.
type Config struct {
	Journal    eventstore.Journal
	Namespaces stream.Namespaces
	Leaves     leaves
	Logger     *slog.Logger
	// Now is the clock of events.
	Now func() time.Time
}

// Recorder appends the read records of a process: those of a project whose reads are kept in a goroutine of its own
// (Run), and those that prove an answer before it is given.
type Recorder struct {
	Config

	room *allowance.Allowance
	wake chan struct{}

	mu    sync.Mutex
	queue []entry
	// oldest is since when the first record of a project waits that is not in the log. taken is closed once a flush
	// has ended.
	oldest map[uuid.UUID]time.Time
	taken  chan struct{}
	// lanes are the answers that wait for their records, by project. heads are where streams end, and known is what is
	// known of nodes.
	lanes map[uuid.UUID]*lane
	heads map[string]eventstore.Revision
	known *lru.Map[uuid.UUID, reads.Shown]

	// batches are made and not known to be in the log. They are used by Run alone.
	batches []*batch

	// took is about what the last appends took, in nanoseconds.
	took atomic.Int64

	records, failures prometheus.Counter
}

// entry is a record that waits.
type entry struct {
	owner  allowance.Owner
	record reads.Record
	hold   *allowance.Hold
	since  time.Time
	// looks is how often its texts were looked up.
	looks int
}

// New makes a recorder.
func New(cfg Config) *Recorder {
	return &Recorder{
		Config: cfg, room: admission.ReadRecords.New(), wake: make(chan struct{}, 1), taken: make(chan struct{}),
		oldest: map[uuid.UUID]time.Time{}, lanes: map[uuid.UUID]*lane{}, heads: map[string]eventstore.Revision{},
		known: lru.New[uuid.UUID, reads.Shown](knownLeaves),
		records: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "annals_read_records_total", Help: "Read records appended to the log.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "annals_read_record_failures_total",
			Help: "Appends of read records that failed: kept ones are tried again, proved answers are refused.",
		}),
	}
}

// Register registers the metrics of the recorder.
func (r *Recorder) Register(registry prometheus.Registerer) error {
	age := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "annals_read_records_oldest_seconds", Help: "Age of the oldest read record that is not in the log, 0 for none.",
	}, func() float64 { return r.longest().Seconds() })
	return errors.Join(registry.Register(r.records), registry.Register(r.failures), registry.Register(age))
}

// AppendTime is about what the last appends of this process took, 0 before the first one.
func (r *Recorder) AppendTime() time.Duration { return time.Duration(r.took.Load()) }

// Room implements readlog.Keeper.
func (r *Recorder) Room() *allowance.Allowance { return r.room }

// Question implements readlog.Keeper.
func (r *Recorder) Question(project uuid.UUID, text string) string {
	hash, err := r.Namespaces.Question(project, text)
	if err != nil {
		return "" // a log without a hash key has no question
	}
	return hash
}

// Open makes the read of a request at a time, zero for now; nil if the reads of its project are not recorded. It waits
// while records cannot be appended. The error is service-unavailable.
func (r *Recorder) Open(
	ctx context.Context, p auth.Principal, request uuid.UUID, at time.Time,
) (*readlog.Read, error) {
	if p.Project.Reads.Recorded() == "" {
		return nil, nil //nolint:nilnil // a nil read records nothing
	}
	if err := r.awaitLog(ctx, p.Project.ID); err != nil {
		return nil, err
	}
	if at.IsZero() {
		at = r.Now()
	}
	return readlog.Open(ctx, r, p, request, at)
}

// awaitLog waits while a record of a project has waited too long. Others are not held up by it.
func (r *Recorder) awaitLog(ctx context.Context, project uuid.UUID) error {
	timeout := time.NewTimer(lateWait)
	defer timeout.Stop()
	for r.age(project) > late {
		r.mu.Lock()
		taken := r.taken
		r.mu.Unlock()
		select {
		case <-taken:
		case <-timeout.C:
			return notStored()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// age is how long the oldest record of a project waits.
func (r *Recorder) age(project uuid.UUID) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, waits := r.oldest[project]
	if !waits {
		return 0
	}
	return time.Since(since)
}

// longest is how long the oldest record of any project waits.
func (r *Recorder) longest() (age time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, since := range r.oldest {
		age = max(age, time.Since(since))
	}
	return age
}

// Keep implements readlog.Keeper.
func (r *Recorder) Keep(o allowance.Owner, record reads.Record, hold *allowance.Hold) {
	now := time.Now()
	r.mu.Lock()
	e := entry{owner: o, record: record, hold: hold, since: now}
	r.queue = append(r.queue, e)
	r.waits(e)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run appends what is kept until the context ends, and then what is left.
func (r *Recorder) Run(ctx context.Context) error {
	pause, last := backoff.Backoff{First: gather, Longest: time.Second}, context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-r.wake:
		}
		if pause.Wait(ctx) != nil {
			continue
		}
		if err := r.flush(last, flushTimeout, maxLooks); err != nil {
			r.failures.Inc()
			r.Logger.ErrorContext(ctx, "read records cannot be appended, will retry", "err", err)
		} else {
			pause.Reset()
		}
	}
	if err := r.flush(last, endTimeout, 0); err != nil {
		r.Logger.ErrorContext(last, "read records were lost at the shutdown", "err", err)
	}
	return nil
}

// flush appends the records that wait, but for those with texts that are unknown and were looked up less often than
// looks. What it could not append waits on.
func (r *Recorder) flush(ctx context.Context, limit time.Duration, looks int) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := panics.Call(ctx, r.Logger, "flush of read records panicked", func() error {
		return errors.Join(r.batchQueue(ctx, looks), r.append(ctx))
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.oldest)
	for _, e := range r.queue {
		r.waits(e)
	}
	for _, b := range r.batches {
		for _, e := range b.entries {
			r.waits(e)
		}
	}
	if len(r.oldest) > 0 {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
	close(r.taken)
	r.taken = make(chan struct{})
	return err
}

// batchQueue makes batches of the records that wait. After an error or a panic all of them wait on.
func (r *Recorder) batchQueue(ctx context.Context, looks int) error {
	r.mu.Lock()
	taken := r.queue
	r.queue = nil
	r.mu.Unlock()
	wait := taken
	defer func() {
		r.mu.Lock()
		r.queue = append(wait, r.queue...)
		r.mu.Unlock()
	}()
	ready, later := r.lookUp(ctx, taken, looks)
	made, err := r.batch(ready)
	if err != nil {
		return err
	}
	wait, r.batches = later, append(r.batches, made...)
	return nil
}

// waits notes that a record is not in the log.
func (r *Recorder) waits(e entry) {
	if since, waits := r.oldest[e.owner.Project]; !waits || e.since.Before(since) {
		r.oldest[e.owner.Project] = e.since
	}
}

const (
	// batchBytes is about the most bytes of the records of one append.
	batchBytes = 192 << 10
	// maxLooks is how often the texts of a record are looked up: one that was just stored may not be projected yet. With
	// the pauses between, a record is appended within a second even then.
	maxLooks = 2
	// maxHeads is of how many streams the end is remembered.
	maxHeads = 4096
	// appendWidth is how many projects are appended to at once.
	appendWidth = 8
	principal   = "reads"
)

// batch is some records of a project, as one append stores them.
type batch struct {
	owner   allowance.Owner
	entries []entry
	rooted  reads.Rooted
	records reads.Recorded
	// name is the stream, meta what a repeated append has too. at is the revision after which it was tried, and tried is
	// true while it is not known how that ended.
	name  string
	meta  event.Meta
	at    eventstore.Revision
	tried bool
	// done reports that it is in the log, or lost, since its stream has ended.
	done, lost bool
}

// lookUp completes the texts of records. It returns those that are ready or were looked up so often, and those that
// wait for the projection.
func (r *Recorder) lookUp(ctx context.Context, taken []entry, looks int) (ready, wait []entry) {
	if missing := r.unknown(taken); len(missing) > 0 {
		found, err := r.Leaves.Leaves(ctx, missing)
		if err != nil {
			r.Logger.WarnContext(ctx, "events of texts that were read cannot be looked up", "err", err)
		}
		r.mu.Lock()
		for id, s := range found {
			r.known.Add(id, s)
		}
		r.mu.Unlock()
	}
	for _, e := range taken {
		e.looks++
		if r.complete(e.record.Shown) || e.looks >= looks {
			ready = append(ready, e)
		} else {
			wait = append(wait, e)
		}
	}
	return ready, wait
}

// unknown returns the nodes of records of which nothing is known.
func (r *Recorder) unknown(taken []entry) (missing []uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := map[uuid.UUID]bool{uuid.Nil: true}
	for _, e := range taken {
		for _, s := range e.record.Shown {
			if _, known := r.known.Get(s.Node); !known && !asked[s.Node] {
				asked[s.Node] = true
				missing = append(missing, s.Node)
			}
		}
	}
	return missing
}

// complete sets what is known of texts, and reports whether that is all of them.
func (r *Recorder) complete(texts []reads.Shown) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := true
	for i, s := range texts {
		known, is := r.known.Get(s.Node)
		if !is {
			all = all && s.Node == uuid.Nil
			continue
		}
		if s.Spans == nil {
			texts[i].Spans = known.Spans
		}
		texts[i].DataPoint, texts[i].Revision, texts[i].Leaf = known.DataPoint, known.Revision, known.Leaf
	}
	return all
}

// batch makes the appends of records.
func (r *Recorder) batch(ready []entry) ([]*batch, error) {
	var made []*batch
	open, sizes := map[uuid.UUID]*batch{}, map[uuid.UUID]int{}
	var errs []error
	for _, e := range ready {
		size := int(e.hold.Held())
		project := e.owner.Project
		b := open[project]
		if b == nil || sizes[project]+size > batchBytes {
			b = &batch{owner: e.owner}
			made, open[project], sizes[project] = append(made, b), b, 0
		}
		b.entries = append(b.entries, e)
		sizes[project] += size
	}
	for _, b := range made {
		list := make([]reads.Record, len(b.entries))
		for i, e := range b.entries {
			list[i] = e.record
		}
		var err error
		b.rooted, b.records, err = reads.Batch(b.owner.Organization, b.owner.Project, list)
		errs = append(errs, err)
		now := r.Now()
		b.name = stream.ReadsName(b.owner.Project, now.UTC().Format(time.DateOnly))
		b.meta = event.NewMeta(principal, now).Of(b.owner.Project)
	}
	return made, errors.Join(errs...)
}

// append appends the batches, those of a project in their order, and forgets those that are in the log.
func (r *Recorder) append(ctx context.Context) error {
	var projects []uuid.UUID
	of := map[uuid.UUID][]*batch{}
	for _, b := range r.batches {
		id := b.owner.Project
		if of[id] == nil {
			projects = append(projects, id)
		}
		of[id] = append(of[id], b)
	}
	errs := make([]error, len(projects))
	err := panics.Each(ctx, r.Logger, appendWidth, len(projects), func(ctx context.Context, i int) error {
		for _, b := range of[projects[i]] {
			if errs[i] = r.appendBatch(ctx, b); errs[i] != nil {
				break
			}
		}
		return nil
	})
	left := r.batches[:0]
	for _, b := range r.batches {
		if !b.done {
			left = append(left, b)
			continue
		}
		r.records.Add(float64(len(b.entries)))
		for _, e := range b.entries {
			e.hold.Release()
		}
	}
	clear(r.batches[len(left):])
	r.batches = left
	return errors.Join(append(errs, err)...)
}

// appendBatch appends a batch after the end of its stream, where another process may append too.
func (r *Recorder) appendBatch(ctx context.Context, b *batch) error {
	for {
		if !b.tried {
			at, err := r.headOf(ctx, b.name)
			if err != nil {
				return fmt.Errorf("find the end of %s: %w", b.name, err)
			}
			b.at, b.tried = at, true
		}
		begun := time.Now()
		done, err := r.Journal.Append(ctx, b.name, b.at, b.meta, b.rooted, b.records)
		switch {
		case err == nil:
			b.done = true
			r.took.Store((7*cmp.Or(r.took.Load(), int64(time.Since(begun))) + int64(time.Since(begun))) / 8)
			r.setHead(b.name, done.Revision)
			return nil
		case errors.Is(err, eventstore.ErrConflict):
			// Somebody else appended, and this append is not in the log. Another one needs another id.
			b.tried, b.meta.CommandID = false, uuid.New()
			r.dropHead(b.name)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		case errors.Is(err, eventstore.ErrDeleted):
			// The clock was set back to a day whose records have left the log.
			b.done, b.lost = true, true
			r.Logger.ErrorContext(ctx, "read records are of a day whose stream has ended, they are lost", "stream", b.name)
			return nil
		default:
			return fmt.Errorf("append to %s: %w", b.name, err)
		}
	}
}

// headOf returns where a stream ends.
func (r *Recorder) headOf(ctx context.Context, name string) (eventstore.Revision, error) {
	r.mu.Lock()
	at, known := r.heads[name]
	r.mu.Unlock()
	if known {
		return at, nil
	}
	last, ok, err := r.Journal.Store.ReadLast(ctx, name)
	if err != nil {
		if errors.Is(err, eventstore.ErrDeleted) {
			return eventstore.NoStream, nil // the append fails for it
		}
		return 0, err
	}
	if !ok {
		return eventstore.NoStream, nil
	}
	return last.Revision, nil
}

func (r *Recorder) setHead(name string, at eventstore.Revision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.heads) >= maxHeads {
		clear(r.heads)
	}
	r.heads[name] = at
}

func (r *Recorder) dropHead(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.heads, name)
}
