package bleve

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// A segment that a merge adds during a move, and that is searched before the move is stored, shows
// the move, too.
func TestMove_SegmentOfAConcurrentMerge(t *testing.T) {
	x, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	apply := func(c recallindex.Change) {
		t.Helper()
		if err := x.Apply(t.Context(), []recallindex.Change{c}); err != nil {
			t.Fatal(err)
		}
	}
	project, moves, goes, from, to := uuid.New(), uuid.New(), uuid.New(), uuid.New(), uuid.New()
	document := func(id uuid.UUID) recallindex.Document {
		return recallindex.Document{
			Key: recallindex.Key{DataPoint: id, Revision: 1}, Audience: from, OccurredAt: time.Unix(0, 0),
			Terms: recall.Terms{Text: []string{"tea"}},
		}
	}
	found := func(audience uuid.UUID) int {
		t.Helper()
		f, err := x.Search(t.Context(), recallindex.Query{
			Analysis: indextest.Analysis,
			Project:  project, Sources: 10, Terms: recall.Wholes("tea"), Audiences: []uuid.UUID{audience},
		})
		if err != nil {
			t.Fatal(err)
		}
		return len(f.Sources.Hits)
	}
	apply(recallindex.Change{
		Analysis: indextest.Analysis, Project: project, Upserts: []recallindex.Document{document(moves), document(goes)},
	})
	gone := []recallindex.Scope{{DataPoint: goes, Part: recallindex.Sources, Revision: 1}}
	apply(recallindex.Change{Analysis: indextest.Analysis, Project: project, Deletes: gone})
	moving := []recallindex.Move{{DataPoint: moves, Audience: to}}
	change := slotChange{shared(project), recallindex.Change{
		Analysis: indextest.Analysis, Project: project, Moves: moving,
	}, nil}
	err = x.with(change.at.slot, false, func(h *handle) error {
		moved, err := h.moved([]slotChange{change})
		if err != nil {
			return err
		}
		if n, err := x.Purge(t.Context()); err != nil || n != 1 {
			t.Errorf("%d slots rewritten, %v", n, err)
		}
		if found(from) != 1 || found(to) != 0 {
			t.Errorf("before the move %d and %d are found", found(from), found(to))
		}
		return h.put(moved)
	})
	if err != nil {
		t.Fatal(err)
	}
	if found(from) != 0 || found(to) != 1 {
		t.Errorf("after the move %d are found where it was, %d where it is", found(from), found(to))
	}
}
