package indextest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/recallindex"
)

// total: the documents of all projects are counted, whatever was done to them.
func total(t *testing.T, open Open) {
	x := opened(t, open)
	wantTotal(t, x, 0)
	model := NewMemory()
	change := func(project uuid.UUID, c recallindex.Change) {
		t.Helper()
		apply(t, x, project, c)
		apply(t, model, project, c)
		want, err := model.Total(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantTotal(t, x, want)
	}
	var projects []uuid.UUID
	for range 3 {
		project, a, b := uuid.New(), uuid.New(), uuid.New()
		projects = append(projects, project)
		for n := range 15 {
			change(project, recallindex.Change{Upserts: []recallindex.Document{
				passage(a, 1, n, fmt.Sprint("helix n", n), ""), memoryOf(b, uuid.New(), "vim"),
			}})
		}
		change(project, recallindex.Change{Moves: []recallindex.Move{{DataPoint: a, Audience: uuid.New()}}})
		change(project, recallindex.Change{
			Deletes: []recallindex.Scope{sources(a, 1)}, Upserts: []recallindex.Document{passage(a, 2, 0, "helix", "")},
		})
		change(project, recallindex.Change{Upserts: []recallindex.Document{passage(a, 2, 0, "vim", "")}})
	}
	for _, i := range []recallindex.Index{x, model} {
		if err := i.DropProject(t.Context(), projects[0]); err != nil {
			t.Fatal(err)
		}
	}
	change(projects[1], recallindex.Change{Upserts: []recallindex.Document{passage(uuid.New(), 1, 0, "helix", "")}})
	if _, err := x.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantTotal(t, x, 2*16+1)
}

func wantTotal(t *testing.T, x recallindex.Index, want int) {
	t.Helper()
	if n, err := x.Total(t.Context()); err != nil || n != want {
		t.Fatalf("%d documents in all, %v; want %d", n, err, want)
	}
}

// rebuildable opens an index, and skips the test if it has no shadow.
func rebuildable(t *testing.T, open Open) recallindex.Rebuildable {
	t.Helper()
	x, is := open(t).(recallindex.Rebuildable)
	if !is {
		t.Skip("the index cannot be rebuilt in a shadow")
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return x
}

func newShadow(t *testing.T, x recallindex.Rebuildable) recallindex.Index {
	t.Helper()
	next, err := x.NewShadow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// write writes documents with one word, each of another data point.
func write(t *testing.T, x recallindex.Index, project uuid.UUID, words ...string) {
	t.Helper()
	for _, word := range words {
		apply(t, x, project, recallindex.Change{Upserts: []recallindex.Document{passage(pointOf(word), 1, 0, word, "")}})
	}
}

func pointOf(word string) uuid.UUID { return uuid.NewSHA1(uuid.Nil, []byte(word)) }

// shadow: a shadow is filled and counted next to the index in use, and replaces it.
func shadow(t *testing.T, open Open) {
	x, project := rebuildable(t, open), uuid.New()
	write(t, x, project, "one", "two")
	before := x.Generation()
	write(t, newShadow(t, x), project, "nine")
	next := newShadow(t, x) // without what the first one held
	write(t, next, project, "one", "two", "three")
	wantTotal(t, x, 2)
	wantTotal(t, next, 3)
	if ok, err := x.Promote(t.Context(), before); err != nil || x.Generation() != before {
		t.Fatalf("the contents in use were replaced by themselves: %t, %v", ok, err)
	}
	if ok, err := x.Promote(t.Context(), next.Generation()); !ok || err != nil {
		t.Fatalf("not promoted: %t, %v", ok, err)
	}
	if x.Generation() != next.Generation() {
		t.Fatalf("generation %s, want %s", x.Generation(), next.Generation())
	}
	wantTotal(t, x, 3)
	equal(t, "found", len(search(t, x, query(project, "three nine")).Hits), 1)
	write(t, newShadow(t, x), project, "nine")
	for range 2 {
		if err := x.Discard(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wantTotal(t, x, 3)
}

// shadowResumed: an interrupted shadow is continued, by the next process too; one that was promoted,
// discarded or replaced is not.
func shadowResumed(t *testing.T, open Open) {
	x, project := rebuildable(t, open), uuid.New()
	write(t, x, project, "one")
	next := newShadow(t, x)
	target := next.Generation()
	resume := func(want bool) recallindex.Index {
		t.Helper()
		next, ok, err := x.ResumeShadow(t.Context(), target)
		if err != nil || ok != want {
			t.Fatalf("resumed: %t, %v; want %t", ok, err, want)
		}
		return next
	}
	write(t, next, project, "one", "two")
	same := resume(true) // without an end of the first one
	write(t, same, project, "two", "three")
	for _, end := range []recallindex.Index{same, x} {
		if err := end.Close(); err != nil {
			t.Fatal(err)
		}
	}
	x = rebuildable(t, open)
	wantTotal(t, x, 1)
	next = resume(true)
	if next.Generation() != target {
		t.Fatalf("generation %s, want %s", next.Generation(), target)
	}
	wantTotal(t, next, 3)
	apply(t, next, project, recallindex.Change{Deletes: []recallindex.Scope{sources(pointOf("two"), 1)}})
	write(t, next, project, "three", "four")
	wantTotal(t, next, 3)
	if ok, err := x.Promote(t.Context(), target); !ok || err != nil {
		t.Fatalf("not promoted: %t, %v", ok, err)
	}
	equal(t, "found", len(search(t, x, query(project, "one two three four")).Hits), 3)
	resume(false) // it is in use
	target = newShadow(t, x).Generation()
	newShadow(t, x)
	resume(false) // another one was begun
	target = newShadow(t, x).Generation()
	if err := x.Discard(t.Context()); err != nil {
		t.Fatal(err)
	}
	resume(false)
	wantTotal(t, x, 3)
}

// shadowVerified: a shadow with a document too few or too many is refused.
func shadowVerified(t *testing.T, open Open) {
	x, project := rebuildable(t, open), uuid.New()
	write(t, x, project, "one") // it does not count
	next := newShadow(t, x)
	write(t, next, project, "one", "two", "three")
	verify := func(written int, want error) {
		t.Helper()
		if err := recallindex.VerifyTotal(t.Context(), next, written); !errors.Is(err, want) {
			t.Fatalf("verified with %v, want %v", err, want)
		}
	}
	verify(3, nil)
	apply(t, next, project, recallindex.Change{Deletes: []recallindex.Scope{sources(pointOf("two"), 1)}})
	verify(3, projections.ErrTarget)
	verify(2, nil)
	write(t, next, uuid.New(), "four")
	verify(2, projections.ErrTarget)
}
