package directory

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/unnest"
)

type ids map[uuid.UUID]struct{}

func (s ids) add(id uuid.UUID) { s[id] = struct{}{} }

func (s ids) has(id uuid.UUID) bool { _, ok := s[id]; return ok }

// projectRow is a row of table projects.
type projectRow struct {
	namespace stream.Namespace
	createdAt time.Time
	// before is where its audiences changed last before the page, rulesAt where they did behind it.
	before, rulesAt eventstore.Position
	dirty           bool
}

// seenRow is a row of table seen, as far as the page knows.
type seenRow struct {
	project uuid.UUID
	at      time.Time
}

// removalRow is a row of table removals.
type removalRow struct {
	project   uuid.UUID
	revision  eventstore.Revision
	removedAt time.Time
	position  eventstore.Position
}

// bulkRow is a row of table bulks.
type bulkRow struct {
	project    uuid.UUID
	acceptedAt time.Time
	position   eventstore.Position
}

// page is the rows that a page of events touches: as they were loaded, and then as the events leave them.
type page struct {
	projector *Projector
	tx        pgx.Tx
	projects  map[uuid.UUID]*projectRow
	entries   map[uuid.UUID]*entry
	gone      ids // records that were removed within the page, also those that came again
	removals  map[uuid.UUID]*removalRow
	cleared   map[uuid.UUID]eventstore.Revision // up to which removals are cut off
	seen      map[uuid.UUID]*seenRow
	bulks     map[uuid.UUID]*bulkRow // that were committed within the page and are open behind it
	ended     ids                    // bulk writes that were fanned out within the page
	lost      map[uuid.UUID]lostBulk // those of them that were given up
	audiences map[uuid.UUID]*audienceRow
	removed   ids                      // audiences that ended within the page
	members   map[uuid.UUID]ids        // the members of audiences that were put within the page
	listed    map[blob.Ref][]uuid.UUID // the lists of members that are in blobs
	known     ids                      // members of lists whose records were there before the page
	people    map[uuid.UUID]int64      // how many more identities a project has than before the page
	deltas    map[uuid.UUID]int64      // how many more identities a rule reaches than before the page
}

func newPage(p *Projector, tx pgx.Tx) *page {
	return &page{
		projector: p, tx: tx, projects: map[uuid.UUID]*projectRow{}, entries: map[uuid.UUID]*entry{}, gone: ids{}, removals: map[uuid.UUID]*removalRow{},
		cleared: map[uuid.UUID]eventstore.Revision{}, seen: map[uuid.UUID]*seenRow{}, bulks: map[uuid.UUID]*bulkRow{}, ended: ids{}, lost: map[uuid.UUID]lostBulk{},
		audiences: map[uuid.UUID]*audienceRow{}, removed: ids{}, members: map[uuid.UUID]ids{}, known: ids{}, listed: map[blob.Ref][]uuid.UUID{}, people: map[uuid.UUID]int64{}, deltas: map[uuid.UUID]int64{},
	}
}

// apply folds one event.
func (g *page) apply(ctx context.Context, f eventstore.Fact) error {
	if send, _, ok := datapoint.SendOf(f.Event); ok {
		return g.wrote(send)
	}
	owner := stream.Owner(f.Stream)
	switch e := f.Event.(type) {
	case *registry.ProjectCreated:
		if g.projects[e.ProjectID] == nil {
			g.projects[e.ProjectID] = &projectRow{namespace: e.Namespace, createdAt: unnest.Instant(e.CreatedAt), dirty: true}
		}
	case *registry.LogOpened, *registry.HashKeySet, *registry.OrganizationCreated, *registry.EventSetAside:
	case *identity.Appeared, *identity.TraitsReplaced, *identity.TraitsMerged, *identity.BulkRowApplied, *identity.Removed, *identity.Cleared:
		return g.record(ctx, f, owner)
	case *identity.BulkAccepted:
		return g.bulkAccepted(ctx, f.Position, owner, e)
	case *identity.BulkFannedOut:
		g.bulkFannedOut(owner, e)
	case *audience.Put:
		return g.put(ctx, f.Position, e)
	case *audience.Removed:
		return g.end(f.Position, e)
	case *audience.Recomputed:
		g.recomputed(f.Position, e)
	case *datapoint.Deleted, *deletion.Accepted, *deletion.FannedOut, *deletion.Cleaned:
	case *deletion.FactsKept:
		for _, fact := range e.Facts {
			if fact.AuthorID != uuid.Nil {
				g.saw(e.ProjectID, fact.AuthorID, fact.AcceptedAt)
			}
		}
	case *metering.Charged:
		for _, s := range e.Seen {
			g.saw(e.ProjectID, s.IdentityID, s.At)
		}
	default:
		return fmt.Errorf("no rule for %s", f.Type)
	}
	return nil
}

// wrote notes the author of a send.
func (g *page) wrote(send datapoint.Send) error {
	if send.Author == "" {
		return nil
	}
	project := g.projects[send.ProjectID]
	if project == nil {
		return fmt.Errorf("a data point of a project that nothing created: %s", send.ProjectID)
	}
	namespace, err := g.projector.namespaces.Of(project.namespace)
	if err != nil {
		return err
	}
	g.saw(send.ProjectID, stream.IdentityID(namespace, send.Author), send.AcceptedAt)
	return nil
}

// saw notes when an identity was seen.
func (g *page) saw(project, id uuid.UUID, at time.Time) {
	at = unnest.Instant(at)
	if row := g.seen[id]; row == nil {
		g.seen[id] = &seenRow{project: project, at: at}
	} else if at.After(row.at) {
		row.at = at
	}
}
