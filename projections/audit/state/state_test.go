package state_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/checkpoints"
	"github.com/annals-project/annals/projections/audit"
	"github.com/annals-project/annals/projections/audit/state"
)

// list is some trees, by id.
type list []audit.Tree

func (l list) Tree(_ context.Context, organization uuid.UUID) (t audit.Tree, ok bool, err error) {
	i := slices.IndexFunc(l, func(t audit.Tree) bool { return t.Organization == organization })
	if i < 0 {
		return t, false, nil
	}
	return l[i], true, nil
}

func (l list) Trees(_ context.Context, after *uuid.UUID, limit int) ([]audit.Tree, error) {
	from := 0
	if after != nil {
		from = slices.IndexFunc(l, func(t audit.Tree) bool { return t.Organization == *after }) + 1
	}
	return l[from:min(len(l), from+limit)], nil
}

func TestReader_One(t *testing.T) {
	id, at := uuid.New(), time.Unix(9, 0).UTC()
	tree := audit.Tree{
		Organization: id, Size: 12, Origin: "o", Verifiers: []string{"o+1+A"}, Checkpoint: "note", CheckpointSize: 10,
		CheckpointAt: at, Since: at, Cosigned: "note", CosignedSize: 7, CosignedAt: at,
	}
	copies := []state.Copy{{Place: "anchor x", Events: 7, Since: at}}
	r := state.Reader{
		Trees: list{tree}, Policy: "quorum none\n",
		Copies: func(_ context.Context, of []uuid.UUID) (map[uuid.UUID][]checkpoints.Placed, error) {
			placed := checkpoints.Placed{Copy: checkpoints.Copy{Organization: of[0], Size: 7, Since: at}, Place: "anchor x"}
			return map[uuid.UUID][]checkpoints.Placed{of[0]: {placed}}, nil
		},
	}
	got, err := r.One(t.Context(), id)
	want := state.State{
		Organization: id, Events: 12, Uncovered: 2, Since: at, Origin: "o", Keys: tree.Verifiers, Copies: copies,
		Checkpoint: &state.Checkpoint{Events: 10, At: at}, Cosigned: &state.Checkpoint{Events: 7, At: at},
		Policy: "log o+1+A\nquorum none\n", Note: "note",
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	other := uuid.New()
	if got, err = r.One(t.Context(), other); err != nil || got.Organization != other || got.Events != 0 {
		t.Errorf("a tree that is not built: %+v, %v", got, err)
	}
	refused := errors.New("no database")
	r.Copies = func(context.Context, []uuid.UUID) (map[uuid.UUID][]checkpoints.Placed, error) { return nil, refused }
	if _, err := r.One(t.Context(), id); !errors.Is(err, refused) {
		t.Errorf("without copies: %v", err)
	}
}

func TestReader_Each(t *testing.T) {
	var trees list
	for range 600 {
		trees = append(trees, audit.Tree{Organization: uuid.New(), Size: 1})
	}
	var seen []uuid.UUID
	err := state.Reader{Trees: trees}.Each(t.Context(), func(s state.State) error {
		if s.Uncovered != 1 || s.Checkpoint != nil || s.Policy != "" {
			t.Errorf("before the first checkpoint: %+v", s)
		}
		seen = append(seen, s.Organization)
		return nil
	})
	if err != nil || len(seen) != len(trees) || seen[599] != trees[599].Organization {
		t.Errorf("%d of %d, %v", len(seen), len(trees), err)
	}
	refused := errors.New("gone")
	err = state.Reader{Trees: trees}.Each(t.Context(), func(state.State) error { return refused })
	if !errors.Is(err, refused) {
		t.Errorf("the end of the caller is %v", err)
	}
}
