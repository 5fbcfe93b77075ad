// Package directory projects the identity records of each project and the audiences that they
// belong to.
//
// Start with schema.sql, then fold.go: a page of events is folded over the rows that it touches
// (project.go), and the changed rows are written at once (save.go). Rules are stored as audience.Compile
// makes them, and an audience.Matcher matches them (fold_audience.go). A page adjusts the counts of members
// (fold_audience.go); those of a new rule are counted in slices after its page. What decided who read
// what in the past stays in tables of its own (past.go). The files query_*.go are the queries.
//
// The rows obey the erasure law: once a record is removed, a rebuild may find only the removal in its
// stream, and yields the same rows.
package directory

import (
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/table"
)

// Name names the projection: its schema, its topic, and what callers wait for.
const Name = projection.Directory

//go:embed schema.sql
var schema string

// Projector keeps schema directory.
type Projector struct {
	projections.Base
	blobs      eventstore.BlobReader
	namespaces stream.Namespaces
	logger     *slog.Logger
	rules      *ruleCache
	// slice is the most identities that a slice of a recount counts, sliceBytes about the most bytes of
	// their traits.
	slice, sliceBytes int
}

var (
	_ projections.Bounded   = (*Projector)(nil)
	_ projections.Following = (*Projector)(nil)
)

// New makes the projector. namespaces derive the record ids of authors.
//
// The pace is slow, since most events only name the author of a data point, for which no caller
// waits: pages of such events every 50 ms took about a tenth of the processor time of an ingest. A
// caller that waits in another process waits longer by up to the pace.
func New(blobs eventstore.BlobReader, namespaces stream.Namespaces, logger *slog.Logger) *Projector {
	return &Projector{
		blobs: blobs, namespaces: namespaces, logger: logger, rules: newRuleCache(), slice: projections.SliceRows,
		sliceBytes: maxSliceBytes,
		Base: projections.NewBase(projections.Description{
			Name: Name, Version: 3, Schema: schema + projections.FollowUpTable,
			Categories: []string{
				stream.Registry, stream.Identity, stream.Bulk, stream.Audiences, stream.DataPoint, stream.Deletion, stream.Usage,
			},
			TextTables: []string{"identities", "marks", "past_traits"}, // hashes confirm a guessed trait
			Counted:    []string{"identities where identity is not null", "audiences", "members"},
			Pace:       projections.Pace{Min: 250 * time.Millisecond},
		}),
	}
}

// Apply folds a page of events over the rows that they touch, and writes one statement per table. The
// members of rules that were put or recomputed are counted after the page (fold_audience.go). An event that
// was applied before changes nothing.
//
// A blob that is missing or damaged counts as no traits, no members, or a rule that matches no
// identity: it is logged and does not stop the projector. A blob that cannot be read now is an error.
func (p *Projector) Apply(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) error {
	f, err := p.load(ctx, tx, events)
	if err != nil {
		return err
	}
	apply := func(decoded eventstore.DecodedEvent) error { return f.apply(ctx, decoded) }
	if err := projections.Each(events, apply); err != nil {
		return err
	}
	if err := f.encodeRecords(ctx); err != nil {
		return err
	}
	if err := f.adjustCounts(ctx); err != nil {
		return err
	}
	return f.save(ctx)
}

// The limits of a page of several events.
const (
	// maxRows is about how many traits and members the events of a page hold: each becomes rows of
	// tables marks and members.
	maxRows = 250_000
	// rowBytes is the size of a trait or member in a blob: exact for a member, about the least for
	// a trait.
	rowBytes = 16
)

// Fit implements projections.Bounded.
func (*Projector) Fit(events []eventstore.DecodedEvent) int {
	rows, blobs := 0, map[string]bool{}
	for n, decoded := range events {
		for _, ref := range refsOf(decoded.Event) {
			if !blobs[ref.Stream] {
				blobs[ref.Stream] = true
				rows += int(ref.Size / rowBytes)
			}
		}
		rows += inlineRows(decoded)
		if n > 0 && rows > maxRows {
			return n
		}
	}
	return len(events)
}

// inlineRows counts the traits and members in an event itself.
func inlineRows(decoded eventstore.DecodedEvent) int {
	switch e := decoded.Event.(type) {
	case *identity.TraitsReplaced:
		return len(e.Record.Traits.Inline)
	case *identity.TraitsMerged:
		return len(e.Record.Traits.Inline)
	case *identity.BulkRowApplied:
		if e.Record != nil {
			return len(e.Record.Traits.Inline)
		}
	case *identity.BulkAccepted:
		return len(e.Targets)
	case *audience.Put:
		return len(e.Members)
	}
	return 0
}

const (
	selectClosedBulkRows = `select distinct identity_id from bulk_rows where bulk_id = any($1::uuid[])`
	selectExisting       = `select id from identities where id = any($1::uuid[])`
)

// bulkRowsOf reads the rows of identities, which are a part of the key.
var bulkRowsOf = bulkRows.Select(`bulk_rows where identity_id = any($1::uuid[])`)

// touched are the ids that the events of a page name.
type touched struct {
	projects, identities, audiences, members ids
	// closedBulks are fanned-out bulk writes. The records with an open row of these are touched,
	// too.
	closedBulks ids
}

// touch collects the ids that the events name. For that it reads member lists from blobs.
func (f *fold) touch(ctx context.Context, events []eventstore.DecodedEvent) (touched, error) {
	t := touched{projects: ids{}, identities: ids{}, audiences: ids{}, members: ids{}, closedBulks: ids{}}
	for _, decoded := range events {
		if send, _, ok := datapoint.SendOf(decoded.Event); ok {
			if name, record := datapoint.AuthorOf(decoded.Event); name != "" || record != uuid.Nil {
				t.projects.add(send.ProjectID)
			}
			continue
		}
		switch e := decoded.Event.(type) {
		case *identity.BulkAccepted:
			t.projects.add(e.ProjectID)
			for _, target := range e.Targets {
				t.identities.add(target.IdentityID)
			}
		case *identity.BulkFannedOut:
			t.projects.add(e.ProjectID)
			t.closedBulks.add(stream.Owner(decoded.Stream))
		case *audience.Put:
			t.projects.add(e.ProjectID)
			t.audiences.add(e.AudienceID)
			list, err := f.membersOf(ctx, e)
			if err != nil {
				return touched{}, err
			}
			for _, id := range list {
				t.members.add(id)
			}
		case *audience.Removed:
			t.projects.add(e.ProjectID)
			t.audiences.add(e.AudienceID)
		case *audience.Recomputed:
			t.projects.add(e.ProjectID)
			t.audiences.add(e.AudienceID)
		default:
			if project := projectOf(decoded); project != uuid.Nil {
				t.projects.add(project)
				t.identities.add(stream.Owner(decoded.Stream))
			}
		}
	}
	return t, nil
}

// load reads the rows that the events touch.
func (p *Projector) load(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) (*fold, error) {
	f := newFold(p, tx)
	t, err := f.touch(ctx, events)
	if err != nil {
		return nil, err
	}
	if len(t.closedBulks) > 0 {
		first := &pgx.Batch{}
		read := func(rows pgx.Rows) error { return readIDs(rows, t.identities) }
		pgarray.Queue(first, selectClosedBulkRows, t.closedBulks, read)
		if err := pgarray.Flush(ctx, tx, first); err != nil {
			return nil, fmt.Errorf("load open bulk rows: %w", err)
		}
	}
	b := &pgx.Batch{}
	table.Load(b, projects, t.projects, func(row *projectRow) {
		row.before = row.RulesAt
		f.projects[row.ID] = row
	})
	pgarray.Queue(b, selectRecounts, t.projects, f.readRecounts)
	// Read the heads first: each creates the state that the record and the open rows are added to.
	table.Load(b, heads, t.identities, func(head *headRow) { f.identities[head.ID] = newState(*head) })
	pgarray.Queue(b, newestPastTraits, t.identities, lastTraits.Read(f.pastLoaded))
	pgarray.Queue(b, newestDefinitions, t.audiences, definitions.Read(func(row *lastDefinition) {
		f.definitions[row.Audience] = row
	}))
	table.Load(b, storedIdentities, t.identities, f.recordLoaded)
	var open []*bulkKey
	pgarray.Queue(b, bulkRowsOf, t.identities, bulkRows.Read(func(row *bulkKey) { open = append(open, row) }))
	table.Load(b, audienceHeads, t.audiences, func(head *audienceHead) {
		f.audiences[head.ID] = &audienceRow{audienceHead: *head}
	})
	pgarray.Queue(b, selectExisting, t.members, func(rows pgx.Rows) error { return readIDs(rows, f.existing) })
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return nil, fmt.Errorf("load the rows of the page: %w", err)
	}
	return f, f.openRows(open)
}

func (f *fold) recordLoaded(row *storedIdentity) {
	r := &record{
		identity: row.Identity, traits: traits{stored: true, traitKeys: row.TraitKeys}, origin: row.Origin,
		createdAt: pgarray.Instant(row.CreatedAt), updatedAt: pgarray.Instant(row.UpdatedAt), born: row.Born,
	}
	x := f.identityState(row.ID, row.Project)
	x.before, x.now = r, r
}

// openRows adds the open rows of bulk writes to their identities.
func (f *fold) openRows(rows []*bulkKey) error {
	for _, row := range rows {
		x := f.identities[row.Identity]
		if x == nil {
			return fmt.Errorf("open row of bulk write %s is for unknown record %s", row.Bulk, row.Identity)
		}
		if x.loaded == nil {
			x.loaded = map[uuid.UUID]eventstore.Position{}
		}
		x.loaded[row.Bulk], x.open[row.Bulk] = row.Position, row.Position
	}
	return nil
}

func readIDs(rows pgx.Rows, into ids) error {
	for rows.Next() {
		var id uuid.UUID
		if err := rows.Scan(&id); err != nil {
			return err
		}
		into.add(id)
	}
	return rows.Err()
}
