package directory

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections/table"
)

type ids map[uuid.UUID]struct{}

func (s ids) add(id uuid.UUID) { s[id] = struct{}{} }

func (s ids) has(id uuid.UUID) bool { _, ok := s[id]; return ok }

// members are the members of an audience, by identity.
type members map[uuid.UUID]member

// member is a member of an audience of the page.
type member struct {
	since time.Time
	// stays is true if a row that was there before the page stays.
	stays bool
}

// memberRow is a row of table members.
type memberRow struct {
	Audience uuid.UUID `db:"audience_id"`
	Identity uuid.UUID `db:"identity_id"`
	Since    time.Time `db:"since"`
}

// projectRow is a row of table projects, but for the number of its identities.
type projectRow struct {
	ID        uuid.UUID `db:"project_id"`
	Namespace uuid.UUID `db:"namespace,once"`
	CreatedAt time.Time `db:"created_at,once"`
	// RulesAt is the position of the newest change of its audiences, before that of before the page.
	RulesAt eventstore.Position `db:"rules_at"`
	before  eventstore.Position
	dirty   bool
}

// seenRow is a row of table seen, from the events of the page alone.
type seenRow struct {
	ID      uuid.UUID `db:"id"`
	Project uuid.UUID `db:"project_id,once"`
	At      time.Time `db:"at"`
}

// removalRow is a row of table removals.
type removalRow struct {
	ID        uuid.UUID           `db:"id"`
	Project   uuid.UUID           `db:"project_id,once"`
	Revision  eventstore.Revision `db:"revision"`
	RemovedAt time.Time           `db:"removed_at"`
	Position  eventstore.Position `db:"position"`
}

// bulkRow is a row of table bulks.
type bulkRow struct {
	ID         uuid.UUID           `db:"id"`
	Project    uuid.UUID           `db:"project_id"`
	AcceptedAt time.Time           `db:"accepted_at"`
	Position   eventstore.Position `db:"position"`
}

var (
	memberTable = table.New[memberRow](Name, schema, "members")
	projects    = table.New[projectRow](Name, schema, "projects")
	seen        = table.New[seenRow](Name, schema, "seen", table.Change{If: "seen.at < excluded.at"})
	removals    = table.New[removalRow](Name, schema, "removals")
	bulks       = table.New[bulkRow](Name, schema, "bulks")
)

// fold holds the rows that a page of events touches: first as loaded, then as changed by the
// events.
type fold struct {
	projector      *Projector
	tx             pgx.Tx
	projects       map[uuid.UUID]*projectRow
	identities     map[uuid.UUID]*identityState
	removedRecords ids // records removed within the page, also if created again
	removals       map[uuid.UUID]*removalRow
	cleared        map[uuid.UUID]eventstore.Revision // by record, the revision of the newest cleared removal
	seen           map[uuid.UUID]*seenRow
	bulks          map[uuid.UUID]*bulkRow       // bulk writes committed within the page and not fanned out in it
	closedBulks    ids                          // bulk writes fanned out within the page
	abandoned      map[uuid.UUID]*abandonedBulk // those of closedBulks that were abandoned
	audiences      map[uuid.UUID]*audienceRow
	removed        ids                           // audiences removed within the page
	members        map[uuid.UUID]members         // of audiences put within the page
	definitions    map[uuid.UUID]*lastDefinition // the newest of each audience
	newDefinitions []*pastAudience
	newLists       []*pastList
	memberLists    map[blob.Ref][]uuid.UUID // member lists read from blobs
	existing       ids                      // listed members whose records existed before the page
	identityDeltas map[uuid.UUID]int64      // change in the number of visible identities, by project
	memberDeltas   map[uuid.UUID]int64      // change in the number of members, by audience with a rule
	recounts       map[uuid.UUID]recount    // recounts that ran before the page, by audience
	recountDeltas  map[uuid.UUID]int64      // change in the members that these have counted
}

func newFold(p *Projector, tx pgx.Tx) *fold {
	return &fold{
		projector: p, tx: tx, projects: map[uuid.UUID]*projectRow{}, identities: map[uuid.UUID]*identityState{},
		removedRecords: ids{}, removals: map[uuid.UUID]*removalRow{}, cleared: map[uuid.UUID]eventstore.Revision{},
		seen: map[uuid.UUID]*seenRow{}, bulks: map[uuid.UUID]*bulkRow{}, closedBulks: ids{},
		abandoned: map[uuid.UUID]*abandonedBulk{}, audiences: map[uuid.UUID]*audienceRow{}, removed: ids{},
		definitions: map[uuid.UUID]*lastDefinition{}, members: map[uuid.UUID]members{}, existing: ids{},
		memberLists:    map[blob.Ref][]uuid.UUID{},
		identityDeltas: map[uuid.UUID]int64{}, memberDeltas: map[uuid.UUID]int64{},
		recounts: map[uuid.UUID]recount{}, recountDeltas: map[uuid.UUID]int64{},
	}
}

// apply folds one event. It fails on one that contradicts an earlier event.
func (f *fold) apply(ctx context.Context, decoded eventstore.DecodedEvent) error {
	if send, _, ok := datapoint.SendOf(decoded.Event); ok {
		return f.noteAuthor(send, decoded.Event)
	}
	owner := stream.Owner(decoded.Stream)
	switch e := decoded.Event.(type) {
	case *registry.ProjectCreated:
		if f.projects[e.ProjectID] == nil {
			f.projects[e.ProjectID] = &projectRow{
				ID: e.ProjectID, Namespace: e.Namespace, CreatedAt: pgarray.Instant(e.CreatedAt), dirty: true,
			}
		}
	case *identity.Appeared, *identity.TraitsReplaced, *identity.TraitsMerged, *identity.BulkRowApplied,
		*identity.Removed, *identity.Cleared:
		return f.applyRecordEvent(ctx, decoded, owner)
	case *identity.BulkAccepted:
		return f.bulkAccepted(ctx, decoded.Position, owner, e)
	case *identity.BulkFannedOut:
		f.bulkFannedOut(owner, e)
	case *audience.Put:
		return f.audiencePut(ctx, decoded.Position, e)
	case *audience.Removed:
		return f.audienceRemoved(decoded.Position, e)
	case *audience.Recomputed:
		f.audienceRecomputed(decoded.Position, e)
	case *deletion.FactsKept:
		for _, fact := range e.Facts {
			if fact.AuthorID != uuid.Nil {
				f.noteSeen(e.ProjectID, fact.AuthorID, fact.AcceptedAt)
			}
		}
	case *metering.Charged:
		for _, s := range e.Seen {
			f.noteSeen(e.ProjectID, s.IdentityID, s.At)
		}
	}
	return nil
}

// noteAuthor records when the author of a send was seen.
func (f *fold) noteAuthor(send datapoint.Send, e event.Event) error {
	name, record := datapoint.AuthorOf(e)
	if record != uuid.Nil {
		f.noteSeen(send.ProjectID, record, send.AcceptedAt)
	}
	if name == "" {
		return nil
	}
	project := f.projects[send.ProjectID]
	if project == nil {
		return fmt.Errorf("project %s of a data point was not created", send.ProjectID)
	}
	namespace, err := f.projector.namespaces.Of(project.Namespace)
	if err != nil {
		return err
	}
	f.noteSeen(send.ProjectID, stream.IdentityID(namespace, name), send.AcceptedAt)
	return nil
}

// noteSeen records when an identity was seen.
func (f *fold) noteSeen(project, id uuid.UUID, at time.Time) {
	at = pgarray.Instant(at)
	if row := f.seen[id]; row == nil {
		f.seen[id] = &seenRow{ID: id, Project: project, At: at}
	} else if at.After(row.At) {
		row.At = at
	}
}

// bulkAccepted makes a bulk write visible with its commit. A replay finds the stage missing: the
// records then exist without content until the events of their own streams follow.
func (f *fold) bulkAccepted(
	ctx context.Context, at eventstore.Position, bulk uuid.UUID, e *identity.BulkAccepted,
) error {
	rows, err := f.stagedRows(ctx, e)
	if err != nil {
		return err
	}
	acceptedAt := pgarray.Instant(e.AcceptedAt)
	f.bulks[bulk] = &bulkRow{ID: bulk, Project: e.ProjectID, AcceptedAt: acceptedAt, Position: at}
	for i, target := range e.Targets {
		x := f.identityState(target.IdentityID, e.ProjectID)
		if at <= x.Position {
			continue
		}
		x.Project, x.Position, x.dirty, x.open[bulk] = e.ProjectID, at, true, at
		switch {
		case rows == nil && x.now == nil:
			x.become(&record{
				traits: newTraits(nil), origin: string(e.Origin), createdAt: acceptedAt, updatedAt: acceptedAt,
			}, at)
		case rows == nil:
		case !x.now.visible():
			x.become(&record{
				identity: &rows[i].identity, traits: rows[i].traits, origin: string(e.Origin),
				createdAt: acceptedAt, updatedAt: acceptedAt,
			}, at)
		default:
			x.become(&record{
				identity: x.now.identity, traits: rows[i].traits, origin: x.now.origin,
				createdAt: x.now.createdAt, updatedAt: later(x.now.updatedAt, acceptedAt),
			}, at)
		}
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// abandonedBulk is a row of table lost_bulks: a bulk write that ended with rows that could not be written.
type abandonedBulk struct {
	ID      uuid.UUID `db:"id"`
	Project uuid.UUID `db:"project_id"`
	Rows    int       `db:"rows"`
}

var abandonedBulks = table.New[abandonedBulk](Name, schema, "lost_bulks")

// stagedRow is a row of a bulk write with encoded traits.
type stagedRow struct {
	identity string
	traits   traits
}

// stagedRows reads the rows of a bulk write in the order of its targets. It returns nil if the
// stage is missing or damaged. It decodes one row at a time, to bound memory.
func (f *fold) stagedRows(ctx context.Context, e *identity.BulkAccepted) ([]stagedRow, error) {
	data, ok, err := f.readBlob(ctx, e.Rows, "rows of a bulk write")
	if err != nil || !ok {
		return nil, err
	}
	lines := json.NewDecoder(bytes.NewReader(data))
	rows := make([]stagedRow, 0, len(e.Targets))
	for lines.More() {
		var row identity.Row
		if err := lines.Decode(&row); err != nil {
			f.projector.logger.WarnContext(ctx, "staged rows of a bulk write cannot be decoded",
				"blob", e.Rows.Stream, "err", err)
			return nil, nil
		}
		staged := stagedRow{identity: row.Identity, traits: newTraits(row.Traits)}
		if err := f.encodeTraits(ctx, e.ProjectID, &staged.traits); err != nil {
			return nil, err
		}
		rows = append(rows, staged)
	}
	if len(rows) != len(e.Targets) {
		f.projector.logger.WarnContext(ctx, "staged rows and targets of a bulk write differ in number",
			"blob", e.Rows.Stream, "rows", len(rows), "targets", len(e.Targets))
		return nil, nil
	}
	return rows, nil
}

// bulkFannedOut closes a bulk write. A record that is still without content was erased since, or
// its row could not be written: it is removed.
func (f *fold) bulkFannedOut(bulk uuid.UUID, e *identity.BulkFannedOut) {
	delete(f.bulks, bulk)
	f.closedBulks.add(bulk)
	lost := 0
	for _, status := range e.Statuses {
		if status == "" {
			lost++
		}
	}
	if lost > 0 {
		f.abandoned[bulk] = &abandonedBulk{ID: bulk, Project: e.ProjectID, Rows: lost}
	}
	for _, x := range f.identities {
		if _, open := x.open[bulk]; !open {
			continue
		}
		delete(x.open, bulk)
		if x.now != nil && !x.now.visible() && len(x.open) == 0 {
			f.dropRecord(x)
			x.dirty = true
		}
	}
}

// refsOf lists the blobs that an event refers to.
func refsOf(e event.Event) (refs []blob.Ref) {
	add := func(list ...*blob.Ref) {
		for _, ref := range list {
			if ref != nil {
				refs = append(refs, *ref)
			}
		}
	}
	switch e := e.(type) {
	case *identity.TraitsReplaced:
		add(e.Record.Traits.Blob)
	case *identity.TraitsMerged:
		add(e.Record.Traits.Blob, e.Patch.Blob)
	case *identity.BulkRowApplied:
		if e.Record != nil {
			add(e.Record.Traits.Blob)
		}
	case *identity.BulkAccepted:
		add(&e.Rows)
	case *audience.Put:
		add(e.MembersBlob, e.RuleBlob)
	}
	return refs
}

// readBlob reads a blob. ok is false if it is missing or damaged.
func (f *fold) readBlob(ctx context.Context, ref blob.Ref, what string) (data []byte, ok bool, err error) {
	data, err = f.projector.blobs.ReadBlob(ctx, ref)
	if _, lost := errors.AsType[*eventstore.BlobError](err); lost {
		f.projector.logger.InfoContext(ctx, "blob of the directory is missing or damaged",
			"what", what, "blob", ref.Stream, "err", err)
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read %s of %s: %w", what, ref.Stream, err)
	}
	return data, true, nil
}

// readJSON decodes a blob into a value. If the blob is missing or damaged, the value stays
// unchanged.
func (f *fold) readJSON(ctx context.Context, ref blob.Ref, what string, into any) error {
	data, ok, err := f.readBlob(ctx, ref, what)
	if err != nil || !ok {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("decode %s of %s: %w", what, ref.Stream, err)
	}
	return nil
}
