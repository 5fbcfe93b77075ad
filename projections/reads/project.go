// Package reads projects the read records of the log: who was shown which texts of a project, as which identity and
// when. Its rows end with the records.
package reads

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/table"
)

// Name is the projection's name: its schema, its topic, and the name that callers wait for.
const Name = projection.Reads

//go:embed schema.sql
var schema string

// Projector builds schema reads.
type Projector struct{ projections.Base }

// New makes the projector. Pages are large, since nobody waits for these rows.
func New() Projector {
	return Projector{projections.NewBase(projections.Description{
		Name: Name, Version: 2, Categories: []string{stream.Reads, stream.Records},
		Schema: schema + projections.FollowUpTable, Pace: projections.Pace{Min: time.Second, Max: 2 * time.Second},
		Counted: []string{"days", "records", "shown"},
	})}
}

// dayRow is a row of table days.
type dayRow struct {
	Project      uuid.UUID `db:"project_id"`
	Day          string    `db:"day"`
	Organization uuid.UUID `db:"organization_id,once"`
}

// recordRow is a row of table records.
type recordRow struct {
	ID         uuid.UUID  `db:"id"`
	Part       int        `db:"part"`
	Project    uuid.UUID  `db:"project_id,once"`
	Day        string     `db:"day,once"`
	Revision   int64      `db:"revision,once"`
	At         time.Time  `db:"at,once"`
	Way        string     `db:"way,once"`
	Principal  string     `db:"principal,once"`
	Identity   *uuid.UUID `db:"identity,once"`
	Call       *uuid.UUID `db:"call,once"`
	Texts      int        `db:"texts,once"`
	Bytes      int        `db:"bytes"`
	DataPoints []byte     `db:"data_points,once"`
}

// shownRow is a row of table shown.
type shownRow struct {
	DataPoint uuid.UUID `db:"data_point"`
	At        time.Time `db:"at"`
	ID        uuid.UUID `db:"id"`
	Part      int       `db:"part"`
}

var (
	dayRows    = table.New[dayRow](Name, schema, "days")
	recordRows = table.New[recordRow](Name, schema, "records")
	shownRows  = table.New[shownRow](Name, schema, "shown")
)

// dayKey names a day of a project.
type dayKey struct {
	project uuid.UUID
	day     string
}

// fold holds the rows that a page of events writes, and the days that it ends.
type fold struct {
	days    map[dayKey]*dayRow
	records []*recordRow
	shown   []*shownRow
	ended   map[dayKey]eventstore.Position
}

// Apply folds a page of events, then writes one statement per table. A record that is in the log twice has one row.
func (Projector) Apply(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) error {
	f := &fold{days: map[dayKey]*dayRow{}, ended: map[dayKey]eventstore.Position{}}
	if err := projections.Each(events, f.apply); err != nil {
		return err
	}
	// Rows next to each other in the index are cheaper.
	slices.SortFunc(f.shown, func(a, b *shownRow) int { return bytes.Compare(a.DataPoint[:], b.DataPoint[:]) })
	b := &pgx.Batch{}
	dayRows.Insert(b, table.Filter(f.days, func(*dayRow) bool { return true }))
	recordRows.Insert(b, f.records)
	shownRows.Insert(b, f.shown)
	f.end(b)
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return fmt.Errorf("write rows of a page: %w", err)
	}
	return nil
}

func (f *fold) apply(decoded eventstore.DecodedEvent) error {
	switch e := decoded.Event.(type) {
	case *reads.Recorded:
		day := stream.ReadsDay(decoded.Stream)
		key := dayKey{e.ProjectID, day}
		f.days[key] = &dayRow{e.ProjectID, day, e.OrganizationID}
		for _, r := range e.Records {
			f.record(&recordRow{
				Project: e.ProjectID, Day: day, Revision: int64(decoded.Revision), Bytes: len(decoded.Data) / len(e.Records),
			}, r)
		}
	case *audit.RecordsKept:
		if stream.Category(e.Stream) == stream.Reads {
			key := dayKey{stream.Owner(e.Stream), stream.ReadsDay(e.Stream)}
			delete(f.days, key)
			f.ended[key] = decoded.Position
		}
	}
	return nil
}

// record adds the rows of a record, of which row has where it is and about how many bytes it takes.
func (f *fold) record(row *recordRow, r reads.Record) {
	at := pgarray.Instant(r.At)
	row.ID, row.Part, row.At, row.Way, row.Principal = r.ID, r.Part, at, string(r.Way), r.By
	row.Identity, row.Call, row.Texts, row.DataPoints = orNull(r.As), orNull(r.Call), len(r.Shown), []byte{}
	seen := map[uuid.UUID]bool{uuid.Nil: true}
	for _, s := range r.Shown {
		if !seen[s.DataPoint] {
			seen[s.DataPoint] = true
			row.DataPoints = append(row.DataPoints, s.DataPoint[:]...)
			f.shown = append(f.shown, &shownRow{s.DataPoint, at, r.ID, r.Part})
		}
	}
	f.records = append(f.records, row)
}

func orNull(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

// expire is the follow-up that removes the rows of a day.
const expire = "expire"

// end removes the days whose records leave the log.
func (f *fold) end(b *pgx.Batch) {
	var works []projections.FollowUp
	for key, position := range f.ended {
		b.Queue(`delete from days where project_id = $1 and day = $2`, key.project, key.day)
		works = append(works, projections.FollowUp{
			Kind: expire, Key: uuid.NewSHA1(key.project, []byte(key.day)), Project: key.project, Position: position,
			Data: key.day,
		})
	}
	projections.QueueFollowUps(b, Name, works)
}

// sliceRecords is the most records of which a slice removes the rows.
const sliceRecords = 100

// Slice implements projections.Following.
func (Projector) Slice(
	ctx context.Context, tx pgx.Tx, work projections.FollowUp,
) (cursor string, done bool, err error) {
	if work.Kind != expire {
		return "", false, fmt.Errorf("no rule for follow-up %s", work.Kind)
	}
	// A record is of the day on which it was appended, or of the end of the day before.
	rows, err := tx.Query(ctx, `select id, part, at, data_points from records
		where project_id = $1 and day = $2 and at >= $2::timestamp at time zone 'UTC' - interval '2 days'
			and at < $2::timestamp at time zone 'UTC' + interval '2 days'
		order by at, id, part limit $3`, work.Project, work.Data, sliceRecords)
	if err != nil {
		return "", false, fmt.Errorf("find the records of a day: %w", err)
	}
	ids, parts, shown := []uuid.UUID{}, []int32{}, []*shownRow{}
	var r recordRow
	var found int
	_, err = pgx.ForEachRow(rows, []any{&r.ID, &r.Part, &r.At, &r.DataPoints}, func() error {
		found++
		if len(shown) > projections.SliceRows {
			return nil
		}
		ids, parts = append(ids, r.ID), append(parts, int32(r.Part))
		for points := r.DataPoints; len(points) > 0; points = points[16:] {
			shown = append(shown, &shownRow{uuid.UUID(points[:16]), r.At, r.ID, r.Part})
		}
		return nil
	})
	if err != nil {
		return "", false, fmt.Errorf("find the records of a day: %w", err)
	}
	b := &pgx.Batch{}
	b.Queue(`delete from records r using unnest($1::uuid[], $2::int[]) k (id, part) where r.id = k.id and r.part = k.part`,
		ids, parts)
	b.Queue(`delete from shown s using unnest($1::uuid[], $2::timestamptz[], $3::uuid[], $4::int[]) k (data_point, at, id, part)
		where s.data_point = k.data_point and s.at = k.at and s.id = k.id and s.part = k.part`,
		pgarray.IDs(shown, func(r *shownRow) uuid.UUID { return r.DataPoint }),
		pgarray.Column(shown, func(r *shownRow) time.Time { return r.At }),
		pgarray.IDs(shown, func(r *shownRow) uuid.UUID { return r.ID }),
		pgarray.Column(shown, func(r *shownRow) int32 { return int32(r.Part) }))
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return "", false, fmt.Errorf("remove the records of a day: %w", err)
	}
	return "", found == len(ids) && found < sliceRecords, nil
}
