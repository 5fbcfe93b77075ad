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
	"github.com/annals-project/annals/internal/unnest"
)

const (
	selectProjects   = `select project_id, namespace, keyed, created_at, rules_at from projects where project_id = any($1::uuid[])`
	selectIdentities = `select id, project_id, identity, marks, origin, created_at, updated_at from identities where id = any($1::uuid[])`
	selectHeads      = `select id, project_id, revision, position from heads where id = any($1::uuid[])`
	selectBulkRows   = `select identity_id, bulk_id, position from bulk_rows where identity_id = any($1::uuid[])`
	selectAudiences  = `select id, project_id, compiled, position from audiences where id = any($1::uuid[])`
	selectEnded      = `select distinct identity_id from bulk_rows where bulk_id = any($1::uuid[])`
	selectKnown      = `select id from identities where id = any($1::uuid[])`
)

// touched is what a page of events names.
type touched struct {
	projects, identities, audiences, members ids
	// ended are bulk writes that are fanned out: the records whose rows stand open are touched too.
	ended ids
}

// touch collects what the events name. Lists of members that are in blobs are read for it.
func (g *page) touch(ctx context.Context, facts []eventstore.Fact) (touched, error) {
	t := touched{projects: ids{}, identities: ids{}, audiences: ids{}, members: ids{}, ended: ids{}}
	for _, f := range facts {
		if send, _, ok := datapoint.SendOf(f.Event); ok {
			if send.Author != "" {
				t.projects.add(send.ProjectID)
			}
			continue
		}
		switch e := f.Event.(type) {
		case *identity.BulkAccepted:
			t.projects.add(e.ProjectID)
			for _, target := range e.Targets {
				t.identities.add(target.IdentityID)
			}
		case *identity.BulkFannedOut:
			t.projects.add(e.ProjectID)
			t.ended.add(stream.Owner(f.Stream))
		case *audience.Put:
			t.projects.add(e.ProjectID)
			t.audiences.add(e.AudienceID)
			list, err := g.list(ctx, e)
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
			if project := projectOf(f); project != uuid.Nil {
				t.projects.add(project)
				t.identities.add(stream.Owner(f.Stream))
			}
		}
	}
	return t, nil
}

// load reads the rows that the events lead to.
func (p *Projector) load(ctx context.Context, tx pgx.Tx, facts []eventstore.Fact) (*page, error) {
	g := newPage(p, tx)
	t, err := g.touch(ctx, facts)
	if err != nil {
		return nil, err
	}
	if len(t.ended) > 0 {
		first := &pgx.Batch{}
		unnest.Queue(first, selectEnded, t.ended, func(rows pgx.Rows) error { return readIDs(rows, t.identities) })
		if err := unnest.Flush(ctx, tx, first); err != nil {
			return nil, fmt.Errorf("load the rows that stand open: %w", err)
		}
	}
	b := &pgx.Batch{}
	unnest.Queue(b, selectProjects, t.projects, g.readProjects)
	// The heads come first: each makes an entry, which the record and the open rows are put to.
	unnest.Queue(b, selectHeads, t.identities, g.readHeads)
	unnest.Queue(b, selectIdentities, t.identities, g.readIdentities)
	unnest.Queue(b, selectBulkRows, t.identities, g.readBulkRows)
	unnest.Queue(b, selectAudiences, t.audiences, g.readAudiences)
	unnest.Queue(b, selectKnown, t.members, func(rows pgx.Rows) error { return readIDs(rows, g.known) })
	if err := unnest.Flush(ctx, tx, b); err != nil {
		return nil, fmt.Errorf("load the rows of the page: %w", err)
	}
	return g, nil
}

func (g *page) readProjects(rows pgx.Rows) error {
	for rows.Next() {
		id, row := uuid.UUID{}, &projectRow{}
		if err := rows.Scan((*[16]byte)(&id), (*[16]byte)(&row.namespace.ID), &row.namespace.Keyed, &row.createdAt, (*uint64)(&row.before)); err != nil {
			return err
		}
		row.rulesAt = row.before
		g.projects[id] = row
	}
	return rows.Err()
}

func (g *page) readHeads(rows pgx.Rows) error {
	for rows.Next() {
		x := &entry{open: map[uuid.UUID]eventstore.Position{}}
		if err := rows.Scan((*[16]byte)(&x.id), (*[16]byte)(&x.project), (*int64)(&x.revision), (*uint64)(&x.position)); err != nil {
			return err
		}
		g.entries[x.id] = x
	}
	return rows.Err()
}

func (g *page) readIdentities(rows pgx.Rows) error {
	for rows.Next() {
		id, project, r := uuid.UUID{}, uuid.UUID{}, &record{traits: traits{stored: true}}
		if err := rows.Scan((*[16]byte)(&id), (*[16]byte)(&project), &r.identity, (*[]byte)(&r.traits.marks), &r.origin, &r.createdAt, &r.updatedAt); err != nil {
			return err
		}
		r.createdAt, r.updatedAt = unnest.Instant(r.createdAt), unnest.Instant(r.updatedAt)
		x := g.entry(id, project)
		x.before, x.now = r, r
	}
	return rows.Err()
}

func (g *page) readBulkRows(rows pgx.Rows) error {
	for rows.Next() {
		var (
			id, bulk uuid.UUID
			commit   eventstore.Position
		)
		if err := rows.Scan((*[16]byte)(&id), (*[16]byte)(&bulk), (*uint64)(&commit)); err != nil {
			return err
		}
		x := g.entries[id]
		if x == nil {
			return fmt.Errorf("a row of bulk write %s is open of a record that was never read: %s", bulk, id)
		}
		if x.loaded == nil {
			x.loaded = map[uuid.UUID]eventstore.Position{}
		}
		x.loaded[bulk], x.open[bulk] = commit, commit
	}
	return rows.Err()
}

func (g *page) readAudiences(rows pgx.Rows) error {
	for rows.Next() {
		a := &audienceRow{}
		if err := rows.Scan((*[16]byte)(&a.id), (*[16]byte)(&a.project), &a.compiled, (*uint64)(&a.position)); err != nil {
			return err
		}
		g.audiences[a.id] = a
	}
	return rows.Err()
}

func readIDs(rows pgx.Rows, into ids) error {
	for rows.Next() {
		var id uuid.UUID
		if err := rows.Scan((*[16]byte)(&id)); err != nil {
			return err
		}
		into.add(id)
	}
	return rows.Err()
}
