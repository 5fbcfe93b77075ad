package reads_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	projected "github.com/annals-project/annals/projections/reads"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var (
	organization = uuid.New()
	here         = auth.Project{ID: uuid.New(), Namespace: uuid.New()}
	there        = auth.Project{ID: uuid.New(), Namespace: uuid.New()}
	noon         = time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)
)

// fixture has the tables that the queries join, and a log.
type fixture struct {
	t   *testing.T
	db  *pgxpool.Pool
	log projectiontest.Log
	q   projected.Queries
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, db: pgtest.Database(t)}
	for _, p := range []projections.Projector{
		projected.New(), access.New(), directory.New(nil, stream.Namespaces{}, nil), datapoints.New(nil),
	} {
		projectiontest.Make(t, f.db, p)
	}
	f.q = projected.Queries{DB: f.db}
	return f
}

// shownTo makes the record of a recall.
func shownTo(of auth.Project, by, as string, at time.Time, sources ...string) reads.Record {
	r := reads.Record{
		ID: uuid.New(), At: at, Way: reads.Recall, By: by, As: stream.IdentityID(of.Namespace, as), Shown: []reads.Shown{},
	}
	for _, s := range sources {
		r.Shown = append(r.Shown, reads.Shown{Node: uuid.New(), DataPoint: stream.DataPointID(of.Namespace, s), Revision: 1})
	}
	return r
}

// batch appends records to the stream of the day of the first one.
func (f *fixture) batch(of auth.Project, records ...reads.Record) {
	f.t.Helper()
	rooted, recorded, err := reads.Batch(organization, of.ID, records)
	if err != nil {
		f.t.Fatal(err)
	}
	name := stream.ReadsName(of.ID, records[0].At.Format(time.DateOnly))
	f.log.Append(name, &rooted)
	f.log.Append(name, &recorded)
	f.log.Facts[len(f.log.Facts)-1].Data = make([]byte, 100*len(records)) // as if it was stored
}

func (f *fixture) apply() {
	f.t.Helper()
	projectiontest.Apply(f.t, f.db, projected.New(), f.log.Facts...)
}

// list lists the ids of the records that a filter selects, two at a time.
func (f *fixture) list(of auth.Project, filter projected.Filter) (ids []uuid.UUID) {
	f.t.Helper()
	for after := ""; ; {
		page, next, err := f.q.List(f.t.Context(), of, filter, after, 2)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, r := range page {
			ids = append(ids, r.ID)
		}
		if after = next; after == "" {
			return ids
		}
	}
}

func TestQueries_List(t *testing.T) {
	f := newFixture(t)
	key, ruth := "key:"+uuid.NewString(), "person:"+uuid.NewString()
	a := shownTo(here, key, "ana", noon, "one", "two", "one")
	b := shownTo(here, ruth, "ana", noon.Add(time.Minute), "two")
	c := shownTo(here, key, "ben", noon.Add(time.Minute))
	d := shownTo(here, key, "ana", noon.Add(time.Hour), "three")
	foreign := shownTo(there, key, "ana", noon, "one")
	f.batch(here, a, b)
	f.batch(there, foreign)
	f.batch(here, c, d, a) // a again: the answer to its append was lost
	f.apply()
	later := []uuid.UUID{b.ID, c.ID}
	if strings.Compare(b.ID.String(), c.ID.String()) < 0 {
		later = []uuid.UUID{c.ID, b.ID}
	}
	for name, c := range map[string]struct {
		filter projected.Filter
		want   []uuid.UUID
	}{
		"all, the newest first":           {projected.Filter{}, append([]uuid.UUID{d.ID}, append(later, a.ID)...)},
		"of a person":                     {projected.Filter{By: ruth}, []uuid.UUID{b.ID}},
		"of a person by id":               {projected.Filter{By: strings.TrimPrefix(ruth, "person:")}, []uuid.UUID{b.ID}},
		"as an identity":                  {projected.Filter{Identity: "ben"}, []uuid.UUID{c.ID}},
		"of a text":                       {projected.Filter{DataPoint: "two"}, []uuid.UUID{b.ID, a.ID}},
		"of a text, as, by, in a time":    {projected.Filter{DataPoint: "one", Identity: "ana", By: key, From: noon, To: noon.Add(time.Second)}, []uuid.UUID{a.ID}},
		"from a time":                     {projected.Filter{From: noon.Add(time.Hour)}, []uuid.UUID{d.ID}},
		"before a time":                   {projected.Filter{To: noon.Add(time.Minute)}, []uuid.UUID{a.ID}},
		"of a text that nobody was shown": {projected.Filter{DataPoint: "four"}, nil},
	} {
		if diff := cmp.Diff(c.want, f.list(here, c.filter)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if _, _, err := f.q.List(t.Context(), here, projected.Filter{}, "nowhere", 2); !errors.Is(err, projected.ErrCursor) {
		t.Errorf("a cursor that no list has: %v", err)
	}
	texts, ok, err := f.q.Texts(t.Context(), here, a.ID, 0)
	if err != nil || !ok || len(texts) != 2 || texts[0].DataPoint != stream.DataPointID(here.Namespace, "one") {
		t.Errorf("texts %v, %v, %v", texts, ok, err)
	}
	if _, ok, err := f.q.Texts(t.Context(), there, a.ID, 0); ok || err != nil {
		t.Errorf("the read of another project: %v, %v", ok, err)
	}
	cost, err := f.q.Cost(t.Context(), here.ID)
	if err != nil || cost.Reads != 4 || cost.Bytes != 400 || !cost.Since.Equal(noon) {
		t.Errorf("cost %+v, %v", cost, err)
	}
}

// A day whose records leave the log is not shown from then on, and its rows are removed in slices.
func TestProjector_EndOfADay(t *testing.T) {
	f := newFixture(t)
	var sources []string
	for n := range 30 {
		sources = append(sources, fmt.Sprint("source ", n))
	}
	for range 12 {
		f.batch(here, shownTo(here, "key:1", "ana", noon, sources...), shownTo(here, "key:1", "ana", noon, sources...))
	}
	left := shownTo(here, "key:1", "ana", noon.AddDate(0, 0, 1), sources[0])
	f.batch(here, left)
	name := stream.ReadsName(here.ID, "2026-11-05")
	f.log.Append(stream.RecordsName(name), &audit.RecordsKept{
		OrganizationID: organization, ProjectID: here.ID, Stream: name,
	})
	f.apply()
	if got := f.list(here, projected.Filter{}); len(got) != 1 || got[0] != left.ID {
		t.Errorf("%d records are shown", len(got))
	}
	f.slices()
	rows := f.rows()
	if rows != "1 days, 1 records, 1 shown" {
		t.Error(rows)
	}
	// A log without the streams that have ended gives the same rows.
	kept := f.log.Facts[len(f.log.Facts)-3:]
	other := newFixture(t)
	projectiontest.Apply(t, other.db, projected.New(), kept...)
	other.slices()
	if got := other.rows(); got != rows {
		t.Errorf("a replay without the day has %s", got)
	}
}

func (f *fixture) rows() string {
	f.t.Helper()
	var days, records, shown int
	err := f.db.QueryRow(f.t.Context(), `select (select count(*) from reads.days), (select count(*) from reads.records),
		(select count(*) from reads.shown)`).Scan(&days, &records, &shown)
	if err != nil {
		f.t.Fatal(err)
	}
	return fmt.Sprintf("%d days, %d records, %d shown", days, records, shown)
}

// slices does all follow-ups.
func (f *fixture) slices() {
	f.t.Helper()
	for range 100 {
		found := true
		err := pgx.BeginFunc(f.t.Context(), f.db, func(tx pgx.Tx) (err error) {
			if _, err = tx.Exec(f.t.Context(), `set local search_path = reads`); err == nil {
				_, found, _, err = projections.DoSlice(f.t.Context(), tx, projected.New(), uuid.Nil)
			}
			return err
		})
		if err != nil {
			f.t.Fatal(err)
		}
		if !found {
			return
		}
	}
	f.t.Fatal("the follow-ups do not end")
}

// The days whose time is over are those of the setting of each project.
func TestQueries_EndedReads(t *testing.T) {
	f := newFixture(t)
	for n, p := range []auth.Project{here, there} {
		f.batch(p, shownTo(p, "key:1", "ana", noon, "one"))
		f.batch(p, shownTo(p, "key:1", "ana", noon.AddDate(0, 0, 1), "one"))
		f.log.Append(stream.Registry, &registry.ProjectCreated{
			ProjectID: p.ID, OrganizationID: organization, Number: int64(n + 1), Slug: fmt.Sprint(n), Namespace: uuid.New(), CreatedAt: noon,
		})
	}
	f.log.Append(stream.Name(stream.Project, here.ID),
		&project.ReadsSet{ProjectID: here.ID, Mode: project.ReadsKept, Days: 30, SetAt: noon})
	f.apply()
	projectiontest.Apply(t, f.db, access.New(), accessFacts(f.log.Facts)...)
	ended := func(days int) (list []work.ReadsDay) {
		list, err := f.q.EndedReads(t.Context(), noon.AddDate(0, 0, days), 10)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	of := func(p auth.Project, day string) work.ReadsDay {
		return work.ReadsDay{ProjectID: p.ID, OrganizationID: organization, Day: day}
	}
	first, second := of(here, "2026-11-05"), of(here, "2026-11-06")
	for days, want := range map[int][]work.ReadsDay{
		30: {}, 31: {first}, 32: {first, second}, 365: {first, second},
	} {
		if diff := cmp.Diff(want, ended(days)); diff != "" {
			t.Errorf("after %d days (-want +got):\n%s", days, diff)
		}
	}
	if got := ended(366); len(got) != 3 || got[2] != second {
		t.Errorf("after a year and a day %v", got)
	}
}

func accessFacts(facts []eventstore.DecodedEvent) (list []eventstore.DecodedEvent) {
	for _, e := range facts {
		if c := stream.Category(e.Stream); c == stream.Registry || c == stream.Project {
			list = append(list, e)
		}
	}
	return list
}
