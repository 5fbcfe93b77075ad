package audit

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/table"
)

// Name is the projection's name: its schema, its topic, and the name that callers wait for.
const Name = projection.Audit

//go:embed schema.sql
var schema string

// Log is what the projector reads of the log beyond its page.
type Log interface {
	Head(ctx context.Context) (eventstore.Position, error)
	ReadAll(ctx context.Context, after eventstore.Position, limit int) ([]eventstore.Recorded, error)
}

// Projector builds schema audit.
//
// An event that is missing from a page had left the log before the page was read, so its kept record is in the log
// before the head at that time. A page gets its places once the log is known up to there: it reads a short rest of the
// log for kept records, and with a long rest it waits for the pages that have it.
type Projector struct {
	projections.Base
	log   Log
	codec *eventstore.Codec
	// rest is how many events with leaves a page passes after it, to the end of the log.
	rest int
}

// New makes the projector. It takes blobs too, which have no leaves, so that a page that waits for them ends.
func New(log Log, codec *eventstore.Codec) Projector {
	return Projector{log: log, codec: codec, rest: 1000, Base: projections.NewBase(projections.Description{
		Name: Name, Version: 1, Schema: schema + projections.FollowUpTable,
		Categories: append([]string{stream.Blob}, categories...),
		Counted:    []string{"projects"},
		Pace:       projections.Pace{Min: 500 * time.Millisecond, Max: time.Second},
	})}
}

// TakesSetAside implements projections.Whole: each stored event has a leaf.
func (Projector) TakesSetAside() {}

// pageLeaves is the most leaves of a page, with those that its events keep.
const pageLeaves = 8192

// Fit implements projections.Bounded.
func (Projector) Fit(events []eventstore.DecodedEvent) int {
	leaves := 0
	for n, f := range events {
		if leaves += 1 + keeps(f); leaves > pageLeaves && n > 0 {
			return n
		}
	}
	return len(events)
}

// projectRow is a row of table projects.
type projectRow struct {
	ID           uuid.UUID `db:"project_id"`
	Organization uuid.UUID `db:"organization_id"`
}

// pendingRow is a row of table pending.
type pendingRow struct {
	Position int64  `db:"position"`
	Until    int64  `db:"until"`
	Leaves   []byte `db:"leaves"`
}

// keptRow is a row of table kept.
type keptRow struct {
	Position int64  `db:"position"`
	Leaf     []byte `db:"leaf"`
}

var (
	projectRows = table.New[projectRow](Name, schema, "projects")
	pendingRows = table.New[pendingRow](Name, schema, "pending")
	keptRows    = table.New[keptRow](Name, schema, "kept")

	selectProjects = projectRows.Select(`projects where project_id = any($1::uuid[])`)
	selectPending  = pendingRows.Select(`pending where position <= $1 order by position limit $2`)
	selectKept     = keptRows.Select(`kept where position <= $1 order by position limit $2`)
)

// fold is what a page adds.
type fold struct {
	last    eventstore.Position
	created []*projectRow
	owners  map[uuid.UUID]uuid.UUID // of projects
	leaves  []leaf
	kept    []leaf
	marks   []mark
	waiting bool // an earlier page waits
}

// Apply adds the leaves of a page to the trees, or lets them wait.
func (p Projector) Apply(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) error {
	f := &fold{last: events[len(events)-1].Position, owners: map[uuid.UUID]uuid.UUID{}}
	if err := f.load(ctx, tx, events); err != nil {
		return err
	}
	for _, e := range events {
		if err := f.add(e); err != nil {
			return &projections.EventError{Stream: e.Stream, Revision: e.Revision, Err: err}
		}
	}
	head, err := p.log.Head(ctx)
	if err != nil {
		return fmt.Errorf("read the head of the log: %w", err)
	}
	isKnown := head <= f.last
	if !isKnown && p.isShort(events, head) {
		if isKnown, err = p.readRest(ctx, f, head); err != nil {
			return err
		}
	}
	b := &pgx.Batch{}
	projectRows.Insert(b, f.created)
	if isKnown && !f.waiting {
		return place(ctx, tx, b, append(f.leaves, f.kept...), f.marks)
	}
	f.stash(b, head, isKnown)
	return place(ctx, tx, b, nil, f.marks)
}

// load reads the organizations of the projects of a page, and whether a page waits.
func (f *fold) load(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) error {
	for _, e := range events {
		if created, is := e.Event.(*registry.ProjectCreated); is {
			f.owners[created.ProjectID] = created.OrganizationID
			f.created = append(f.created, &projectRow{created.ProjectID, created.OrganizationID})
		}
	}
	projects := map[uuid.UUID]bool{}
	for _, e := range events {
		if _, project := e.LeafOwner(); project != uuid.Nil {
			projects[project] = true
		}
	}
	b := &pgx.Batch{}
	b.Queue(selectProjects, slices.Collect(maps.Keys(projects))).Query(projectRows.Read(func(r *projectRow) {
		f.owners[r.ID] = r.Organization
	}))
	b.Queue(`select exists (select from pending)`).QueryRow(func(row pgx.Row) error { return row.Scan(&f.waiting) })
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return fmt.Errorf("load the rows of a page: %w", err)
	}
	return nil
}

func (f *fold) add(e eventstore.DecodedEvent) error {
	if !HasLeaf(e.Recorded) {
		return nil
	}
	organization, project := e.LeafOwner()
	if project != uuid.Nil {
		organization = f.owners[project]
	}
	l, err := leafOf(e, organization)
	if err != nil {
		return err
	}
	f.leaves, f.kept = append(f.leaves, l), keptIn(f.kept, e, f.last)
	if m, is := markOf(e); is {
		f.marks = append(f.marks, m)
	}
	return nil
}

// isShort guesses whether the rest of the log may be read. Positions are numbers of events in one store and bytes in
// another, so what is far follows from a large page itself.
func (p Projector) isShort(page []eventstore.DecodedEvent, head eventstore.Position) bool {
	const large = 64
	first, last := page[0].Position, page[len(page)-1].Position
	return len(page) < large || float64(head-last)*float64(len(page)) <= float64(last-first)*float64(p.rest)
}

// A page reads so many events at a time of the rest of the log, so often: the store and other programs write some too.
const (
	readEvents = 500
	maxReads   = 20
)

// readRest finds the kept records that come after the page, up to a head of the log. It reports whether the rest was
// short enough.
func (p Projector) readRest(ctx context.Context, f *fold, head eventstore.Position) (isRead bool, err error) {
	after := f.last
	for left, reads := p.rest, 0; left > 0 && reads < maxReads && after < head; reads++ {
		events, err := p.log.ReadAll(ctx, after, readEvents)
		if err != nil {
			return false, fmt.Errorf("read the log after the page: %w", err)
		}
		if len(events) == 0 {
			return true, nil
		}
		for _, r := range events {
			if HasLeaf(r) {
				left--
			}
			if mayKeep(r) {
				f.kept = keptIn(f.kept, p.codec.DecodeRecorded(r), f.last)
			}
		}
		after = events[len(events)-1].Position
	}
	return after >= head, nil
}

// Placing is the one follow-up, which gives their places to leaves that waited. Its data is the position up to which.
const Placing = "place"

// stash lets the leaves of a page wait, and ends the wait of those before which the log is known: of all, if the rest
// of the log is.
func (f *fold) stash(b *pgx.Batch, head eventstore.Position, isKnown bool) {
	if len(f.leaves) > 0 {
		pendingRows.Insert(b, []*pendingRow{{int64(f.last), int64(head), pack(f.leaves)}})
	}
	rows := make([]*keptRow, len(f.kept))
	for n, l := range f.kept {
		rows[n] = &keptRow{l.position, l.pack(nil)}
	}
	keptRows.Insert(b, rows)
	upTo := `select $1::bigint`
	if !isKnown {
		// The head that one process reads may be older than that of another before it.
		upTo = `select max(position) from pending p where until <= $1 and not exists (
			select from pending e where e.position < p.position and e.until > $1)`
	}
	b.Queue(`insert into follow_ups (kind, key, project_id, position, data, cursor)
		select '`+Placing+`', $2::uuid, $2::uuid, $1, upto.upto::text, '' from (`+upTo+`) upto (upto) where upto is not null
		on conflict (kind, key) do update set data = excluded.data, position = excluded.position`,
		int64(f.last), PlacingKey)
}

// PlacingKey is its key, and its project, which is no zero id, since projects take turns from there on.
var PlacingKey = uuid.NewSHA1(uuid.Nil, []byte(Name))

// slicePages is how many pages that waited a slice places.
const slicePages = 8

// Slice implements projections.Following.
func (p Projector) Slice(
	ctx context.Context, tx pgx.Tx, work projections.FollowUp,
) (cursor string, done bool, err error) {
	upTo, err := strconv.ParseInt(work.Data, 10, 64)
	if err != nil || work.Kind != Placing {
		return "", false, fmt.Errorf("no rule for follow-up %s with %q", work.Kind, work.Data)
	}
	var pages []*pendingRow
	var kept []*keptRow
	b := &pgx.Batch{}
	b.Queue(selectPending, upTo, slicePages).Query(pendingRows.Read(func(r *pendingRow) { pages = append(pages, r) }))
	b.Queue(selectKept, upTo, projections.SliceRows).Query(keptRows.Read(func(r *keptRow) { kept = append(kept, r) }))
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return "", false, fmt.Errorf("load leaves that wait: %w", err)
	}
	end := upTo
	if len(pages) == slicePages {
		end = pages[slicePages-1].Position
	}
	if len(kept) == projections.SliceRows {
		end = min(end, kept[len(kept)-1].Position)
	}
	var leaves []leaf
	for _, r := range pages {
		leaves = unpack(leaves, r.Leaves, end)
	}
	for _, r := range kept {
		leaves = unpack(leaves, r.Leaf, end)
	}
	b = &pgx.Batch{}
	b.Queue(`delete from pending where position <= $1`, end)
	b.Queue(`delete from kept where position <= $1`, end)
	return "", end == upTo, place(ctx, tx, b, leaves, nil)
}

// mark is a change of the checkpoint of a tree.
type mark struct {
	organization uuid.UUID
	position     int64
	at           time.Time
	event        any
}

func markOf(f eventstore.DecodedEvent) (mark, bool) {
	switch f.Event.(type) {
	case *audit.KeyAdded, *audit.CheckpointSigned, *audit.CheckpointCosigned:
		organization, _ := f.LeafOwner()
		return mark{organization, int64(f.Position), f.Details.At, f.Event}, true
	}
	return mark{}, false
}
