package directory

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections/table"
)

// identityState is the state of an identity: its record, the position of its stream, and its open
// bulk rows, which are committed but not written to its stream.
type identityState struct {
	headRow
	before, now *record // nil: no record
	dirty       bool
	changed     bool // the row of the record changes with the page
	past        pastState
	// loaded are the open bulk rows before the page, open those now: the position of the commit by
	// bulk write.
	loaded, open map[uuid.UUID]eventstore.Position
}

// headRow is a row of table heads.
type headRow struct {
	ID       uuid.UUID           `db:"id"`
	Project  uuid.UUID           `db:"project_id,once"`
	Revision eventstore.Revision `db:"revision"`
	Position eventstore.Position `db:"position"`
	ErasedAt *time.Time          `db:"erased_at"`
}

var heads = table.New[headRow](Name, schema, "heads")

// newState makes the state of an identity without a record.
func newState(head headRow) *identityState {
	return &identityState{headRow: head, open: map[uuid.UUID]eventstore.Position{}}
}

// record is what a row of table identities holds of an identity. before and now may share values, which are
// replaced, never changed.
type record struct {
	identity             *string // nil: the record exists, its content is not known
	traits               traits
	origin               string
	createdAt, updatedAt time.Time
	born                 eventstore.Position // of what created the record
}

// visible reports whether the record exists and its content is known.
func (r *record) visible() bool { return r != nil && r.identity != nil }

func (f *fold) identityState(id, project uuid.UUID) *identityState {
	x := f.identities[id]
	if x == nil {
		x = newState(headRow{ID: id, Project: project, Revision: eventstore.NoStream})
		f.identities[id] = x
	}
	return x
}

// applyRecordEvent folds an event of the stream of a record.
func (f *fold) applyRecordEvent(ctx context.Context, decoded eventstore.DecodedEvent, id uuid.UUID) error {
	x := f.identities[id]
	if x == nil {
		x = f.identityState(id, projectOf(decoded))
	}
	if decoded.Position <= x.Position {
		return nil
	}
	x.Project, x.Revision, x.Position, x.dirty = projectOf(decoded), decoded.Revision, decoded.Position, true
	switch e := decoded.Event.(type) {
	case *identity.Appeared:
		if !x.now.visible() {
			at := pgarray.Instant(e.AppearedAt)
			x.become(&record{
				identity: &e.Identity, traits: newTraits(nil), origin: string(e.Origin), createdAt: at, updatedAt: at,
			}, decoded.Position)
		}
		x.past.appeared(pgarray.Instant(e.AppearedAt))
	case *identity.TraitsReplaced:
		made := recordOf(e.Record)
		if len(x.open) > 0 && x.now.visible() { // the decision may have missed the commit that created the record
			made.origin, made.createdAt = x.now.origin, x.now.createdAt
		}
		x.become(made, decoded.Position)
		x.past.wrote(made)
	case *identity.TraitsMerged:
		merged := recordOf(e.Record)
		x.past.wrote(merged)
		return f.mergeTraits(ctx, x, e, merged, decoded.Position)
	case *identity.BulkRowApplied:
		f.rowApplied(x, e)
	case *identity.Removed:
		f.dropRecord(x)
		clear(x.open) // the removal takes effect after them
		x.past.erased()
		x.ErasedAt = new(pgarray.Instant(e.RemovedAt))
		f.removals[id] = &removalRow{
			ID: id, Project: e.ProjectID, Revision: decoded.Revision,
			RemovedAt: pgarray.Instant(e.RemovedAt), Position: decoded.Position,
		}
	case *identity.Cleared:
		cut := eventstore.Revision(e.Removal)
		f.cleared[id] = max(cut, f.cleared[id])
		if row := f.removals[id]; row != nil && row.Revision <= cut {
			delete(f.removals, id)
		}
	}
	return nil
}

// dropRecord removes a record and its membership in every audience.
func (f *fold) dropRecord(x *identityState) {
	x.now = nil
	f.removedRecords.add(x.ID)
	for _, members := range f.members {
		delete(members, x.ID)
	}
}

// mergeTraits applies a patch of traits. If a bulk row is open, the decision may have missed it:
// the patch is then applied to the current traits instead.
func (f *fold) mergeTraits(
	ctx context.Context, x *identityState, e *identity.TraitsMerged, merged *record, at eventstore.Position,
) error {
	if len(x.open) == 0 || !x.now.visible() {
		x.become(merged, at)
		return nil
	}
	values, err := f.traitValues(ctx, x.ID, x.Project, &x.now.traits)
	if err != nil {
		return err
	}
	patch, err := f.patch(ctx, e.Patch)
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
	x.become(&record{
		identity: x.now.identity, traits: newTraits(values), origin: x.now.origin,
		createdAt: x.now.createdAt, updatedAt: pgarray.Instant(e.Record.UpdatedAt),
	}, at)
	return nil
}

// rowApplied sets the record to the state that the event carries. If a bulk write that was
// committed later is open, the current record is newer: then only the origin and the creation time
// are taken over, which a replay may not know yet.
func (f *fold) rowApplied(x *identityState, e *identity.BulkRowApplied) {
	delete(x.open, e.BulkID)
	var stored *record
	if e.Record != nil {
		stored = recordOf(*e.Record)
		x.past.wrote(stored)
	}
	for _, commit := range x.open {
		if commit <= eventstore.Position(e.Commit) {
			continue
		}
		if e.Record != nil && x.now.visible() {
			shown := *x.now
			shown.origin, shown.createdAt = string(e.Record.Origin), pgarray.Instant(e.Record.CreatedAt)
			shown.updatedAt = later(shown.updatedAt, pgarray.Instant(e.Record.UpdatedAt))
			x.now = &shown
		}
		return
	}
	if stored == nil {
		f.dropRecord(x)
		return
	}
	x.become(stored, eventstore.Position(e.Commit))
}

// become sets the record after an effect at a position.
func (x *identityState) become(r *record, at eventstore.Position) {
	if r.born = at; x.now != nil {
		r.born = x.now.born
	}
	x.now = r
}

func recordOf(r identity.Record) *record {
	return &record{
		identity: &r.Identity, traits: traitsOf(r.Traits), origin: string(r.Origin),
		createdAt: pgarray.Instant(r.CreatedAt), updatedAt: pgarray.Instant(r.UpdatedAt),
	}
}

// encodeRecords encodes the traits of changed records, and finds the records whose rows really
// change. Nearly all rows of a bulk write do not, since its commit already made them visible.
func (f *fold) encodeRecords(ctx context.Context) error {
	for _, x := range f.identities {
		if err := f.encodePast(ctx, x); err != nil {
			return err
		}
		if !x.dirty || x.before == x.now {
			continue
		}
		if x.now != nil {
			if err := f.encodeTraits(ctx, x.Project, &x.now.traits); err != nil {
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
		r.createdAt.Equal(other.createdAt) && r.updatedAt.Equal(other.updatedAt) && r.born == other.born &&
		bytes.Equal(r.traits.traitKeys, other.traits.traitKeys)
}

// patch returns the change of traits of an event; nil removes a trait.
func (f *fold) patch(ctx context.Context, p identity.Patch) (map[string]*string, error) {
	patch := map[string]*string{}
	if p.Blob != nil {
		return patch, f.readJSON(ctx, *p.Blob, "patch", &patch)
	}
	for key, value := range p.Set {
		patch[key] = &value
	}
	for _, key := range p.Removed {
		patch[key] = nil
	}
	return patch, nil
}

// projectOf returns the project of an event of a record, uuid.Nil for other events.
func projectOf(decoded eventstore.DecodedEvent) uuid.UUID {
	switch e := decoded.Event.(type) {
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

// traits are the traits of a record, from an event or from its row.
type traits struct {
	// stored is set if the row already holds them: then only traitKeys are known.
	stored    bool
	text      string
	traitKeys audience.TraitKeys
	// values or blob are from an event. encodeTraits clears them once text and traitKeys are set.
	values map[string]string
	blob   *blob.Ref
}

// traitsOf returns the traits of an event.
func traitsOf(t identity.Traits) traits {
	if t.Blob != nil {
		return traits{blob: t.Blob}
	}
	return newTraits(t.Inline)
}

func newTraits(values map[string]string) traits {
	if values == nil {
		values = map[string]string{}
	}
	return traits{values: values}
}

// encodeTraits sets text and traitKeys. Equal traits yield equal text, in whatever order they were
// sent.
func (f *fold) encodeTraits(ctx context.Context, project uuid.UUID, t *traits) error {
	switch {
	case t.stored || t.text != "":
		return nil
	case t.blob != nil:
		var err error
		if t.values, err = f.readTraits(ctx, *t.blob); err != nil {
			return err
		}
	}
	text, err := encode(t.values)
	if err != nil {
		return fmt.Errorf("encode traits: %w", err)
	}
	t.text, t.traitKeys = text, audience.TraitKeysOf(project, t.values)
	t.values, t.blob = nil, nil
	return nil
}

// readTraits reads traits from a blob. It returns none if the blob is missing, damaged, or not an
// object of strings.
func (f *fold) readTraits(ctx context.Context, ref blob.Ref) (map[string]string, error) {
	data, ok, err := f.readBlob(ctx, ref, "traits")
	if err != nil || !ok {
		return map[string]string{}, err
	}
	var values map[string]string
	if err := json.Unmarshal(data, &values); err != nil || values == nil {
		f.projector.logger.WarnContext(ctx, "traits in a blob cannot be decoded", "blob", ref.Stream, "err", err)
		return map[string]string{}, nil
	}
	return values, nil
}

// traitValues returns the traits of a record, also if only its row holds them.
func (f *fold) traitValues(ctx context.Context, id, project uuid.UUID, t *traits) (map[string]string, error) {
	if err := f.encodeTraits(ctx, project, t); err != nil {
		return nil, err
	}
	text := t.text
	if t.stored {
		if err := f.tx.QueryRow(ctx, `select traits from identities where id = $1`, id).Scan(&text); err != nil {
			return nil, fmt.Errorf("read the traits of identity %s: %w", id, err)
		}
	}
	values := map[string]string{}
	if err := json.Unmarshal([]byte(text), &values); err != nil {
		return nil, fmt.Errorf("decode the traits of identity %s: %w", id, err)
	}
	return values, nil
}

// encode returns JSON with sorted keys and without HTML escapes.
func encode(value any) (string, error) {
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	if err := to.Encode(value); err != nil {
		return "", err
	}
	return strings.TrimSuffix(text.String(), "\n"), nil
}
