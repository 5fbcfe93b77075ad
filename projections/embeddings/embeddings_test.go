package embeddings_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/recall/recalltest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// fixture is a harness with semantic search and columns to inspect.
type fixture struct {
	*recalltest.Harness
	t       *testing.T
	columns *embeddings.Columns
}

func newFixture(t *testing.T) *fixture {
	h := recalltest.New(t, nil)
	h.UseSemantic(nil)
	return &fixture{h, t, embeddings.NewColumns(h.DB, recalltest.HashModel)}
}

// near returns the source ids found among those given, best first.
func (w *fixture) near(columns *embeddings.Columns, q embeddings.Query, text string, among ...string) (found []string) {
	w.t.Helper()
	q.Project, q.Size = w.Project.ID, max(q.Size, 1)
	embed := func() ([]float32, error) { return recalltest.Hashed(w.t.Context(), text) }
	nearest, err := columns.Nearest(w.t.Context(), q, embed)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, hit := range nearest.Hits {
		if hit.Similarity < 0.4 {
			continue
		}
		i := slices.IndexFunc(among, func(id string) bool { return w.DataPoint(id) == hit.DataPoint })
		if i < 0 {
			w.t.Fatalf("found %s, which is none of %v", hit.DataPoint, among)
		}
		found = append(found, among[i])
	}
	return found
}

func (w *fixture) want(what string, got []string, want ...string) {
	w.t.Helper()
	if !slices.Equal(got, want) {
		w.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestNearest_WithinReach(t *testing.T) {
	w := newFixture(t)
	team, noon := uuid.New(), w.Now
	w.Send(recalltest.DataPoint{ID: "green", Content: "green tea from Japan", OccurredAt: noon.Add(-48 * time.Hour)})
	w.Send(recalltest.DataPoint{ID: "black", Content: "black tea", OccurredAt: noon})
	w.Send(recalltest.DataPoint{ID: "secret", Content: "green tea", Audience: team, OccurredAt: noon})
	w.CatchUp()
	all := []string{"green", "black", "secret"}
	public := embeddings.Query{Audiences: []uuid.UUID{uuid.Nil}, Size: 9}
	w.want("for everybody", w.near(w.columns, public, "green tea", all...), "green", "black")
	w.want("for the team",
		w.near(w.columns, embeddings.Query{Audiences: []uuid.UUID{uuid.Nil, team}, Size: 9}, "green tea", all...), "secret",
		"green", "black")
	w.want("for nobody", w.near(w.columns, embeddings.Query{Size: 9}, "green tea", all...))
	late, early := noon.Add(-time.Hour), noon.Add(-24*time.Hour)
	w.want("late",
		w.near(w.columns, embeddings.Query{Audiences: public.Audiences, From: &late, Size: 9}, "green tea", all...), "black")
	w.want("early",
		w.near(w.columns, embeddings.Query{Audiences: public.Audiences, To: &early, Size: 9}, "green tea", all...), "green")
	w.want("the best", w.near(w.columns, embeddings.Query{Audiences: public.Audiences, Size: 1}, "green tea", all...),
		"green")
	w.want("by another model", w.near(embeddings.NewColumns(w.DB, "other"), public, "green tea", all...))

	// Changes are known at once: a move, a new revision, a deletion.
	w.Send(recalltest.DataPoint{ID: "green", Content: "green tea from Japan", Audience: team, OccurredAt: noon})
	w.Send(recalltest.DataPoint{ID: "black", Content: "coffee", OccurredAt: noon})
	w.CatchUp()
	w.want("after the move", w.near(w.columns, public, "green tea", all...))
	w.want("of the new revision", w.near(w.columns, public, "coffee", all...), "black")
	w.Delete("black")
	w.CatchUp()
	var rows int
	if err := w.DB.QueryRow(t.Context(), "select count(*) from embeddings.points").Scan(&rows); err != nil || rows != 2 {
		t.Errorf("%d rows after the deletion, %v", rows, err)
	}
	w.want("read again", w.near(embeddings.NewColumns(w.DB, recalltest.HashModel), public, "coffee", all...))
}

// Vectors count once all parts are stored. Parts of another revision or of a new attempt do not
// mix.
func TestApply_Parts(t *testing.T) {
	w := newFixture(t)
	revision := w.Send(recalltest.DataPoint{ID: "a", Content: "..."})
	w.Derive("a", revision, w.Now, false)
	w.CatchUp()
	queries := embeddings.Queries{DB: w.DB}
	due := func(model string) int {
		t.Helper()
		list, err := queries.Unembedded(t.Context(), nil, 10)
		if err != nil {
			t.Fatal(err)
		}
		others, err := queries.EmbeddedByOthers(t.Context(), model, nil, 10)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, others...)
		for _, e := range list {
			if e.DataPoint != w.DataPoint("a") || e.Revision != revision || e.ProjectID != w.Project.ID {
				t.Errorf("due %+v", e)
			}
		}
		return len(list)
	}
	if due(recalltest.HashModel) != 0 || due("a model") != 1 || due("the model") != 1 {
		t.Fatal("the list is not of what has no vectors of the model")
	}
	part := func(revision, n, of int, code ...byte) {
		t.Helper()
		w.Append(stream.Name(stream.Memory, w.DataPoint("a")), memory.Embedded{
			ProjectID: w.Project.ID, Revision: revision, Model: "parts", Dims: 2, Part: n, Parts: of, EmbeddedAt: w.Now,
			Vectors: []memory.Vector{{Scale: 1, Code: code}},
		})
		w.CatchUp(embeddings.Name)
	}
	vectors := func() (packed []byte) {
		t.Helper()
		if err := w.DB.QueryRow(t.Context(), "select vectors from embeddings.vectors where model = 'parts' and dims > 0").
			Scan(&packed); err != nil {
			return nil
		}
		return packed
	}
	part(revision, 1, 2, 9, 9)
	part(revision, 1, 2, 1, 2)
	part(revision+1, 2, 2, 8, 8)
	part(revision, 2, 3, 3, 4)
	if vectors() != nil || due("parts") != 1 {
		t.Error("a part alone counts")
	}
	part(revision, 3, 3, 5, 6)
	want := []byte{0, 0, 128, 63, 1, 2, 0, 0, 128, 63, 3, 4, 0, 0, 128, 63, 5, 6}
	if got := vectors(); !slices.Equal(got, want) || due("parts") != 0 {
		t.Errorf("vectors %v, want %v", got, want)
	}
	if list, err := queries.EmbeddedByOthers(
		t.Context(), "x", []uuid.UUID{w.DataPoint("a")}, 10,
	); err != nil || len(list) != 0 {
		t.Errorf("but for it: %v, %v", list, err)
	}
}

func TestNearest_CancelledContext(t *testing.T) {
	w := newFixture(t)
	w.Send(recalltest.DataPoint{ID: "a", Content: "green tea"})
	w.CatchUp()
	embed := func() ([]float32, error) { return recalltest.Hashed(t.Context(), "tea") }
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	q := embeddings.Query{Project: w.Project.ID, Audiences: []uuid.UUID{uuid.Nil}, Size: 1}
	if nearest, err := w.columns.Nearest(ended, q, embed); err == nil {
		t.Errorf("hits %v", nearest.Hits)
	}
}

// A text can be guessed from its vector: Postgres must keep no vectors in its statistics.
func TestSchema_NoVectorStatistics(t *testing.T) {
	db := pgtest.Database(t)
	projectiontest.Make(t, db, embeddings.New())
	var columns string
	err := db.QueryRow(t.Context(), `select string_agg(attname, ' ' order by attname) from pg_attribute
		where attrelid = 'embeddings.vectors'::regclass and atttypid = 'bytea'::regtype and coalesce(attstattarget,
			-1) = 0`).Scan(&columns)
	if err != nil || columns != "partial vectors" {
		t.Errorf("columns without statistics are %q, %v", columns, err)
	}
}

// A process that lacks removals which are no longer listed reads the project again.
func TestNearest_PrunedRemovals(t *testing.T) {
	w := newFixture(t)
	for _, id := range []string{"a", "b"} {
		w.Send(recalltest.DataPoint{ID: id, Content: "green tea"})
	}
	w.CatchUp()
	q := embeddings.Query{Audiences: []uuid.UUID{uuid.Nil}, Size: 9}
	if got := w.near(w.columns, q, "tea", "a", "b"); len(got) != 2 {
		t.Fatalf("found %v", got)
	}
	for _, statement := range []string{
		`delete from embeddings.points where id = $2 and $1::uuid is not null`,
		`insert into embeddings.pruned (project_id, position) select $1, 1::bigint << 40 where $2::uuid is not null`,
		`insert into embeddings.removals (project_id, position, id) values ($1, (1::bigint << 40) + 1, $2)`,
	} {
		if _, err := w.DB.Exec(t.Context(), statement, w.Project.ID, w.DataPoint("a")); err != nil {
			t.Fatal(err)
		}
	}
	w.want("after the deletion", w.near(w.columns, q, "tea", "a", "b"), "b")
	w.want("again", w.near(w.columns, q, "tea", "a", "b"), "b")
}

// Only the last removals of a project stay listed.
func TestApply_PrunesRemovals(t *testing.T) {
	w := newFixture(t)
	_, err := w.DB.Exec(t.Context(), `insert into embeddings.removals (project_id, position, id)
		select $1, -n, gen_random_uuid() from generate_series(1, 1200) n`, w.Project.ID)
	if err != nil {
		t.Fatal(err)
	}
	w.Send(recalltest.DataPoint{ID: "a", Content: "tea"})
	w.Delete("a")
	w.CatchUp()
	var listed, pruned int
	err = w.DB.QueryRow(t.Context(), `select count(*), (select position from embeddings.pruned) from embeddings.removals`).
		Scan(&listed, &pruned)
	if err != nil || listed != 1000 || pruned != -1000 {
		t.Errorf("%d removals are listed, those up to %d are not, %v", listed, pruned, err)
	}
}

// While another model embeds, both have their vectors. After the switch those of the first are dropped.
func TestLiveModel(t *testing.T) {
	w := newFixture(t)
	live := embeddings.LiveModel{DB: w.DB}
	for _, name := range []string{recalltest.HashModel, "other"} {
		if got, err := live.Begin(t.Context(), name); err != nil || got != recalltest.HashModel {
			t.Fatalf("live %q, %v", got, err)
		}
	}
	for _, id := range []string{"a", "b"} {
		revision := w.Send(recalltest.DataPoint{ID: id, Content: "green tea"})
		w.Derive(id, revision, w.Now, false)
	}
	w.CatchUp()
	w.Append(stream.Name(stream.Memory, w.DataPoint("a")), memory.Embedded{
		ProjectID: w.Project.ID, Revision: 1, Model: "other", Dims: 2, Part: 1, Parts: 1, EmbeddedAt: w.Now,
		Vectors: []memory.Vector{{Scale: 1, Code: []byte{1, 2}}},
	})
	w.CatchUp(embeddings.Name)
	q := embeddings.Query{Audiences: []uuid.UUID{uuid.Nil}, Size: 9}
	if got := w.near(w.columns, q, "tea", "a", "b"); len(got) != 2 {
		t.Errorf("by the live model: %v", got)
	}
	queries := embeddings.Queries{DB: w.DB}
	if p, err := queries.Progress(t.Context(), "other"); err != nil ||
		p != (embeddings.Progress{Model: "other", Live: recalltest.HashModel, Embedded: 1, Captured: 2}) {
		t.Errorf("progress %+v, %v", p, err)
	}
	models := func() (list string) {
		t.Helper()
		err := w.DB.QueryRow(t.Context(), `select coalesce(string_agg(model, ', ' order by model), '') from embeddings.vectors`).
			Scan(&list)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if err := live.Switch(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	if err := live.DropOthers(t.Context(), time.Hour); err != nil || models() != "hashed words, hashed words, other" {
		t.Errorf("right after the switch: %s, %v", models(), err)
	}
	if err := live.DropOthers(t.Context(), 0); err != nil || models() != "other" {
		t.Errorf("later: %s, %v", models(), err)
	}
}
