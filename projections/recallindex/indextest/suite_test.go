package indextest

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections/recallindex"
)

// Open opens an index on storage that belongs to the test; a second call opens the same storage
// again.
type Open func(t *testing.T) recallindex.Index

// Storage is where an index keeps its documents.
type Storage struct {
	Open Open
	// Damage damages the part that holds the first documents of a project, while the index is closed. It
	// is nil if an index loses no part alone.
	Damage func(t *testing.T, project uuid.UUID)
	// OpenNew opens an index in storage without one, with a version of the analysis. It is nil if an index
	// has one generation.
	OpenNew func(t *testing.T, analysis int) recallindex.Index
}

// conformance runs the suite. newStorage makes empty storage.
func conformance(t *testing.T, newStorage func(t *testing.T) Storage) {
	t.Run("damaged", func(t *testing.T) {
		in := newStorage(t)
		if in.Damage == nil {
			t.Skip("the index loses no part alone")
		}
		damaged(t, in)
	})
	t.Run("upgrade", func(t *testing.T) {
		in := newStorage(t)
		if in.OpenNew == nil {
			t.Skip("the index has one generation")
		}
		upgrade(t, in)
	})
	tests := []struct {
		name string
		run  func(t *testing.T, open Open)
	}{
		{"unknown project", unknownProject},
		{"counts", counts},
		{"replace and delete", replaceAndDelete},
		{"parts", parts},
		{"shares of terms and traits", shares},
		{"projects", projects},
		{"projects among others", projectsAmongOthers},
		{"moves", moves},
		{"moves and revisions", movesAndRevisions},
		{"audiences", audiences},
		{"windows", windows},
		{"size", size},
		{"best", best},
		{"ties", ties},
		{"lengths", lengths},
		{"many terms", manyTerms},
		{"languages", languages},
		{"awkward terms", awkwardTerms},
		{"long change", longChange},
		{"readers during writes", readersDuringWrites},
		{"opened again", openedAgain},
		{"reset", reset},
		{"purged", purged},
		{"purged during calls", purgedDuringCalls},
		{"total", total},
		{"shadow", shadow},
		{"shadow resumed", shadowResumed},
		{"shadow verified", shadowVerified},
		{"closed", closed},
		{"model", model},
		{"spelling", spelling},
		{"spelling model", spellingModel},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, newStorage(t).Open) })
	}
}

// passage is a passage of a data point; text and label are words with spaces between.
func passage(dataPoint uuid.UUID, revision, n int, text, label string) recallindex.Document {
	return recallindex.Document{
		Key:        recallindex.Key{DataPoint: dataPoint, Revision: revision, N: n},
		OccurredAt: time.Date(2025, 5, 12, 9, 0, 0, 0, time.UTC),
		Terms:      recall.Terms{Text: strings.Fields(text), Label: strings.Fields(label)},
	}
}

// memoryOf is a memory of the first revision.
func memoryOf(dataPoint, id uuid.UUID, text string) recallindex.Document {
	d := passage(dataPoint, 1, 0, text, "")
	d.Memory = id
	return d
}

func query(project uuid.UUID, text string) recallindex.Query {
	return recallindex.Query{
		Project: project, Sources: 100, Memories: 100, Terms: recall.Wholes(strings.Fields(text)...),
		Analysis: Analysis, Audiences: []uuid.UUID{uuid.Nil},
	}
}

func opened(t *testing.T, open Open) recallindex.Index {
	t.Helper()
	x := open(t)
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return x
}

// position is that of the last change.
var position atomic.Uint64

func apply(t testing.TB, x recallindex.Index, project uuid.UUID, change recallindex.Change) {
	t.Helper()
	applyAs(t, x, project, change, Analysis)
}

// applyAs applies a change whose documents are of an analysis.
func applyAs(t testing.TB, x recallindex.Index, project uuid.UUID, change recallindex.Change, analysis int) {
	t.Helper()
	change.Project, change.Position, change.Analysis = project, eventstore.Position(position.Add(1)), analysis
	if err := x.Apply(t.Context(), []recallindex.Change{change}); err != nil {
		t.Fatalf("apply: %v", err)
	}
}

// sources and memories name the documents of a revision of a data point.
func sources(dataPoint uuid.UUID, revision int) recallindex.Scope {
	return recallindex.Scope{DataPoint: dataPoint, Part: recallindex.Sources, Revision: revision}
}

func memories(dataPoint uuid.UUID, revision int) recallindex.Scope {
	return recallindex.Scope{DataPoint: dataPoint, Part: recallindex.Memories, Revision: revision}
}

// search returns what a query finds of the sources.
func search(t testing.TB, x recallindex.Index, q recallindex.Query) recallindex.Result {
	t.Helper()
	return searchBoth(t, x, q).Sources
}

func searchBoth(t testing.TB, x recallindex.Index, q recallindex.Query) recallindex.Found {
	t.Helper()
	found, err := x.Search(t.Context(), q)
	if err != nil {
		t.Fatalf("search: %v", err)
	}
	return recallindex.Found{Sources: sorted(found.Sources), Memories: sorted(found.Memories)}
}

func sorted(found recallindex.Result) recallindex.Result {
	slices.SortFunc(found.Hits, func(a, b recallindex.Hit) int {
		return cmp.Or(strings.Compare(a.DataPoint.String(), b.DataPoint.String()), a.Revision-b.Revision, a.N-b.N,
			strings.Compare(a.Memory.String(), b.Memory.String()))
	})
	return found
}

func keys(found recallindex.Result) []recallindex.Key {
	list := make([]recallindex.Key, len(found.Hits))
	for i, h := range found.Hits {
		list[i] = h.Key
	}
	return list
}

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}
