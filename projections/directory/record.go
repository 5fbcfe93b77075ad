package directory

import (
	"bytes"
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/unnest"
)

// entry is what is known of an identity: its record, how far its stream was read, and the rows of bulk writes that do not stand there.
type entry struct {
	id, project uuid.UUID
	before, now *record // nil for none
	revision    eventstore.Revision
	position    eventstore.Position
	dirty       bool
	changed     bool // the record has another row than before the page
	// loaded are the open rows as they were before the page, open as they are, by bulk write with the position of the commit.
	loaded, open map[uuid.UUID]eventstore.Position
}

// record is a row of table identities. What is shared between before and now is replaced, never changed.
type record struct {
	identity             *string // nil for one of which nothing but its being there is known
	traits               traits
	origin               string
	createdAt, updatedAt time.Time
}

// visible reports whether anybody can read the record.
func (r *record) visible() bool { return r != nil && r.identity != nil }

func (g *page) entry(id, project uuid.UUID) *entry {
	x := g.entries[id]
	if x == nil {
		x = &entry{id: id, project: project, revision: eventstore.NoStream, open: map[uuid.UUID]eventstore.Position{}}
		g.entries[id] = x
	}
	return x
}

// record folds an event of the stream of a record.
func (g *page) record(ctx context.Context, f eventstore.Fact, id uuid.UUID) error {
	x := g.entries[id]
	if x == nil {
		x = g.entry(id, projectOf(f))
	}
	if f.Position <= x.position {
		return nil
	}
	x.project, x.revision, x.position, x.dirty = projectOf(f), f.Revision, f.Position, true
	switch e := f.Event.(type) {
	case *identity.Appeared:
		if !x.now.visible() {
			at := unnest.Instant(e.AppearedAt)
			x.now = &record{identity: &e.Identity, traits: made(nil), origin: string(e.Origin), createdAt: at, updatedAt: at}
		}
	case *identity.TraitsReplaced:
		made := recordOf(e.Record)
		if len(x.open) > 0 && x.now.visible() { // the decision need not have known what made the record
			made.origin, made.createdAt = x.now.origin, x.now.createdAt
		}
		x.now = made
	case *identity.TraitsMerged:
		return g.merge(ctx, x, e)
	case *identity.BulkRowApplied:
		g.rowApplied(x, e)
	case *identity.Removed:
		g.drop(x)
		clear(x.open) // they are beneath the removal
		g.removals[id] = &removalRow{project: e.ProjectID, revision: f.Revision, removedAt: unnest.Instant(e.RemovedAt), position: f.Position}
	case *identity.Cleared:
		cut := eventstore.Revision(e.Removal)
		g.cleared[id] = max(cut, g.cleared[id])
		if row := g.removals[id]; row != nil && row.revision <= cut {
			delete(g.removals, id)
		}
	}
	return nil
}

// drop ends a record and its membership in every audience.
func (g *page) drop(x *entry) {
	x.now = nil
	g.gone.add(x.id)
	for _, members := range g.members {
		delete(members, x.id)
	}
}

// merge changes some traits. Where a row of a bulk write stands open, the decision may not have known of it: what stands is changed.
func (g *page) merge(ctx context.Context, x *entry, e *identity.TraitsMerged) error {
	if len(x.open) == 0 || !x.now.visible() {
		x.now = recordOf(e.Record)
		return nil
	}
	values, err := g.read(ctx, x.id, x.project, &x.now.traits)
	if err != nil {
		return err
	}
	patch, err := g.patch(ctx, e.Patch)
	if err != nil {
		return err
	}
	for key, value := range patch {
		if value == nil {
			delete(values, key)
		} else {
			values[key] = *value
		}
	}
	x.now = &record{identity: x.now.identity, traits: made(values), origin: x.now.origin, createdAt: x.now.createdAt, updatedAt: unnest.Instant(e.Record.UpdatedAt)}
	return nil
}

// rowApplied sets the record to what the event says stands at the head. Where a row of a bulk write that was committed behind this one
// stands open, what is shown is later already: only what made the record is taken over, which a replay need not know yet.
func (g *page) rowApplied(x *entry, e *identity.BulkRowApplied) {
	delete(x.open, e.BulkID)
	for _, commit := range x.open {
		if commit <= eventstore.Position(e.Commit) {
			continue
		}
		if e.Record != nil && x.now.visible() {
			shown := *x.now
			shown.origin, shown.createdAt = string(e.Record.Origin), unnest.Instant(e.Record.CreatedAt)
			shown.updatedAt = later(shown.updatedAt, unnest.Instant(e.Record.UpdatedAt))
			x.now = &shown
		}
		return
	}
	if e.Record == nil {
		g.drop(x)
		return
	}
	x.now = recordOf(*e.Record)
}

func recordOf(r identity.Record) *record {
	return &record{
		identity: &r.Identity, traits: traitsOf(r.Traits), origin: string(r.Origin),
		createdAt: unnest.Instant(r.CreatedAt), updatedAt: unnest.Instant(r.UpdatedAt),
	}
}

// finishEntries makes the rows of what changed, and notes which records are what they were: so is nearly every row of a bulk write, which
// was shown at the commit.
func (g *page) finishEntries(ctx context.Context) error {
	for _, x := range g.entries {
		if !x.dirty || x.before == x.now {
			continue
		}
		if x.now != nil {
			if err := g.finish(ctx, x.project, &x.now.traits); err != nil {
				return err
			}
		}
		x.changed = !x.before.equal(x.now)
	}
	return nil
}

// equal reports whether two records have the same row.
func (r *record) equal(other *record) bool {
	return r.visible() && other.visible() && *r.identity == *other.identity && r.origin == other.origin &&
		r.createdAt.Equal(other.createdAt) && r.updatedAt.Equal(other.updatedAt) && bytes.Equal(r.traits.marks, other.traits.marks)
}

// patch is a change of traits, nil for those that go.
func (g *page) patch(ctx context.Context, p identity.Patch) (map[string]*string, error) {
	patch := map[string]*string{}
	if p.Blob != nil {
		return patch, g.readJSON(ctx, *p.Blob, "patch", &patch)
	}
	for key, value := range p.Set {
		patch[key] = &value
	}
	for _, key := range p.Removed {
		patch[key] = nil
	}
	return patch, nil
}

// projectOf is the project of an event of a record.
func projectOf(f eventstore.Fact) uuid.UUID {
	switch e := f.Event.(type) {
	case *identity.Appeared:
		return e.ProjectID
	case *identity.TraitsReplaced:
		return e.ProjectID
	case *identity.TraitsMerged:
		return e.ProjectID
	case *identity.BulkRowApplied:
		return e.ProjectID
	case *identity.Removed:
		return e.ProjectID
	case *identity.Cleared:
		return e.ProjectID
	default:
		return uuid.Nil
	}
}
