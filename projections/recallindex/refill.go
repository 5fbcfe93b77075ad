package recallindex

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/panics"
)

const (
	// refillInterval is how often losses are polled.
	refillInterval = 500 * time.Millisecond
	// refillPause is the pause after a refill failed.
	refillPause = 5 * time.Second
	// refillTimeout bounds one step.
	refillTimeout = 2 * time.Minute
	// A step ends after refillRows data points, or refillText bytes of text.
	refillRows = 256
	refillText = 4 << 20
	// refillDocuments is the most documents that are written while pages wait.
	refillDocuments = 500
)

// errForeignRows reports rows of another index: another process feeds its own, or this one is being
// rebuilt.
var errForeignRows = errors.New("rows belong to another index")

// RefillLosses refills the parts of the index that lost their documents, one after the other, until
// the context ends. The rows name what should be there, the log holds the texts. Pages go on
// meanwhile, and write what is new.
//
// A step reads and analyses while pages go on. Then it takes the lock that a page holds until its
// rows are committed, and writes only what the rows still name: text that was deleted in between is
// not written again.
func (p *Projector) RefillLosses(ctx context.Context, db *pgxpool.Pool) error {
	for ctx.Err() == nil {
		pause := refillInterval
		for _, loss := range p.index.Losses() {
			err := panics.Call(ctx, p.log, "recall index refill panicked", func() error { return p.Refill(ctx, db, loss) },
				"part", loss.Part)
			if err == nil || ctx.Err() != nil {
				continue
			}
			pause = refillPause
			if !errors.Is(err, errForeignRows) {
				p.log.WarnContext(ctx, "recall index refill failed, will retry", "part", loss.Part, "err", err)
			}
		}
		_ = backoff.Pause(ctx, pause, nil)
	}
	return nil
}

// Refill refills one part of the index from where the last refill stopped.
func (p *Projector) Refill(ctx context.Context, db *pgxpool.Pool, loss Loss) error {
	for {
		next, err := p.refillStep(ctx, db, loss)
		if err != nil {
			return fmt.Errorf("refill %s: %w", loss.Part, err)
		}
		if err := p.index.Refilled(ctx, loss, next); err != nil || next == nil {
			return err
		}
		loss.Reached = *next
	}
}

const selectNext = `select ` + columns + `
	from data_points where (project_id, id) > ($1, $2) order by project_id, id limit $3`

// refillStep refills some data points. It returns the last of them, nil at the end.
func (p *Projector) refillStep(ctx context.Context, db *pgxpool.Pool, loss Loss) (*Cursor, error) {
	ctx, cancel := context.WithTimeout(ctx, refillTimeout)
	defer cancel()
	rows, err := p.rowsAfter(ctx, db, loss.Reached, refillRows)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	reached := loss.Reached
	var text int64
	analyzer := p.analyzer()
	var found []refilled
	for _, row := range rows {
		if !loss.Holds(row.project) {
			if len(found) > 0 {
				break
			}
			// Skip the rest of the project.
			return &Cursor{Project: row.project, DataPoint: uuid.Max}, nil
		}
		f, size, err := p.documentsOf(ctx, analyzer, row)
		if err != nil {
			return nil, err
		}
		found = append(found, f)
		reached = Cursor{Project: row.project, DataPoint: row.id}
		if text += size; text >= refillText {
			break
		}
	}
	return &reached, p.fill(ctx, db, analyzer.Version(), found)
}

// keyedRow is the row of a data point.
type keyedRow struct {
	id uuid.UUID
	*dataPointRow
}

// rowsAfter returns the rows after a cursor, in order.
func (p *Projector) rowsAfter(
	ctx context.Context, db *pgxpool.Pool, after Cursor, limit int,
) (list []keyedRow, err error) {
	err = p.inRows(ctx, db, "", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, selectNext, after.Project, after.DataPoint, limit)
		if err != nil {
			return err
		}
		defer rows.Close()
		found, err := dataPointRows(rows)
		for id, row := range found {
			list = append(list, keyedRow{id, row})
		}
		return err
	})
	slices.SortFunc(list, func(a, b keyedRow) int {
		return cmp.Or(bytes.Compare(a.project[:], b.project[:]), bytes.Compare(a.id[:], b.id[:]))
	})
	return list, err
}

// inRows runs work in a transaction on the rows of the index, after a first statement if there is
// one. It returns errForeignRows if the rows belong to another index.
func (p *Projector) inRows(ctx context.Context, db *pgxpool.Pool, first string, work func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, db, pgx.TxOptions{BeginQuery: "begin; set local search_path = " + Name},
		func(tx pgx.Tx) error {
			if first != "" {
				if _, err := tx.Exec(ctx, first); err != nil {
					return err
				}
			}
			var target string
			err := tx.QueryRow(ctx, `select target from checkpoint`).Scan(&target)
			if err == nil && target != p.index.Generation() || errors.Is(err, pgx.ErrNoRows) {
				err = errForeignRows
			}
			if err != nil {
				return err
			}
			return work(tx)
		})
}

// refilled is what the index should hold of a data point, by the row as it was read.
type refilled struct {
	keyedRow
	sources, memories []Document
}

// documentsOf reads and analyses the texts of a data point.
func (p *Projector) documentsOf(
	ctx context.Context, a *recall.Analyzer, row keyedRow,
) (f refilled, text int64, err error) {
	f.keyedRow = row
	e, err := p.eventAt(ctx, stream.Name(stream.DataPoint, row.id), eventstore.Revision(row.bodyAt))
	if err != nil {
		return f, 0, err
	}
	if accepted, is := e.(*datapoint.RevisionAccepted); is {
		text += textSize(e)
		if f.sources, err = p.sourceDocuments(ctx, a, row.id, row.dataPointRow, accepted); err != nil {
			return f, 0, err
		}
	}
	if row.memoryRevision == 0 {
		return f, text, nil
	}
	if e, err = p.eventAt(ctx, stream.Name(stream.Memory, row.id), eventstore.Revision(row.memoryAt)); err != nil {
		return f, 0, err
	}
	if derived, is := e.(*memory.Derived); is {
		text += textSize(e)
		f.memories, err = p.memoryDocuments(ctx, a, row.id, row.dataPointRow, derived)
	}
	return f, text, err
}

// fill writes documents of data points, which an analysis made, at most refillDocuments at a time.
func (p *Projector) fill(ctx context.Context, db *pgxpool.Pool, analysis int, found []refilled) error {
	for len(found) > 0 {
		var part []refilled
		for n := 0; len(found) > 0 && n < refillDocuments; {
			f := &found[0]
			take := refilled{keyedRow: f.keyedRow}
			take.sources, f.sources = splitAt(f.sources, refillDocuments-n)
			n += len(take.sources)
			take.memories, f.memories = splitAt(f.memories, refillDocuments-n)
			n += len(take.memories)
			part = append(part, take)
			if len(f.sources)+len(f.memories) > 0 {
				break
			}
			found = found[1:]
		}
		if err := p.fillPart(ctx, db, analysis, part); err != nil {
			return err
		}
	}
	return nil
}

func splitAt(documents []Document, at int) (first, rest []Document) {
	at = min(max(at, 0), len(documents))
	return documents[:at], documents[at:]
}

// fillPart writes what the rows still name, while no page is applied.
func (p *Projector) fillPart(ctx context.Context, db *pgxpool.Pool, analysis int, part []refilled) error {
	return p.inRows(ctx, db, lockSchema, func(tx pgx.Tx) error {
		ids := make([]uuid.UUID, len(part))
		for i, f := range part {
			ids[i] = f.id
		}
		rows, err := tx.Query(ctx, selectDataPoints, ids)
		if err != nil {
			return err
		}
		now, err := dataPointRows(rows)
		rows.Close()
		if err != nil {
			return err
		}
		changes := map[uuid.UUID]*Change{}
		for _, f := range part {
			row := now[f.id]
			if row == nil {
				continue
			}
			c := changes[row.project]
			if c == nil {
				c = &Change{Project: row.project, Analysis: analysis}
				changes[row.project] = c
			}
			// If the row has changed, a page has indexed the new state.
			if row.revision == f.revision && row.bodyAt == f.bodyAt {
				c.Upserts = append(c.Upserts, ofAudience(f.sources, row.audience)...)
			}
			if row.memoryRevision == f.memoryRevision && row.memoryAt == f.memoryAt {
				c.Upserts = append(c.Upserts, ofAudience(f.memories, row.audience)...)
			}
		}
		list := make([]Change, 0, len(changes))
		for _, c := range changes {
			list = append(list, *c)
		}
		return p.index.Apply(ctx, list)
	})
}

func ofAudience(documents []Document, audience uuid.UUID) []Document {
	for i := range documents {
		documents[i].Audience = audience
	}
	return documents
}
