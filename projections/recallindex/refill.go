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
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
)

const (
	// refillLook is how often it is looked whether a part of the index lost something.
	refillLook = 500 * time.Millisecond
	// refillPause is how long what keeps a part from being filled is waited for.
	refillPause = 5 * time.Second
	// refillLimit bounds the statements and the reading of one step.
	refillLimit = 2 * time.Minute
	// refillRows and refillText are the most data points of a step, and the text that ends one.
	refillRows = 256
	refillText = 4 << 20
	// refillDocuments are the most that are written while pages wait.
	refillDocuments = 500
)

// errNotOurs is an index that the rows do not belong to: another process feeds its own, or this one is being built anew.
var errNotOurs = errors.New("the rows belong to another index")

// KeepWhole fills the parts of the index again that lost their documents, one after the other, until the context ends. It reads
// what should be there from the rows, the texts from the log. Pages go on meanwhile, and write there what is new.
//
// A step reads and analyses while pages go on, and then writes under the lock that a page holds until its rows are committed, and
// only what the rows still say: text that was deleted in between is not written again.
func (p *Projector) KeepWhole(ctx context.Context, db *pgxpool.Pool) error {
	for ctx.Err() == nil {
		pause := refillLook
		for _, loss := range p.index.Losses() {
			err := panics.Call(ctx, p.log, "refilling the recall index panicked", func() error { return p.Refill(ctx, db, loss) }, "part", loss.Part)
			if err == nil || ctx.Err() != nil {
				continue
			}
			pause = refillPause
			if !errors.Is(err, errNotOurs) {
				p.log.WarnContext(ctx, "part of the recall index is not filled again yet", "part", loss.Part, "err", err)
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// Refill fills one part of the index again, from where it was left.
func (p *Projector) Refill(ctx context.Context, db *pgxpool.Pool, loss Loss) error {
	for {
		next, err := p.refillStep(ctx, db, loss)
		if err != nil {
			return fmt.Errorf("fill %s again: %w", loss.Part, err)
		}
		if err := p.index.Refilled(ctx, loss, next); err != nil || next == nil {
			return err
		}
		loss.Reached = *next
	}
}

const selectNext = `select id, project_id, audience, revision, body_at, occurred_at, memory_revision, memory_at, position
	from data_points where (project_id, id) > ($1, $2) order by project_id, id limit $3`

// refillStep fills in some data points, and answers up to where it came, nil at the end.
func (p *Projector) refillStep(ctx context.Context, db *pgxpool.Pool, loss Loss) (*Mark, error) {
	ctx, cancel := context.WithTimeout(ctx, refillLimit)
	defer cancel()
	rows, err := p.rowsAfter(ctx, db, loss.Reached, refillRows)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	reached := loss.Reached
	var text int64
	var found []filling
	for _, row := range rows {
		if !loss.Holds(row.project) {
			if len(found) > 0 {
				break
			}
			// All of the project is passed over.
			return &Mark{Project: row.project, DataPoint: uuid.Max}, nil
		}
		f, size, err := p.filling(ctx, row)
		if err != nil {
			return nil, err
		}
		found = append(found, f)
		reached = Mark{Project: row.project, DataPoint: row.id}
		if text += size; text >= refillText {
			break
		}
	}
	return &reached, p.fill(ctx, db, found)
}

// keyed is the row of a data point.
type keyed struct {
	id uuid.UUID
	*point
}

// rowsAfter are the rows that follow a mark, in order.
func (p *Projector) rowsAfter(ctx context.Context, db *pgxpool.Pool, after Mark, limit int) (list []keyed, err error) {
	err = p.inRows(ctx, db, "", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, selectNext, after.Project, after.DataPoint, limit)
		if err != nil {
			return err
		}
		defer rows.Close()
		found, err := pointsOf(rows)
		for id, row := range found {
			list = append(list, keyed{id, row})
		}
		return err
	})
	slices.SortFunc(list, func(a, b keyed) int {
		return cmp.Or(bytes.Compare(a.project[:], b.project[:]), bytes.Compare(a.id[:], b.id[:]))
	})
	return list, err
}

// inRows works in a transaction on the rows of the index, after a first statement if one is given.
func (p *Projector) inRows(ctx context.Context, db *pgxpool.Pool, first string, work func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, db, pgx.TxOptions{BeginQuery: "begin; set local search_path = " + Name}, func(tx pgx.Tx) error {
		if first != "" {
			if _, err := tx.Exec(ctx, first); err != nil {
				return err
			}
		}
		var target string
		err := tx.QueryRow(ctx, `select target from checkpoint`).Scan(&target)
		if err == nil && target != p.index.Generation() || errors.Is(err, pgx.ErrNoRows) {
			err = errNotOurs
		}
		if err != nil {
			return err
		}
		return work(tx)
	})
}

// filling is what a data point should have in the index, as its row was read.
type filling struct {
	keyed
	sources, memories []Document
}

// filling reads and analyses the texts of a data point.
func (p *Projector) filling(ctx context.Context, row keyed) (f filling, text int64, err error) {
	f.keyed = row
	e, ok, err := p.texts.Event(ctx, stream.Name(stream.DataPoint, row.id), eventstore.Revision(row.bodyAt))
	if err != nil {
		return f, 0, err
	}
	if accepted, is := e.(*datapoint.RevisionAccepted); ok && is {
		text += textSize(e)
		if f.sources, err = p.passages(ctx, row.id, row.point, accepted); err != nil {
			return f, 0, err
		}
	}
	if row.memoryRevision == 0 {
		return f, text, nil
	}
	if e, ok, err = p.texts.Event(ctx, stream.Name(stream.Memory, row.id), eventstore.Revision(row.memoryAt)); err != nil {
		return f, 0, err
	}
	if derived, is := e.(*memory.Derived); ok && is {
		text += textSize(e)
		f.memories, err = p.lines(ctx, row.id, row.point, derived)
	}
	return f, text, err
}

// fill writes documents of data points, some at a time.
func (p *Projector) fill(ctx context.Context, db *pgxpool.Pool, found []filling) error {
	for len(found) > 0 {
		var part []filling
		for n := 0; len(found) > 0 && n < refillDocuments; {
			f := &found[0]
			take := filling{keyed: f.keyed}
			take.sources, f.sources = split(f.sources, refillDocuments-n)
			n += len(take.sources)
			take.memories, f.memories = split(f.memories, refillDocuments-n)
			n += len(take.memories)
			part = append(part, take)
			if len(f.sources)+len(f.memories) > 0 {
				break
			}
			found = found[1:]
		}
		if err := p.fillPart(ctx, db, part); err != nil {
			return err
		}
	}
	return nil
}

func split(documents []Document, at int) (first, rest []Document) {
	at = min(max(at, 0), len(documents))
	return documents[:at], documents[at:]
}

// fillPart writes what the rows still say, while no page is at work.
func (p *Projector) fillPart(ctx context.Context, db *pgxpool.Pool, part []filling) error {
	return p.inRows(ctx, db, lockSchema, func(tx pgx.Tx) error {
		ids := make([]uuid.UUID, len(part))
		for i, f := range part {
			ids[i] = f.id
		}
		rows, err := tx.Query(ctx, selectPoints, ids)
		if err != nil {
			return err
		}
		now, err := pointsOf(rows)
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
				c = &Change{Project: row.project}
				changes[row.project] = c
			}
			// What a page brought since is there already.
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
