package directory

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections/table"
)

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
