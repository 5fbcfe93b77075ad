// Package projections declares what a projection is: tables, or an index, that a projector builds
// from the log. Package runner runs projectors; each other folder here holds one.
package projections

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/projection"
)

// Projector builds one projection. Its tables are in a schema of its name, which the runner
// rebuilds from the log when the version changes. Embed Base for all methods but Apply.
type Projector interface {
	// Name is the schema, the key of the checkpoint and what callers wait for.
	Name() string
	// Version is raised with every change of the schema or of what is in the rows.
	Version() int
	// Categories are the stream categories whose events it applies. It must know every event name
	// in them.
	Categories() []string
	// Schema is the DDL of its tables, run once with search_path set to the schema.
	Schema() string
	// TextTables are the tables that hold customer text: what is deleted from them must leave the
	// disk.
	TextTables() []string
	// Counted are the tables, each with a condition or without, that a rebuild from the same log fills
	// with as many rows: what follows "select count(*) from schema.".
	Counted() []string
	// Pace is the pause between pages.
	Pace() Pace
	// Apply applies decoded events of its categories, in order. Pages of any size give the same
	// rows. A page comes again after its transaction was lost, never after it was committed, except
	// for what Apply writes to an external target.
	//
	// It names the events that it takes, and any other changes no row: a name or a step that the
	// catalogue does not have stops the projection before.
	//
	// Its statements name tables without a schema: the transaction's search_path is the schema that
	// it builds, which is not always the one that readers see. No two projectors share the text of
	// a statement, or a connection that serves both plans it each time.
	//
	// An error means that an event cannot be applied, and stops the projection, unless it is the
	// database's, the event store's or the context's, or Transient wrapped it: then the page comes
	// again.
	Apply(ctx context.Context, tx pgx.Tx, page []eventstore.DecodedEvent) error
}

// Pace is the least time from the beginning of a page to that of the next. A pause makes pages
// fewer and larger, so an event costs less. It never holds up an event that comes after a quiet
// time, a full page, or an event that a caller waits for.
type Pace struct {
	Min time.Duration
	// Max, if above Min, bounds a pause that grows with the events of a page.
	Max time.Duration
	// Full is how many events make a page full; 0 for feed.PageEvents. A page of fewer may wait.
	Full int
}

// perEvent is by how much each event of a page extends its pause.
const perEvent = time.Millisecond

// After returns the pause after a page of so many events.
func (p Pace) After(events int) time.Duration {
	return max(p.Min, min(p.Min+time.Duration(events)*perEvent, p.Max))
}

// Description is what Base returns. TextTables, Counted and Pace may be zero.
type Description struct {
	Name       string
	Version    int
	Categories []string
	Schema     string
	TextTables []string
	Counted    []string
	Pace       Pace
}

// Base implements the methods of Projector that describe it.
type Base struct{ is Description }

// NewBase makes a base.
func NewBase(is Description) Base { return Base{is} }

// Name implements Projector.
func (b Base) Name() string { return b.is.Name }

// Version implements Projector.
func (b Base) Version() int { return b.is.Version }

// Categories implements Projector.
func (b Base) Categories() []string { return b.is.Categories }

// Schema implements Projector.
func (b Base) Schema() string { return b.is.Schema }

// TextTables implements Projector.
func (b Base) TextTables() []string { return b.is.TextTables }

// Counted implements Projector.
func (b Base) Counted() []string { return b.is.Counted }

// Pace implements Projector.
func (b Base) Pace() Pace { return b.is.Pace }

// Bounded is a Projector that knows what its events cost, in bytes, rows or projects.
type Bounded interface {
	Projector
	// Fit returns how many of its decoded events, from the first, it applies in one page: at least
	// one.
	Fit(events []eventstore.DecodedEvent) int
}

// Whole is a Projector that gets the events that are set aside too, and the stray ones: not decoded, or PassedOver.
type Whole interface {
	Projector
	TakesSetAside()
}

// Continuing is a Projector that can go on with the rows of an earlier version while those of its own
// are built in a shadow. Its queries read both.
type Continuing interface {
	Projector
	// Continues reports whether it applies pages to rows of an earlier version.
	Continues(version int) bool
}

// Reads reports whether the pages and queries of a projector work on rows of a version.
func Reads(p Projector, version int) bool {
	if version == p.Version() {
		return true
	}
	continuing, ok := p.(Continuing)
	return ok && continuing.Continues(version)
}

// External is a Projector that also fills a target outside its schema, such as a search index. One
// process at a time fills a target, and the checkpoint names the target of its rows.
type External interface {
	Projector
	// Target names the target in use. The name changes with Reset, and when the contents are lost.
	// The runner rebuilds a projection whose checkpoint names another target.
	Target() string
	// Reset empties the target before a rebuild. It may be called again.
	Reset(ctx context.Context) error
	// Shadow returns the projector that fills a target next to the one in use. It continues the target
	// resume, if an earlier call began that in this place and nothing of it is lost: then resumed is
	// true. Otherwise it removes what an earlier call began, and begins an empty one.
	Shadow(ctx context.Context, resume string) (next Projector, resumed bool, err error)
	// Verify counts what the target of a projector that Shadow returned holds, and returns an error if
	// that is not what its rows say, which tx reads. No page is applied meanwhile.
	Verify(ctx context.Context, tx pgx.Tx) error
	// Close closes the target of a projector that Shadow returned. What it holds stays, for a later call
	// of Shadow.
	Close() error
	// Promote puts a target that Shadow began into use, durably once it returns, and removes the
	// one before; running calls finish on that. ok is false if this process has no such target. It
	// may be called again, also by the next process.
	Promote(ctx context.Context, target string) (ok bool, err error)
	// Discard removes a target that Shadow began and that was not promoted.
	Discard(ctx context.Context) error
	// Purge returns once nothing that was deleted from the target is on the disk.
	Purge(ctx context.Context) error
}

// ErrTarget reports a target that does not hold what was written to it.
var ErrTarget = errors.New("the external target does not hold what was written to it")

// Shared is an External whose target several processes use. A standby keeps it, and adopts by Promote
// what another process put into use.
type Shared interface {
	External
	// SharesTarget reports whether the target is shared.
	SharesTarget() bool
}

// TargetOf returns the target of a projector, "" if it has none.
func TargetOf(p Projector) string {
	if external, ok := p.(External); ok {
		return external.Target()
	}
	return ""
}

// Transient marks an error of Apply that is not caused by the events, such as an index that cannot
// be reached.
func Transient(err error) error {
	if err == nil {
		return nil
	}
	return &transientError{err}
}

// ErrTransient is what an error is that Transient marked.
var ErrTransient = errors.New("not caused by the events")

type transientError struct{ err error }

func (e *transientError) Error() string      { return e.err.Error() }
func (e *transientError) Unwrap() error      { return e.err }
func (*transientError) Is(target error) bool { return target == ErrTransient }

// EventError is why the fold of a projector refuses an event.
type EventError struct {
	Stream   string
	Revision eventstore.Revision
	Err      error
}

func (e *EventError) Error() string {
	return fmt.Sprintf("event %d of %s: %v", e.Revision, e.Stream, e.Err)
}
func (e *EventError) Unwrap() error { return e.Err }

// Each calls do with every event of a page, in order. It ends at the first that cannot be decoded
// or that do fails with; the error names that event. The texts of the errors that do makes hold no
// customer text: they are logged.
func Each(page []eventstore.DecodedEvent, do func(eventstore.DecodedEvent) error) error {
	for _, f := range page {
		if f.Err != nil {
			return fmt.Errorf("event %d of %s: %w", f.Revision, f.Stream, f.Err)
		}
		if err := do(f); err != nil {
			return &EventError{f.Stream, f.Revision, err}
		}
	}
	return nil
}

// FollowUp is work that an event asks for and that is too much for its page: its page queues it, and the
// runner does it in slices after the page.
type FollowUp = projection.FollowUp

// SliceRows is the most rows that a slice loads, and the most that it changes in a table.
const SliceRows = 1000

// Following is a Projector with follow-ups. Its Schema ends with FollowUpTable.
type Following interface {
	Projector
	// Slice does the next part of a follow-up, at most SliceRows rows and a few megabytes. It returns the
	// cursor after it, and whether that was the last part. No page and no other slice runs meanwhile, and
	// the transaction's search_path is that of Apply. A slice comes again after its transaction was lost,
	// never after it was committed.
	//
	// Any number of pages is applied between two slices. Once the follow-ups are done, the rows are the
	// same wherever they were done: a page, and a query, treats the rows of a follow-up as if it was done.
	Slice(ctx context.Context, tx pgx.Tx, work FollowUp) (cursor string, done bool, err error)
}

// FollowUpTable is the DDL of the table of follow-ups. The index is the order in which they are done.
const FollowUpTable = `
create table follow_ups (
	kind       text not null,
	key        uuid not null,
	project_id uuid not null,
	position   bigint not null,                 -- of the event that asked for it
	data       text not null,
	cursor     text not null,                   -- of the last slice; empty before the first
	primary key (kind, key)
);
create index follow_ups_in_order on follow_ups (project_id, position, kind, key);
`

// QueueFollowUps queues follow-ups with the rows of a page. One that is queued already begins again. No
// follow-up may be twice in one call. The name of the projection keeps the text of its statement its own.
func QueueFollowUps(b *pgx.Batch, projection string, works []FollowUp) {
	if len(works) == 0 {
		return
	}
	b.Queue(`insert into follow_ups (kind, key, project_id, position, data, cursor)
		select *, '' from unnest($1::text[], $2::uuid[], $3::uuid[], $4::bigint[], $5::text[])
		on conflict (kind, key) do update set position = excluded.position, data = excluded.data, cursor = '' -- `+
		projection,
		pgarray.Column(works, func(w FollowUp) string { return w.Kind }),
		pgarray.IDs(works, func(w FollowUp) uuid.UUID { return w.Key }),
		pgarray.IDs(works, func(w FollowUp) uuid.UUID { return w.Project }),
		pgarray.Column(works, func(w FollowUp) int64 { return int64(w.Position) }),
		pgarray.Column(works, func(w FollowUp) string { return w.Data }))
}

// DoSlice is projection.DoSlice.
func DoSlice(
	ctx context.Context, tx pgx.Tx, p Following, after uuid.UUID,
) (work FollowUp, found, done bool, err error) {
	return projection.DoSlice(ctx, tx, p, after)
}

// LeaseTime is how long a process keeps the right to fill a projection after it last renewed it. After
// a process was killed or frozen, its projections wait that long for another one.
const LeaseTime = 4 * time.Second

type leaseKey struct{}

// WithLease returns the context of a page of an External. held returns an error if another process may
// fill the target by now.
func WithLease(ctx context.Context, held func() error) context.Context {
	return context.WithValue(ctx, leaseKey{}, held)
}

// CheckLease returns an error if the page of a context lost its lease. A target that several processes
// fill calls it before each request that changes it: a process that was frozen sends no further request
// of its page, which would be older than what others wrote since.
func CheckLease(ctx context.Context) error {
	if held, ok := ctx.Value(leaseKey{}).(func() error); ok {
		return held()
	}
	return nil
}
