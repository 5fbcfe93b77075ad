package indextest

import (
	"fmt"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/projections/recallindex"
)

func spellings(t *testing.T, x recallindex.Index, q recallindex.SpellingQuery) [][]string {
	t.Helper()
	found, err := x.Spellings(t.Context(), q)
	if err != nil {
		t.Fatalf("spellings: %v", err)
	}
	return found
}

// spelling: a word that no readable source holds is answered by what readable ones hold.
func spelling(t *testing.T, open Open) {
	x, project, other, team := opened(t, open), uuid.New(), uuid.New(), uuid.New()
	hidden := passage(uuid.New(), 1, 0, "valvo valve valves secret", "secretly")
	hidden.Audience = team
	late := passage(uuid.New(), 1, 0, "valva", "")
	late.OccurredAt = late.OccurredAt.AddDate(1, 0, 0)
	apply(t, x, project, recallindex.Change{Upserts: []recallindex.Document{
		passage(uuid.New(), 1, 0, "valve Ventil überholung abc~de abcd1 ~de:ventile 東京都庁", "tower"),
		passage(uuid.New(), 1, 0, "valve valse value birthday", ""),
		passage(uuid.New(), 1, 1, "value value valu ", "valse tower"),
		memoryOf(uuid.New(), uuid.New(), "velve"), hidden, late,
	}})
	apply(t, x, other, recallindex.Change{Upserts: []recallindex.Document{passage(uuid.New(), 1, 0, "vavle valvi", "")}})
	at := late.OccurredAt.AddDate(0, 0, -1)
	cases := []struct {
		word  string
		edits int
		team  bool
		size  int
		want  []string
	}{
		{word: "vlave", edits: 1, want: []string{"valve"}},
		{word: "valbe", edits: 1, want: []string{"valve", "valse", "value"}},
		{word: "valbe", edits: 1, size: 1, want: []string{"valve"}},
		{word: "valbe", edits: 2, want: []string{"valve", "valse", "value", "valu"}},
		{word: "valve", edits: 2},
		{word: "valvo", edits: 1, want: []string{"valve"}},
		{word: "valvo", edits: 1, team: true},
		{word: "secretl", edits: 1},
		{word: "secretl", edits: 1, team: true, want: []string{"secret", "secretly"}},
		{word: "towre", edits: 1, want: []string{"tower"}},
		{word: "tower", edits: 1},
		{word: "uberholung", edits: 1, want: []string{"überholung"}},
		{word: "abcd", edits: 1},
		{word: "birhtdya", edits: 2, want: []string{"birthday"}},
		{word: "birhtdya", edits: 1},
		{word: "東京都", edits: 1, want: []string{"東京都庁"}},
		{word: "velva", edits: 1},
		{word: "birthday", edits: 0},
		{word: "birthdax", edits: 0},
	}
	for _, c := range cases {
		q := recallindex.SpellingQuery{
			Project: project, Audiences: []uuid.UUID{uuid.Nil}, To: &at,
			Words: []recallindex.SpellingWord{{Text: c.word, Edits: c.edits}}, Size: 8,
		}
		if c.team {
			q.Audiences = append(q.Audiences, team)
		}
		if c.size > 0 {
			q.Size = c.size
		}
		equal(t, fmt.Sprintf("spellings of %+v", c), spellings(t, x, q), [][]string{c.want})
	}
	q := recallindex.SpellingQuery{
		Project: project, Audiences: []uuid.UUID{uuid.Nil}, Size: 8, Words: make([]recallindex.SpellingWord, 6),
	}
	for i := range q.Words {
		q.Words[i] = recallindex.SpellingWord{Text: "birthdax", Edits: 1}
	}
	four := spellings(t, x, q)[:recallindex.MaxSpellingWords]
	for _, found := range four {
		equal(t, "one of four", found, []string{"birthday"})
	}
	q.Audiences = nil
	equal(t, "without audiences", spellings(t, x, q)[0], []string(nil))
	q.Project, q.Audiences = uuid.New(), []uuid.UUID{uuid.Nil}
	equal(t, "without documents", spellings(t, x, q)[0], []string(nil))
}

// spellingModel compares an index with Memory over random vocabularies.
func spellingModel(t *testing.T, open Open) {
	x := opened(t, open)
	audiences := []uuid.UUID{uuid.Nil, uuid.New(), uuid.New()}
	start := time.Date(2025, 5, 12, 9, 0, 0, 0, time.UTC)
	rapid.Check(t, func(r *rapid.T) {
		project, model := uuid.New(), NewMemory()
		word := rapid.StringMatching(`[abé]{3,9}`)
		text := rapid.SliceOfN(rapid.OneOf(word, word, rapid.SampledFrom([]string{"ab1ab", "~de:abab", "ab-ab"})), 1, 12)
		var change recallindex.Change
		for range rapid.IntRange(1, 12).Draw(r, "documents") {
			d := passage(uuid.New(), 1, 0, "", "")
			d.Terms.Text = text.Draw(r, "text")
			d.Terms.Label = rapid.SliceOfNDistinct(word, 0, 2, rapid.ID[string]).Draw(r, "label")
			d.Audience = rapid.SampledFrom(audiences).Draw(r, "audience")
			d.OccurredAt = start.AddDate(0, 0, rapid.IntRange(0, 2).Draw(r, "day"))
			change.Upserts = append(change.Upserts, d)
		}
		apply(t, x, project, change)
		apply(t, model, project, change)
		if rapid.Bool().Draw(r, "delete") {
			gone := recallindex.Change{Deletes: []recallindex.Scope{sources(change.Upserts[0].DataPoint, 1)}}
			apply(t, x, project, gone)
			apply(t, model, project, gone)
		}
		q := recallindex.SpellingQuery{
			Project: project, Audiences: audiences[:rapid.IntRange(1, len(audiences)).Draw(r, "reach")],
			Size: rapid.IntRange(1, 8).Draw(r, "size"),
		}
		if rapid.Bool().Draw(r, "bounded") {
			to := start.AddDate(0, 0, 1)
			q.To = &to
		}
		for range rapid.IntRange(1, recallindex.MaxSpellingWords).Draw(r, "words") {
			q.Words = append(q.Words, recallindex.SpellingWord{
				Text: word.Draw(r, "word"), Edits: rapid.IntRange(1, 2).Draw(r, "edits"),
			})
		}
		want, got := spellings(t, model, q), spellings(t, x, q)
		if diff := gocmp.Diff(want, got); diff != "" {
			r.Fatalf("%+v (-want +got):\n%s", q.Words, diff)
		}
		if err := x.DropProject(t.Context(), project); err != nil {
			r.Fatal(err)
		}
	})
}
