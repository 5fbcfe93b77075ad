package indextest

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/recall"
	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
	"github.com/annals-project/annals/projections/recallindex"
)

func unknownProject(t *testing.T, open Open) {
	x, project := opened(t, open), uuid.New()
	found := search(t, x, query(project, "helix"))
	equal(t, "hits", len(found.Hits), 0)
	equal(t, "statistics", found.Statistics, recall.Statistics{Frequencies: []recall.Count{{}}})
	apply(t, x, project, recallindex.Change{Deletes: []recallindex.Scope{sources(uuid.New(), 1)}})
	if err := x.DropProject(t.Context(), project); err != nil {
		t.Fatal(err)
	}
	if n, err := x.Count(t.Context(), project); n != 0 || err != nil {
		t.Fatalf("%d documents, %v", n, err)
	}
}

func counts(t *testing.T, open Open) {
	x, project, a, b := opened(t, open), uuid.New(), uuid.New(), uuid.New()
	apply(t, x, project, recallindex.Change{Upserts: []recallindex.Document{
		passage(a, 1, 0, "ana move launch ana june", "ana launch"),
		passage(a, 1, 1, "helix", "ana launch"),
		passage(b, 7, 0, "deploy friday", ""),
	}})
	found := search(t, x, query(project, "ana helix never"))
	want := sorted(recallindex.Result{
		Statistics: recall.Statistics{Docs: 3, Frequencies: []recall.Count{{Text: 1, Label: 2}, {Text: 1}, {}}},
		Hits: []recallindex.Hit{
			{Key: recallindex.Key{DataPoint: a, Revision: 1, N: 0}, Counts: []recall.Count{{Text: 2, Label: 1}, {}, {}}, Length: 5},
			{Key: recallindex.Key{DataPoint: a, Revision: 1, N: 1}, Counts: []recall.Count{{Label: 1}, {Text: 1}, {}}, Length: 1},
		},
	})
	equal(t, "found", found, want)
	equal(t, "without terms", len(search(t, x, query(project, "")).Hits), 0)
	if n, err := x.Count(t.Context(), project); n != 3 || err != nil {
		t.Fatalf("%d documents, %v", n, err)
	}
}

// shares: a term weighs its share, so that of two documents the one with the query's own word
// is kept; traits are returned as given.
func shares(t *testing.T, open Open) {
	x, project, very, other := opened(t, open), uuid.New(), uuid.New(), uuid.New()
	first, second := passage(very, 1, 0, "helix and more words", ""), passage(other, 1, 0, "vim", "")
	first.Terms.Traits, second.Terms.Traits = recall.IsQuestion|recall.SecondPerson, 0
	apply(t, x, project, recallindex.Change{Upserts: []recallindex.Document{first, second}})
	q := query(project, "helix vim")
	q.Terms[1].Kind, q.Terms[1].For, q.Terms[1].Share = recall.Spelling, 0, 0.4
	traits := map[uuid.UUID]recall.Traits{}
	for _, h := range search(t, x, q).Hits {
		traits[h.DataPoint] = h.Traits
	}
	equal(t, "traits", traits, map[uuid.UUID]recall.Traits{very: first.Terms.Traits, other: 0})
	q.Sources = 1
	equal(t, "the very word first", keys(search(t, x, q)), []recallindex.Key{first.Key})
	q.Terms = recall.Wholes("helix", "vim")
	equal(t, "the shorter text first", keys(search(t, x, q)), []recallindex.Key{second.Key})
}

func replaceAndDelete(t *testing.T, open Open) {
	x, project, a := opened(t, open), uuid.New(), uuid.New()
	first := recallindex.Change{Upserts: []recallindex.Document{
		passage(a, 1, 0, "old word", ""),
		passage(a, 1, 1, "old end", ""),
	}}
	for range 2 {
		apply(t, x, project, first)
		equal(t, "first", search(t, x, query(project, "old")).Statistics,
			recall.Statistics{Docs: 2, Frequencies: []recall.Count{{Text: 2}}})
	}
	second := recallindex.Change{
		Upserts: []recallindex.Document{passage(a, 2, 0, "new word", "")},
		Deletes: []recallindex.Scope{sources(a, 1)},
	}
	for range 2 {
		apply(t, x, project, second)
		found := search(t, x, query(project, "old new word"))
		equal(t, "hits", keys(found), []recallindex.Key{{DataPoint: a, Revision: 2}})
		equal(t, "statistics", found.Statistics, recall.Statistics{Docs: 1, Frequencies: []recall.Count{
			{},
			{Text: 1},
			{Text: 1},
		}})
	}
	// A key that is deleted and upserted in one change is replaced.
	apply(t, x, project, recallindex.Change{
		Upserts: []recallindex.Document{passage(a, 2, 0, "newest", "")},
		Deletes: []recallindex.Scope{sources(a, 2)},
	})
	equal(t, "replaced", len(search(t, x, query(project, "newest")).Hits), 1)
	equal(t, "gone", len(search(t, x, query(project, "word")).Hits), 0)
}

func parts(t *testing.T, open Open) {
	x, project, a, m := opened(t, open), uuid.New(), uuid.New(), uuid.New()
	apply(t, x, project, recallindex.Change{Upserts: []recallindex.Document{
		passage(a, 1, 0, "ana like helix", ""), memoryOf(a, m, "ana editor helix helix"),
	}})
	q := query(project, "helix")
	want := recallindex.Found{
		Sources: recallindex.Result{
			Statistics: recall.Statistics{Docs: 1, Frequencies: []recall.Count{{Text: 1}}},
			Hits: []recallindex.Hit{{
				Key: recallindex.Key{DataPoint: a, Revision: 1}, Counts: []recall.Count{{Text: 1}},
				Length: 3,
			}},
		},
		Memories: recallindex.Result{
			Statistics: recall.Statistics{Docs: 1, Frequencies: []recall.Count{{Text: 1}}},
			Hits: []recallindex.Hit{{
				Key:    recallindex.Key{DataPoint: a, Revision: 1, Memory: m},
				Counts: []recall.Count{{Text: 2}}, Length: 4,
			}},
		},
	}
	equal(t, "both", searchBoth(t, x, q), want)
	one := q
	one.Memories = 0
	equal(t, "only sources", searchBoth(t, x, one), recallindex.Found{Sources: want.Sources})
	one.Sources, one.Memories = 0, 1
	equal(t, "only memories", searchBoth(t, x, one), recallindex.Found{Memories: want.Memories})
	one.Memories = 0
	equal(t, "neither", searchBoth(t, x, one), recallindex.Found{})
	// A word that only one part has, and a word of each.
	equal(t, "word of memories", hitsOf(t, x, query(project, "editor")), [2]int{0, 1})
	equal(t, "word of sources", hitsOf(t, x, query(project, "like")), [2]int{1, 0})
	equal(t, "words of both", hitsOf(t, x, query(project, "like editor")), [2]int{1, 1})
	apply(t, x, project, recallindex.Change{Deletes: []recallindex.Scope{memories(a, 1)}})
	equal(t, "after the deletion", hitsOf(t, x, q), [2]int{1, 0})
}

// hitsOf returns how many sources and memories a query finds.
func hitsOf(t *testing.T, x recallindex.Index, q recallindex.Query) [2]int {
	t.Helper()
	found := searchBoth(t, x, q)
	return [2]int{len(found.Sources.Hits), len(found.Memories.Hits)}
}

func projects(t *testing.T, open Open) {
	x, one, other, a := opened(t, open), uuid.New(), uuid.New(), uuid.New()
	apply(t, x, one, recallindex.Change{Upserts: []recallindex.Document{passage(a, 1, 0, "helix", "")}})
	apply(t, x, other,
		recallindex.Change{Upserts: []recallindex.Document{passage(a, 1, 0, "helix", ""), passage(a, 1, 1, "vim helix", "")}})
	equal(t, "one", search(t, x, query(one, "helix")).Statistics,
		recall.Statistics{Docs: 1, Frequencies: []recall.Count{{Text: 1}}})
	if err := x.DropProject(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	equal(t, "dropped", len(search(t, x, query(other, "helix")).Hits), 0)
	equal(t, "one", len(search(t, x, query(one, "helix")).Hits), 1)
	apply(t, x, other, recallindex.Change{Upserts: []recallindex.Document{passage(a, 2, 0, "emacs", "")}})
	equal(t, "made again", keys(search(t, x, query(other, "helix emacs"))), []recallindex.Key{{DataPoint: a, Revision: 2}})
}

func audiences(t *testing.T, open Open) {
	x, project, team, board := opened(t, open), uuid.New(), uuid.New(), uuid.New()
	var docs []recallindex.Document
	for _, audience := range []uuid.UUID{uuid.Nil, team, board} {
		for range 5 {
			d := passage(uuid.New(), 1, 0, "plan", "")
			d.Audience = audience
			docs = append(docs, d)
		}
	}
	apply(t, x, project, recallindex.Change{Upserts: docs})
	cases := []struct {
		audiences []uuid.UUID
		want      int
	}{
		{nil, 0},
		{[]uuid.UUID{uuid.Nil}, 5},
		{[]uuid.UUID{uuid.Nil, team}, 10},
		{[]uuid.UUID{uuid.Nil, team, board}, 15},
		{[]uuid.UUID{team, team, team}, 5},
		{[]uuid.UUID{uuid.New()}, 0},
	}
	for _, c := range cases {
		q := query(project, "plan")
		q.Audiences = c.audiences
		found := search(t, x, q)
		equal(t, fmt.Sprintf("hits of %v", c.audiences), len(found.Hits), c.want)
		equal(t, "statistics", found.Statistics, recall.Statistics{Docs: 15, Frequencies: []recall.Count{{Text: 15}}})
		if c.want > 2 {
			q.Sources = 2
			equal(t, "cut", len(search(t, x, q).Hits), 2)
		}
	}
	// A document that is indexed again for another audience is found by that one only.
	docs[0].Audience = team
	apply(t, x, project, recallindex.Change{Upserts: docs[:1]})
	equal(t, "after the move", len(search(t, x, query(project, "plan")).Hits), 4)
}

func windows(t *testing.T, open Open) {
	x, project := opened(t, open), uuid.New()
	times := []string{
		"0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999999Z", "1970-01-01T00:00:00Z",
		"2025-05-12T00:00:00Z", "2025-05-12T23:59:59Z", "2025-05-13T00:00:00Z", "9999-12-31T23:59:59Z",
	}
	at := make([]time.Time, len(times))
	docs := make([]recallindex.Document, len(times))
	for i, text := range times {
		var err error
		if at[i], err = time.Parse(time.RFC3339Nano, text); err != nil {
			t.Fatal(err)
		}
		docs[i] = passage(uuid.New(), 1, 0, "event", "")
		docs[i].OccurredAt = at[i]
	}
	apply(t, x, project, recallindex.Change{Upserts: docs})
	for i := range at {
		for j := i; j < len(at); j++ {
			q := query(project, "event")
			q.From, q.To = &at[i], &at[j]
			hits := map[uuid.UUID]bool{}
			for _, h := range search(t, x, q).Hits {
				hits[h.DataPoint] = true
			}
			for k := i; k <= j; k++ {
				if !hits[docs[k].DataPoint] {
					t.Errorf("from %s to %s: %s is missing", times[i], times[j], times[k])
				}
			}
			// A document more than a day outside does not take the place of a candidate.
			for k := range at {
				if (at[k].Before(at[i].AddDate(0, 0, -1)) || at[k].After(at[j].AddDate(0, 0, 1))) && hits[docs[k].DataPoint] {
					t.Errorf("from %s to %s: %s is found", times[i], times[j], times[k])
				}
			}
		}
	}
	q := query(project, "event")
	q.To = &at[2]
	equal(t, "open beginning", len(search(t, x, q).Hits), 3)
	q.From, q.To = &at[5], nil
	equal(t, "open end", len(search(t, x, q).Hits), 2)
}

func size(t *testing.T, open Open) {
	x, project, a := opened(t, open), uuid.New(), uuid.New()
	var docs []recallindex.Document
	for n := range 40 {
		docs = append(docs, passage(a, 1, n, strings.Repeat("helix ", n+1)+strings.Repeat("other ", 40-n), ""))
	}
	apply(t, x, project, recallindex.Change{Upserts: docs})
	q := query(project, "helix")
	q.Sources = 3
	var got []int
	for _, h := range search(t, x, q).Hits {
		got = append(got, h.N)
	}
	equal(t, "best", got, []int{37, 38, 39})
	q.Sources = 0
	equal(t, "none", len(search(t, x, q).Hits), 0)
}

func awkwardTerms(t *testing.T, open Open) {
	x, project, a := opened(t, open), uuid.New(), uuid.New()
	awkward := []string{"東京", "👍", "a@b.c", "\"quoted\"", "a:b", "*", "\\", "'", "1,000.50", strings.Repeat("x", 64), "ﷺ"}
	d := passage(a, 1, 0, "", "")
	d.Terms = recall.Terms{Text: awkward, Label: awkward}
	apply(t, x, project, recallindex.Change{Upserts: []recallindex.Document{d}})
	for _, term := range awkward {
		q := query(project, "")
		q.Terms = recall.Wholes(term)
		found := search(t, x, q)
		equal(t, term, found.Statistics, recall.Statistics{Docs: 1, Frequencies: []recall.Count{{Text: 1, Label: 1}}})
		equal(t, term, len(found.Hits), 1)
	}
}

// model compares an index with a map, over random changes.
func model(t *testing.T, open Open) {
	x := opened(t, open)
	vocabulary := strings.Fields("ana helix vim deploy friday launch june team board plan")
	rapid.Check(t, func(r *rapid.T) {
		project := uuid.New()
		points := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
		held := map[recallindex.Key]recallindex.Document{}
		word := rapid.SampledFrom(vocabulary)
		for range rapid.IntRange(1, 6).Draw(r, "changes") {
			var change recallindex.Change
			for range rapid.IntRange(0, 5).Draw(r, "deletes") {
				s := sources(rapid.SampledFrom(points).Draw(r, "point"), rapid.IntRange(1, 2).Draw(r, "revision"))
				change.Deletes = append(change.Deletes, s)
				maps.DeleteFunc(held, func(k recallindex.Key, _ recallindex.Document) bool {
					return k.DataPoint == s.DataPoint && k.Revision == s.Revision
				})
			}
			for range rapid.IntRange(0, 8).Draw(r, "upserts") {
				d := passage(rapid.SampledFrom(points).Draw(r, "point"), rapid.IntRange(1, 2).Draw(r, "revision"),
					rapid.IntRange(0, 3).Draw(r, "n"), "", "")
				d.Terms.Text = rapid.SliceOfN(word, 1, 12).Draw(r, "text")
				d.Terms.Label = rapid.SliceOfNDistinct(word, 0, 3, rapid.ID[string]).Draw(r, "label")
				change.Upserts = append(change.Upserts, d)
				held[d.Key] = d
			}
			apply(t, x, project, change)
		}
		q := query(project, "")
		q.Terms = recall.Wholes(rapid.SliceOfNDistinct(word, 1, 5, rapid.ID[string]).Draw(r, "query")...)
		want := recallindex.Result{Statistics: recall.Statistics{Docs: len(held), Frequencies: make([]recall.Count,
			len(q.Terms))}}
		for _, d := range held {
			hit, any := recallindex.Hit{Key: d.Key, Counts: recall.Counts(q.Terms, d.Terms)}, false
			for i, c := range hit.Counts {
				if c.Text > 0 {
					want.Statistics.Frequencies[i].Text++
					hit.Length, any = len(d.Terms.Text), true
				}
				if c.Label > 0 {
					want.Statistics.Frequencies[i].Label++
					any = true
				}
			}
			if any {
				want.Hits = append(want.Hits, hit)
			}
		}
		got := search(t, x, q)
		if len(got.Hits) == 0 {
			got.Hits = nil
		}
		if len(held) == 0 {
			want.Statistics.Docs = 0
		}
		if diff := gocmp.Diff(sorted(want), got); diff != "" {
			r.Fatalf("found (-want +got):\n%s", diff)
		}
		if err := x.DropProject(t.Context(), project); err != nil {
			r.Fatal(err)
		}
	})
}
