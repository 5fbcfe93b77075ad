package directory

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/unnest"
)

// bulkAccepted shows a bulk write whole. Where its stage is gone, which is so in a replay, the records that it makes are known to be
// there, and their own events bring the rest.
func (g *page) bulkAccepted(ctx context.Context, at eventstore.Position, bulk uuid.UUID, e *identity.BulkAccepted) error {
	rows, err := g.stagedRows(ctx, e)
	if err != nil {
		return err
	}
	acceptedAt := unnest.Instant(e.AcceptedAt)
	g.bulks[bulk] = &bulkRow{project: e.ProjectID, acceptedAt: acceptedAt, position: at}
	for i, target := range e.Targets {
		x := g.entry(target.IdentityID, e.ProjectID)
		if at <= x.position {
			continue
		}
		x.project, x.position, x.dirty, x.open[bulk] = e.ProjectID, at, true, at
		switch {
		case rows == nil && x.now == nil:
			x.now = &record{traits: made(nil), origin: string(e.Origin), createdAt: acceptedAt, updatedAt: acceptedAt}
		case rows == nil:
		case !x.now.visible():
			x.now = &record{identity: &rows[i].identity, traits: rows[i].traits, origin: string(e.Origin), createdAt: acceptedAt, updatedAt: acceptedAt}
		default:
			x.now = &record{identity: x.now.identity, traits: rows[i].traits, origin: x.now.origin, createdAt: x.now.createdAt, updatedAt: later(x.now.updatedAt, acceptedAt)}
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

// lostBulk is a bulk write some of whose rows never came to stand.
type lostBulk struct {
	project uuid.UUID
	rows    int
}

// stagedRow is a row of a bulk write whose traits are finished.
type stagedRow struct {
	identity string
	traits   traits
}

// stagedRows are the rows of a bulk write in the order of its targets, nil where the stage is gone. Only one row at a time is decoded.
func (g *page) stagedRows(ctx context.Context, e *identity.BulkAccepted) ([]stagedRow, error) {
	data, ok, err := g.readBlob(ctx, e.Rows, "rows of a bulk write")
	if err != nil || !ok {
		return nil, err
	}
	lines := json.NewDecoder(bytes.NewReader(data))
	rows := make([]stagedRow, 0, len(e.Targets))
	for lines.More() {
		var row identity.Row
		if err := lines.Decode(&row); err != nil {
			g.projector.log.WarnContext(ctx, "rows of a bulk write cannot be read", "blob", e.Rows.Stream, "err", err)
			return nil, nil
		}
		staged := stagedRow{identity: row.Identity, traits: made(row.Traits)}
		if err := g.finish(ctx, e.ProjectID, &staged.traits); err != nil {
			return nil, err
		}
		rows = append(rows, staged)
	}
	if len(rows) != len(e.Targets) {
		g.projector.log.WarnContext(ctx, "a bulk write has another number of rows than of targets", "blob", e.Rows.Stream, "rows", len(rows), "targets", len(e.Targets))
		return nil, nil
	}
	return rows, nil
}

// bulkFannedOut closes a bulk write. Of a record that was erased since, or whose row was lost, none came by: what is there of such a
// record by the commit alone goes.
func (g *page) bulkFannedOut(bulk uuid.UUID, e *identity.BulkFannedOut) {
	delete(g.bulks, bulk)
	g.ended.add(bulk)
	lost := 0
	for _, status := range e.Statuses {
		if status == "" {
			lost++
		}
	}
	if lost > 0 {
		g.lost[bulk] = lostBulk{project: e.ProjectID, rows: lost}
	}
	for _, x := range g.entries {
		if _, open := x.open[bulk]; !open {
			continue
		}
		delete(x.open, bulk)
		if x.now != nil && !x.now.visible() && len(x.open) == 0 {
			g.drop(x)
			x.dirty = true
		}
	}
}
