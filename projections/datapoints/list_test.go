package datapoints_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
)

// sent is what a test of lists stores of a data point.
type sent struct {
	source, label, author string
	audience              uuid.UUID
	occurred              time.Time
}

// newListFixture makes the tables of lists, with one audience, and one record that has one of its own.
func newListFixture(t *testing.T) *fixture {
	t.Helper()
	w := newFixture(t)
	projectiontest.Make(t, w.Queries.DB, directory.New(nil, stream.Namespaces{}, nil))
	exec(t, w.Queries.DB, `insert into directory.audiences (id, project_id, slug, name, kind,
			created_at, recomputed_at, put_at, member_count, outdated, recounting, recounted_to, recounted, position)
		values ($1, $2, 'team', 'Team', 'fixed', now(), now(), now(), 0, false, false, $3, 0, 1)`,
		id("team"), project.ID, uuid.Nil)
	exec(t, w.Queries.DB, `insert into directory.identities (id, project_id, identity, traits, marks,
			broad, origin, created_at, updated_at, private, born)
		values ($1, $2, 'ana', '{}', '', false, 'api', now(), now(), $3, 1)`,
		id("record of ana"), project.ID, id("ana alone"))
	return w
}

// store stores a revision of a data point.
func (w *fixture) store(in sent) {
	state := w.states[in.source]
	state.SourceID, state.OccurredAt, state.Audience = in.source, in.occurred, in.audience
	state.Revision, state.LastNumber, state.IngestionID = state.LastNumber+1, state.LastNumber+1, id("send of "+in.source)
	if in.label != "" {
		state.Label = &in.label
	}
	w.states[in.source] = state
	w.last = w.Append(stream.Name(stream.DataPoint, id(in.source)), &datapoint.RevisionAccepted{
		Send:   w.send(fmt.Sprintf("%s %d", in.source, state.Revision), alone),
		States: datapoint.States{Effect: state}, Author: in.author,
		Body: datapoint.Body{Content: datapoint.Text{Inline: "content of\n " + in.source}},
	})
}

func (w *fixture) list(q datapoints.ListQuery) datapoints.List {
	w.t.Helper()
	list, err := w.Queries.List(w.t.Context(), project.ID, q)
	runtest.Must(w.t, err)
	return list
}

func sources(points []datapoints.Listed) string {
	ids := make([]string, len(points))
	for n, p := range points {
		ids[n] = p.SourceID
	}
	return strings.Join(ids, " ")
}

func TestList_Filters(t *testing.T) {
	t.Parallel()
	w := newListFixture(t)
	w.store(sent{source: "a/1", label: "Ärger im Büro", author: "ana", occurred: at(1)})
	w.store(sent{source: "a/2", label: "old", author: "ben", audience: id("team"), occurred: at(2)})
	w.store(sent{source: "a/2", label: "50% off", author: "ana", audience: id("team"), occurred: at(3)})
	w.store(sent{source: "b_1", label: strings.Repeat("long ", 30), audience: id("removed"), occurred: at(3)})
	w.store(sent{source: strings.Repeat("c", 120), occurred: at(5)})
	w.store(sent{source: "gone", label: "old", author: "ana", occurred: at(5)})
	w.deleted("deletion", "gone", true)
	own := w.project
	w.project = neighbour.ID
	w.store(sent{source: "a/foreign", label: "old", author: "ana", occurred: at(5)})
	w.project = own
	w.apply()
	for name, c := range map[string]struct {
		filter datapoints.Filter
		want   string
	}{
		"all":                  {datapoints.Filter{}, strings.Repeat("c", 120) + " b_1 a/2 a/1"},
		"from":                 {datapoints.Filter{From: at(3), To: at(5)}, "b_1 a/2"},
		"to is exclusive":      {datapoints.Filter{To: at(3)}, "a/1"},
		"author of the newest": {datapoints.Filter{Author: "ana"}, "a/2 a/1"},
		"earlier author":       {datapoints.Filter{Author: "ben"}, ""},
		"audience":             {datapoints.Filter{Audience: "team"}, "a/2"},
		"project-visible":      {datapoints.Filter{Audience: audience.Default}, strings.Repeat("c", 120) + " a/1"},
		"unknown audience":     {datapoints.Filter{Audience: "none"}, ""},
		"label in other case":  {datapoints.Filter{Label: "äRG"}, "a/1"},
		"label with wildcard":  {datapoints.Filter{Label: "50%"}, "a/2"},
		"label not a pattern":  {datapoints.Filter{Label: "5%"}, ""},
		"earlier label":        {datapoints.Filter{Label: "old"}, ""},
		"long label":           {datapoints.Filter{Label: strings.Repeat("LONG ", 29)}, "b_1"},
		"id":                   {datapoints.Filter{ID: "a/"}, "a/2 a/1"},
		"id with wildcard":     {datapoints.Filter{ID: "b_"}, "b_1"},
		"long id":              {datapoints.Filter{ID: strings.Repeat("c", 119)}, strings.Repeat("c", 120)},
		"too long id":          {datapoints.Filter{ID: strings.Repeat("c", 119) + "d"}, ""},
		"together":             {datapoints.Filter{ID: "a/", Author: "ana", To: at(3), Audience: audience.Default}, "a/1"},
	} {
		list := w.list(datapoints.ListQuery{Filter: c.filter, Limit: 10})
		got := sources(list.Points)
		if got != c.want || list.Total != int64(len(list.Points)) || list.Newer || list.Older {
			t.Errorf("%s: %q, %+v, want %q", name, got, list, c.want)
		}
	}
	p := w.list(datapoints.ListQuery{Filter: datapoints.Filter{Audience: "team"}}).Points[0]
	if *p.Label != "50% off" || p.Author != "ana" || p.Audience != "team" || p.Revision != 2 || !p.OccurredAt.Equal(at(3)) ||
		p.Excerpt != "content of a/2" || p.ID != id("a/2") {
		t.Errorf("%+v", p)
	}
	if p := w.list(datapoints.ListQuery{Filter: datapoints.Filter{ID: "b_1"}}).Points[0]; p.Audience != "" {
		t.Errorf("a removed audience is named %q", p.Audience)
	}
}

// What is private names the one who may read it.
func TestList_Private(t *testing.T) {
	t.Parallel()
	w := newListFixture(t)
	w.store(sent{source: "own", author: "ben", audience: id("ana alone"), occurred: at(1)})
	w.store(sent{source: "removed", author: "ana", audience: id("removed"), occurred: at(2)})
	w.store(sent{source: "all", author: "ana", occurred: at(3)})
	w.apply()
	list := w.list(datapoints.ListQuery{Limit: 10})
	var readers []string
	for _, p := range list.Points {
		readers = append(readers, fmt.Sprintf("%s:%s:%s", p.SourceID, p.Audience, p.PrivateTo))
	}
	if got := strings.Join(readers, " "); got != "all:project: removed:: own::ana" {
		t.Errorf("readers %s", got)
	}
	filter := datapoints.Filter{AudienceID: id("ana alone")}
	if list := w.list(datapoints.ListQuery{Filter: filter, Limit: 10}); sources(list.Points) != "own" || list.Total != 1 {
		t.Errorf("%+v", list)
	}
	stored, ok, err := w.Queries.Stored(t.Context(), project.ID, id("own"))
	if err != nil || !ok || stored.PrivateTo != "ana" || stored.Audience != "" {
		t.Errorf("%+v, %t, %v", stored, ok, err)
	}
}

// Both directions list the same pages, also where times are equal, and a filter holds on each.
func TestList_PagesInBothDirections(t *testing.T) {
	t.Parallel()
	w := newListFixture(t)
	for n := range 23 {
		w.store(sent{source: fmt.Sprint(n), author: []string{"ana", "ben"}[n%2], occurred: at(n / 4)})
	}
	w.apply()
	for _, filter := range []datapoints.Filter{{}, {Author: "ben"}} {
		var forward, back []string
		var pages []datapoints.List
		for query := (datapoints.ListQuery{Filter: filter, Limit: 4}); ; {
			list := w.list(query)
			pages, forward = append(pages, list), append(forward, sources(list.Points))
			if list.Newer != (len(pages) > 1) {
				t.Errorf("page %d: newer %v", len(pages), list.Newer)
			}
			if !list.Older {
				break
			}
			query.After = &list.Points[len(list.Points)-1].Place
		}
		last := pages[len(pages)-1]
		back = []string{sources(last.Points)}
		for before := last.Points[0].Place; ; {
			list := w.list(datapoints.ListQuery{Filter: filter, Before: &before, Limit: 4})
			back = append(back, sources(list.Points))
			if !list.Older {
				t.Error("a page before another one has nothing older")
			}
			if !list.Newer {
				break
			}
			before = list.Points[0].Place
		}
		slices.Reverse(back)
		if a, b := strings.Join(forward, " "), strings.Join(back, " "); a != b {
			t.Errorf("forward %s\nback    %s", a, b)
		}
		if n := len(strings.Fields(strings.Join(forward, " "))); int64(n) != last.Total {
			t.Errorf("%d data points, total %d", n, last.Total)
		}
	}
}

// A search looks at some data points at once: the pages go on from there, and empty ones too.
func TestList_SearchGoesOn(t *testing.T) {
	t.Parallel()
	w := newListFixture(t)
	w.Queries.Searched = 3
	var want []string
	for n := range 20 {
		label := "other"
		if n%7 < 2 {
			label = "Wanted"
			want = append([]string{fmt.Sprint("a", n)}, want...)
		}
		w.store(sent{source: fmt.Sprint("a", n), label: label, occurred: at(n)})
	}
	w.apply()
	filter := datapoints.Filter{Label: "wan", ID: "a"}
	walk := func(q datapoints.ListQuery, back bool) (found []string, last datapoints.List) {
		q.Filter, q.Limit = filter, 2
		for range 20 {
			last = w.list(q)
			part := strings.Fields(sources(last.Points))
			if len(part) > 2 || !last.AtLeast {
				t.Errorf("%d data points, at least: %v", len(part), last.AtLeast)
			}
			if back {
				if found = append(part, found...); !last.Newer {
					return found, last
				}
				q.Before, q.After = &last.First, nil
				continue
			}
			if found = append(found, part...); !last.Older {
				return found, last
			}
			q.After = &last.Last
		}
		t.Fatal("the walk does not end")
		return nil, last
	}
	forward, last := walk(datapoints.ListQuery{}, false)
	back, _ := walk(datapoints.ListQuery{Before: &last.First}, true)
	back = append(back, strings.Fields(sources(last.Points))...)
	if !slices.Equal(forward, want) || !slices.Equal(back, want) {
		t.Errorf("forward %v\nback    %v\nwant    %v", forward, back, want)
	}
	if w.Queries.Searched = 0; w.list(datapoints.ListQuery{Filter: filter, Limit: 9}).AtLeast {
		t.Error("a search that looked at all counts at least")
	}
}

// fillPoints stores many data points: of a hundred authors, a third in the audience, with labels and ids that sort.
func fillPoints(tb testing.TB, w *fixture, count int) {
	tb.Helper()
	for _, sql := range []string{
		`insert into datapoints.data_points (id, project_id, source_id, revision, captured, audience, occurred_at, ingestion_id,
				accepted_at, position, author, label_key, size, metadata_size, traits, stems, exact, outline, conversation)
			select md5(n::text)::uuid, $1::uuid, 'mail/' || n, 1, 1, case when n % 3 = 0 then $2::uuid else $3::uuid end,
				$4::timestamptz + make_interval(secs => n), md5(n::text)::uuid, $4::timestamptz, n, 'author ' || n % 100, 'subject ' || n % 1000,
				1, 0, 0, 0, 0, 0, 0
			from generate_series(1, $5::int) n`,
		`insert into datapoints.revisions (data_point, number, project_id, node_id, historic, content, occurred_at,
				ingestion_id, accepted_at, audience, label, author)
			select id, 1, project_id, id, false, convert_to(repeat('word ', 60), 'UTF8'), occurred_at, ingestion_id, accepted_at,
				audience, label_key, author
			from datapoints.data_points where project_id = $1 and $2::uuid <> $3::uuid and $4::timestamptz is not null and $5::int > 0`,
	} {
		exec(tb, w.Queries.DB, sql, project.ID, id("team"), uuid.Nil, noon, count)
	}
}

// BenchmarkList lists pages of filters from anywhere in 100,000 data points.
func BenchmarkList(b *testing.B) {
	w := &fixture{Queries: datapoints.Queries{DB: pgtest.Database(b)}}
	projectiontest.Make(b, w.Queries.DB, datapoints.New(nil))
	projectiontest.Make(b, w.Queries.DB, directory.New(nil, stream.Namespaces{}, nil))
	fillPoints(b, w, 100_000)
	exec(b, w.Queries.DB, "vacuum analyze datapoints.data_points, datapoints.revisions")
	random := rand.New(rand.NewPCG(1, 2))
	for name, f := range map[string]datapoints.Filter{
		"all": {}, "author": {Author: "author 7"}, "audience": {Audience: audience.Default}, "label": {Label: "subject 99"},
		"all labels": {Label: "subject"}, "id": {ID: "mail/77"}, "all ids": {ID: "mail/"}, "nothing": {Author: "nobody"},
		"hour": {From: noon.Add(time.Hour), To: noon.Add(2 * time.Hour)},
		"both": {Author: "author 7", Label: "subject 8"}, "author and audience": {Author: "author 7", Audience: audience.Default},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				q := datapoints.ListQuery{Filter: f, Limit: 50}
				q.After = &datapoints.Place{OccurredAt: noon.Add(time.Duration(random.IntN(100_000)) * time.Second)}
				_, err := w.Queries.List(b.Context(), project.ID, q)
				runtest.Must(b, err)
			}
		})
	}
}
