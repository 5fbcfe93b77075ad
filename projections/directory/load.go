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
)

const (
	selectProjects = `select project_id, namespace, created_at, rules_at from projects
		where project_id = any($1::uuid[])`
	selectIdentities = `select id, project_id, identity, marks, origin, created_at, updated_at from identities
		where id = any($1::uuid[])`
	selectHeads          = `select id, project_id, revision, position from heads where id = any($1::uuid[])`
	selectBulkRows       = `select identity_id, bulk_id, position from bulk_rows where identity_id = any($1::uuid[])`
	selectAudiences      = `select id, project_id, compiled, position from audiences where id = any($1::uuid[])`
	selectClosedBulkRows = `select distinct identity_id from bulk_rows where bulk_id = any($1::uuid[])`
	selectExisting       = `select id from identities where id = any($1::uuid[])`
)

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
	pgarray.Queue(b, selectProjects, t.projects, f.readProjects)
	pgarray.Queue(b, selectRecounts, t.projects, f.readRecounts)
	// Read the heads first: each creates the state that the record and the open rows are added to.
	pgarray.Queue(b, selectHeads, t.identities, f.readHeads)
	pgarray.Queue(b, selectIdentities, t.identities, f.readIdentities)
	pgarray.Queue(b, selectBulkRows, t.identities, f.readBulkRows)
	pgarray.Queue(b, selectAudiences, t.audiences, f.readAudiences)
	pgarray.Queue(b, selectExisting, t.members, func(rows pgx.Rows) error { return readIDs(rows, f.existing) })
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return nil, fmt.Errorf("load the rows of the page: %w", err)
	}
	return f, nil
}

func (f *fold) readProjects(rows pgx.Rows) error {
	for rows.Next() {
		id, row := uuid.UUID{}, &projectRow{}
		err := rows.Scan(&id, &row.namespace, &row.createdAt, (*uint64)(&row.before))
		if err != nil {
			return err
		}
		row.rulesAt = row.before
		f.projects[id] = row
	}
	return rows.Err()
}

func (f *fold) readHeads(rows pgx.Rows) error {
	for rows.Next() {
		x := &identityState{open: map[uuid.UUID]eventstore.Position{}}
		if err := rows.Scan(&x.id, &x.project, (*int64)(&x.revision), (*uint64)(&x.position)); err != nil {
			return err
		}
		f.identities[x.id] = x
	}
	return rows.Err()
}

func (f *fold) readIdentities(rows pgx.Rows) error {
	for rows.Next() {
		id, project, r := uuid.UUID{}, uuid.UUID{}, &record{traits: traits{stored: true}}
		err := rows.Scan(&id, &project, &r.identity, (*[]byte)(&r.traits.traitKeys), &r.origin, &r.createdAt, &r.updatedAt)
		if err != nil {
			return err
		}
		r.createdAt, r.updatedAt = pgarray.Instant(r.createdAt), pgarray.Instant(r.updatedAt)
		x := f.identityState(id, project)
		x.before, x.now = r, r
	}
	return rows.Err()
}

func (f *fold) readBulkRows(rows pgx.Rows) error {
	for rows.Next() {
		var (
			id, bulk uuid.UUID
			commit   eventstore.Position
		)
		if err := rows.Scan(&id, &bulk, (*uint64)(&commit)); err != nil {
			return err
		}
		x := f.identities[id]
		if x == nil {
			return fmt.Errorf("open row of bulk write %s is for unknown record %s", bulk, id)
		}
		if x.loaded == nil {
			x.loaded = map[uuid.UUID]eventstore.Position{}
		}
		x.loaded[bulk], x.open[bulk] = commit, commit
	}
	return rows.Err()
}

func (f *fold) readAudiences(rows pgx.Rows) error {
	for rows.Next() {
		a := &audienceRow{}
		if err := rows.Scan(&a.id, &a.project, &a.compiled, (*uint64)(&a.position)); err != nil {
			return err
		}
		f.audiences[a.id] = a
	}
	return rows.Err()
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
