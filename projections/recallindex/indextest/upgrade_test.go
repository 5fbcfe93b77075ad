package indextest

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recallindex"
)

// upgraded is an index of a made-up earlier analysis, next to which one of the newest is built. A word has
// other terms in either analysis: the version before it.
type upgraded struct {
	t       *testing.T
	x       recallindex.Rebuildable
	project uuid.UUID
}

// termsOf are the terms of words in an analysis.
func termsOf(analysis int, words ...string) string {
	text := ""
	for _, word := range words {
		text += " " + string(rune('0'+analysis)) + word
	}
	return text
}

// earlier is the made-up version of the analysis.
const earlier = 1

// upgrade: an index of an earlier analysis answers queries of that, and takes documents of it, while one of
// the newest is built next to it. After the switch-over queries of the new analysis are answered, in every
// process.
func upgrade(t *testing.T, in Storage) {
	begun := in.OpenNew(t, earlier)
	began := begun.Generation()
	mustClose(t, begun)
	u := upgraded{t: t, x: rebuildable(t, in.Open), project: uuid.New()}
	equal(t, "generation", u.x.Generation(), began)
	equal(t, "analysis", u.x.Analysis(), earlier)
	u.write(u.x, earlier, 1, "helix", "vim", "kept", "moved")
	generation := u.x.Generation()
	mustClose(t, u.x)
	u.x = rebuildable(t, in.Open)
	equal(t, "generation", u.x.Generation(), generation)
	u.wantFound(u.x, earlier, "helix", "vim", "kept", "moved")
	u.wantOther(u.x, Analysis)

	next := newShadow(t, u.x)
	equal(t, "analysis of the shadow", next.Analysis(), Analysis)
	u.write(next, Analysis, 1, "helix", "vim", "kept", "moved")
	// What arrives meanwhile is written to both, each with its own analysis.
	both := func(revision int, word string, change recallindex.Change) {
		u.change(u.x, earlier, revision, word, change)
		u.change(next, Analysis, revision, word, change)
	}
	both(1, "new", recallindex.Change{})
	u.wantFound(u.x, earlier, "helix", "new")
	both(2, "", recallindex.Change{Deletes: []recallindex.Scope{sources(pointOf("vim"), 1)}})
	both(1, "", recallindex.Change{Moves: []recallindex.Move{{DataPoint: pointOf("moved"), Audience: uuid.New()}}})
	u.wantFound(u.x, earlier, "helix", "new", "kept")
	wantTotal(t, u.x, 4)
	wantTotal(t, next, 4)
	u.wantOther(next, earlier)

	// The next process goes on with both.
	target := next.Generation()
	mustClose(t, next)
	mustClose(t, u.x)
	u.x = rebuildable(t, in.Open)
	u.wantFound(u.x, earlier, "helix", "new", "kept")
	next, resumed, err := u.x.ResumeShadow(t.Context(), target)
	if err != nil || !resumed {
		t.Fatalf("the shadow is not resumed: %v", err)
	}
	both(1, "last", recallindex.Change{})
	var other recallindex.Index
	if _, shared := u.x.(recallindex.Shared); shared {
		other = opened(t, in.Open)
		u.wantFound(other, earlier, "last")
	}
	if ok, err := u.x.Promote(t.Context(), target); !ok || err != nil {
		t.Fatalf("not promoted: %v", err)
	}
	u.wantOther(u.x, earlier)
	u.wantFound(u.x, Analysis, "helix", "new", "kept", "last")
	if other != nil {
		u.wantOtherQuery(other, earlier)
		u.wantFound(other, Analysis, "helix", "last")
		wantTotal(t, other, 5)
	}
	u.wantOther(u.x, earlier)
	if _, err := u.x.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustClose(t, u.x)
	u.x = rebuildable(t, in.Open)
	equal(t, "generation", u.x.Generation(), target)
	u.wantFound(u.x, Analysis, "helix", "new", "kept", "last")
	wantTotal(t, u.x, 5)
}

func mustClose(t *testing.T, x recallindex.Index) {
	t.Helper()
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}

// write writes a document for each word.
func (u upgraded) write(x recallindex.Index, analysis, revision int, words ...string) {
	u.t.Helper()
	for _, word := range words {
		u.change(x, analysis, revision, word, recallindex.Change{})
	}
}

// change makes a change with a document for a word, if there is one.
func (u upgraded) change(x recallindex.Index, analysis, revision int, word string, c recallindex.Change) {
	u.t.Helper()
	if word != "" {
		d := passage(pointOf(word), revision, 0, termsOf(analysis, word), "")
		c.Upserts = []recallindex.Document{d}
	}
	applyAs(u.t, x, u.project, c, analysis)
}

// wantFound requires that a query for all words finds exactly those.
func (u upgraded) wantFound(x recallindex.Index, analysis int, words ...string) {
	u.t.Helper()
	q := query(u.project, termsOf(analysis, words...))
	q.Analysis = analysis
	points := map[uuid.UUID]bool{}
	for _, h := range search(u.t, x, q).Hits {
		points[h.DataPoint] = true
	}
	for _, word := range words {
		if !points[pointOf(word)] {
			u.t.Errorf("%s is not found", word)
		}
	}
	equal(u.t, "found", len(points), len(words))
}

// wantOther requires that queries and documents of an analysis are refused.
func (u upgraded) wantOther(x recallindex.Index, analysis int) {
	u.t.Helper()
	u.wantOtherQuery(x, analysis)
	change := recallindex.Change{
		Project: u.project, Analysis: analysis, Upserts: []recallindex.Document{passage(uuid.New(), 1, 0, "helix", "")},
	}
	if err := x.Apply(u.t.Context(), []recallindex.Change{change}); !errors.Is(err, recallindex.ErrOtherAnalysis) {
		u.t.Fatalf("documents of analysis %d: %v", analysis, err)
	}
}

func (u upgraded) wantOtherQuery(x recallindex.Index, analysis int) {
	u.t.Helper()
	q := query(u.project, termsOf(analysis, "helix"))
	q.Analysis = analysis
	if _, err := x.Search(u.t.Context(), q); !errors.Is(err, recallindex.ErrOtherAnalysis) {
		u.t.Fatalf("a query of analysis %d: %v", analysis, err)
	}
}
