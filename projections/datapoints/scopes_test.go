package datapoints_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/datapoints"
)

// lines makes memories of which only the number counts.
func lines(n int) []memory.Memory { return make([]memory.Memory, n) }

// memorized stores the memories of a revision.
func (w *fixture) memorized(send, source string, revision, memories int) {
	w.last = w.Append(stream.Name(stream.Memory, id(source)), &memory.Derived{
		ProjectID: w.project, IngestionID: id(send), Revision: revision, Extractor: "builtin/1",
		DerivedAt: w.at(), OccurredAt: noon, Memories: lines(memories),
	})
}

func TestScopes(t *testing.T) {
	w := newFixture(t)
	team := id("team")
	want := func(want map[uuid.UUID]int64) {
		t.Helper()
		w.apply()
		got, err := w.Queries.Scopes(t.Context(), project)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("scopes (-want +got):\n%s", diff)
		}
		counts, err := w.Queries.Counts(t.Context(), w.Queries.DB, []uuid.UUID{project.ID, neighbour.ID}, "2026-11")
		if err != nil {
			t.Fatal(err)
		}
		var sum int64
		for _, n := range want {
			sum += n
		}
		if got := counts[project.ID]; got.Live+got.Memories != sum {
			t.Errorf("the project counts %+v, want %d", got, sum)
		}
		if got := counts[neighbour.ID]; got != (datapoints.Counts{}) {
			t.Errorf("the neighbour counts %+v", got)
		}
		if got, err := w.Queries.Scopes(t.Context(), neighbour); err != nil || len(got) > 0 {
			t.Errorf("the neighbour has %v, %v", got, err)
		}
	}
	want(map[uuid.UUID]int64{})
	w.revised("s1", "a", alone)
	w.revised("s2", "b", alone)
	want(map[uuid.UUID]int64{uuid.Nil: 2})
	w.memorized("s1", "a", 1, 3)
	want(map[uuid.UUID]int64{uuid.Nil: 5})
	w.moved("s3", "a", team, alone)
	want(map[uuid.UUID]int64{uuid.Nil: 1, team: 4})
	w.revised("s4", "a", alone) // the memories of the older revision count until this one has its own
	want(map[uuid.UUID]int64{uuid.Nil: 1, team: 4})
	w.memorized("s4", "a", 2, 1)
	want(map[uuid.UUID]int64{uuid.Nil: 1, team: 2})
	w.memorized("s4", "a", 2, 5) // derived again
	want(map[uuid.UUID]int64{uuid.Nil: 1, team: 6})
	w.memorized("s1", "a", 1, 9) // an older revision does not count
	want(map[uuid.UUID]int64{uuid.Nil: 1, team: 6})
	w.deleted("d", "a", true)
	want(map[uuid.UUID]int64{uuid.Nil: 1})
	w.memorized("s4", "a", 2, 7) // by a worker that missed the deletion
	want(map[uuid.UUID]int64{uuid.Nil: 1})
	w.revised("s5", "c", alone) // created and deleted within a page
	w.deleted("d2", "c", true)
	w.deleted("d3", "b", true)
	want(map[uuid.UUID]int64{})
}

// Memories in a blob are counted. A missing blob has none; one that cannot be read now fails the
// page.
func TestScopes_MemoriesInBlobs(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.revised("s1", "a", alone)
	w.apply()
	data, err := memory.Encode(lines(4))
	if err != nil {
		t.Fatal(err)
	}
	w.last = w.Append(stream.Name(stream.Memory, id("a")), &memory.Derived{
		ProjectID: w.project, IngestionID: id("s1"), Revision: 1, DerivedAt: noon, OccurredAt: noon,
		Blob: &blob.Ref{Stream: "blob-a"},
	})
	page := [][]eventstore.DecodedEvent{w.Facts}
	for name, c := range map[string]struct {
		blobs projectiontest.Blobs
		want  int64
	}{"there": {projectiontest.Blobs{"blob-a": data}, 5}, "gone": {nil, 1}, "damaged": {projectiontest.Blobs{"blob-a": []byte("[{")}, 1}} {
		w := newFixture(t)
		err := projectiontest.Inspect(t.Context(), w.Queries.DB, datapoints.New(c.blobs), page, func(tx pgx.Tx) error {
			var got int64
			err := tx.QueryRow(t.Context(), `select live + memories from datapoints.scopes`).Scan(&got)
			if got != c.want {
				t.Errorf("%s: %d, want %d", name, got, c.want)
			}
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	err = projectiontest.Inspect(
		t.Context(), w.Queries.DB, datapoints.New(unavailableBlobs{}), page, func(pgx.Tx) error { return nil },
	)
	if !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("a store that is away: %v", err)
	}
}
