package directory

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections/table"
)

// The past of a record is what its own stream holds, in the order of the stream: a rebuild no longer has the stage of a
// bulk write. So the row of a bulk write is valid from its acceptance, or from a write of the same record that came
// between the acceptance and the row. Times never decrease: an event of a late clock is as old as the one before.

// pastTraits is a row of table past_traits.
type pastTraits struct {
	lastPast
	Traits string `db:"traits"`
}

// lastPast is the part of it that a page loads.
type lastPast struct {
	Identity uuid.UUID `db:"identity_id"`
	From     time.Time `db:"from_at"`
	Marks    []byte    `db:"marks"`
}

// pastAudience is a row of table past_audiences.
type pastAudience struct {
	lastDefinition
	Project uuid.UUID `db:"project_id"`
	Rule    *string   `db:"rule"`
}

// lastDefinition is the part of it that a page loads.
type lastDefinition struct {
	Audience uuid.UUID           `db:"audience_id"`
	Position eventstore.Position `db:"position"`
	From     time.Time           `db:"from_at"`
	Slug     string              `db:"slug"`
	Kind     string              `db:"kind"`
	List     eventstore.Position `db:"list"`
	Sum      []byte              `db:"sum"`
}

// pastList is a row of table past_lists.
type pastList struct {
	Audience uuid.UUID           `db:"audience_id"`
	Position eventstore.Position `db:"position"`
	Members  []byte              `db:"members"`
}

// kindRemoved is the kind of the definition that ends an audience.
const kindRemoved = "removed"

var (
	pastRecords   = table.New[pastTraits](Name, schema, "past_traits")
	lastTraits    = table.NewPart[lastPast](Name, schema, "past_traits")
	pastAudiences = table.New[pastAudience](Name, schema, "past_audiences")
	definitions   = table.NewPart[lastDefinition](Name, schema, "past_audiences")
	pastLists     = table.New[pastList](Name, schema, "past_lists")

	newestPastTraits = lastTraits.Select(`unnest($1::uuid[]) as t (id) cross join lateral (select * from past_traits
		where identity_id = t.id order by from_at desc limit 1) newest`)
	newestDefinitions = definitions.Select(`unnest($1::uuid[]) as t (id) cross join lateral (select * from past_audiences
		where audience_id = t.id order by position desc limit 1) newest`)
)

const forgetTraits = `delete from past_traits where identity_id = any($1::uuid[])`

// pastState is the past of a record as a page changes it.
type pastState struct {
	// last is the newest row, nil for none.
	last *lastPast
	// steps are what the events of the page wrote, forgotten is set if one of them erased what was before these.
	steps     []pastStep
	forgotten bool
	rows      []*pastTraits // what the steps add
}

// pastStep is what an event writes: traits from a time on. A first one is left out if there is a record.
type pastStep struct {
	from   time.Time
	traits *traits
	first  bool
}

func (p *pastState) appeared(at time.Time) {
	p.steps = append(p.steps, pastStep{from: at, traits: new(newTraits(nil)), first: true})
}

func (p *pastState) wrote(r *record) {
	p.steps = append(p.steps, pastStep{from: r.updatedAt, traits: &r.traits})
}

func (p *pastState) erased() { *p = pastState{forgotten: true} }

func (f *fold) pastLoaded(row *lastPast) {
	if x := f.identities[row.Identity]; x != nil {
		row.From = pgarray.Instant(row.From)
		x.past.last = row
	}
}

// encodePast makes the rows of the past of a record.
func (f *fold) encodePast(ctx context.Context, x *identityState) error {
	p := &x.past
	for _, step := range p.steps {
		if step.first && p.last != nil {
			continue
		}
		if err := f.encodeTraits(ctx, x.Project, step.traits); err != nil {
			return err
		}
		row := &pastTraits{lastPast{x.ID, step.from, step.traits.traitKeys}, step.traits.text}
		if p.last != nil {
			if bytes.Equal(p.last.Marks, row.Marks) {
				continue
			}
			row.From = later(row.From, p.last.From)
		}
		if n := len(p.rows); n > 0 && p.rows[n-1].From.Equal(row.From) {
			p.rows = p.rows[:n-1]
		}
		p.rows, p.last = append(p.rows, row), &row.lastPast
	}
	return nil
}

// defined records a definition, unless it is a rule that did not change. A list that is put again may reach a record
// that was created since.
func (f *fold) defined(at eventstore.Position, e *audience.Put, rule *string, listed []uuid.UUID) {
	last := f.definitions[e.AudienceID]
	if last != nil && at <= last.Position {
		return
	}
	row := &pastAudience{lastDefinition{
		Audience: e.AudienceID, Position: at, From: pgarray.Instant(e.PutAt), Slug: e.Slug, Kind: string(e.Kind),
	}, e.ProjectID, rule}
	list := make([]byte, 0, 16*len(listed)) // never nil: the column has no null
	if rule == nil {
		listed = slices.Clone(listed)
		slices.SortFunc(listed, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
		for _, id := range listed {
			list = append(list, id[:]...)
		}
		row.Sum = sumOf(row.Kind, list)
	} else {
		row.Sum = sumOf(row.Kind, []byte(*rule))
	}
	same := last != nil && last.Kind == row.Kind && bytes.Equal(last.Sum, row.Sum)
	switch {
	case same && rule != nil:
		return
	case same:
		row.List = last.List
	case rule == nil:
		row.List = at
		f.newLists = append(f.newLists, &pastList{row.Audience, at, list})
	}
	f.define(row, last)
}

// undefined records the removal of an audience.
func (f *fold) undefined(at eventstore.Position, e *audience.Removed) {
	last := f.definitions[e.AudienceID]
	if last == nil || at <= last.Position || last.Kind == kindRemoved {
		return
	}
	f.define(&pastAudience{lastDefinition{
		Audience: e.AudienceID, Position: at, From: pgarray.Instant(e.RemovedAt), Slug: last.Slug, Kind: kindRemoved,
		Sum: []byte{},
	}, e.ProjectID, nil}, last)
}

func (f *fold) define(row *pastAudience, last *lastDefinition) {
	if last != nil {
		row.From = later(row.From, pgarray.Instant(last.From))
	}
	f.definitions[row.Audience] = &row.lastDefinition
	f.newDefinitions = append(f.newDefinitions, row)
}

func sumOf(kind string, definition []byte) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s", kind, definition))
	return sum[:]
}

// savePast writes the rows of the past.
func (f *fold) savePast(b *pgx.Batch) {
	var forgotten []uuid.UUID
	var rows []*pastTraits
	for _, x := range f.identities {
		if x.past.forgotten {
			forgotten = append(forgotten, x.ID)
		}
		rows = append(rows, x.past.rows...)
	}
	if len(forgotten) > 0 {
		b.Queue(forgetTraits, forgotten)
	}
	pastRecords.Save(b, rows)
	pastLists.Insert(b, f.newLists)
	pastAudiences.Insert(b, f.newDefinitions)
}
