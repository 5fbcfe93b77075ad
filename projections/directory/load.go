package directory

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections/table"
)

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
