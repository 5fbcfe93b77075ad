package memories_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/memories"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func id(name string) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)) }

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// store holds blobs by stream; an error makes a blob unreadable.
type store map[string]any

func (s store) ReadBlob(_ context.Context, ref blob.Ref) ([]byte, error) {
	switch found := s[ref.Stream].(type) {
	case []byte:
		return found, nil
	case error:
		return nil, found
	default:
		return nil, &eventstore.BlobError{Stream: ref.Stream, Missing: true}
	}
}

func storeOf(blobs map[string][]byte) store {
	s := store{}
	for name, data := range blobs {
		s[name] = data
	}
	return s
}

func projector(blobs store) *memories.Projector {
	return memories.New(blobs, slog.New(slog.DiscardHandler))
}

func line(source string, revision, n int, content string) memory.Memory {
	return memory.Memory{
		ID: memory.ID(id(source), revision, n), Kind: memory.Claim, Content: content, Excerpt: content,
		Start: 1, End: 2, Subject: "ana", Attribute: "editor",
		Inputs: []uuid.UUID{datapoint.NodeID(id(source), revision)},
	}
}

type writer struct{ projectiontest.Log }

func (w *writer) derived(source string, revision int, lines ...memory.Memory) {
	w.Append(stream.Name(stream.Memory, id(source)), &memory.Derived{
		ProjectID: id("project"), Revision: revision, DerivedAt: noon.Add(time.Hour), OccurredAt: noon, Memories: lines,
	})
}

func (w *writer) derivedBlob(source string, revision int, name string) {
	w.Append(stream.Name(stream.Memory, id(source)), &memory.Derived{
		ProjectID: id("project"), Revision: revision, DerivedAt: noon, OccurredAt: noon, Blob: &blob.Ref{Stream: name},
	})
}

func (w *writer) deleted(operation, source string) {
	w.Append(stream.Name(stream.DataPoint, id(source)),
		&datapoint.Deleted{ProjectID: id("project"), DeletionID: id(operation), Single: true})
}

func (w *writer) kept(operation, source string) {
	w.Append(stream.Name(stream.Deletion, id(operation)),
		&deletion.FactsKept{ProjectID: id("project"), DataPoint: id(source)})
}

func (w *writer) cleaned(operation string) {
	w.Append(stream.Name(stream.Deletion, id(operation)), &deletion.Cleaned{ProjectID: id("project")})
}

// lines reads "source revision ordinal: content" of every memory.
func lines(t *testing.T, db *pgxpool.Pool, sources ...string) []string {
	t.Helper()
	list := []string{}
	for _, source := range sources {
		rows, err := db.Query(t.Context(), `select revision, ordinal, content, (select count(*) from memories.edges e
			where e.derived_id = m.id)
			from memories.memories m where data_point = $1 order by revision, ordinal`, id(source))
		if err != nil {
			t.Fatal(err)
		}
		var (
			revision, ordinal, edges int
			content                  []byte
		)
		if _, err := pgx.ForEachRow(rows, []any{&revision, &ordinal, &content, &edges}, func() error {
			list = append(list, fmt.Sprintf("%s %d %d: %s, %d inputs", source, revision, ordinal, content, edges))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		var newest int
		switch err := db.QueryRow(t.Context(), `select revision from memories.captured
			where data_point = $1`, id(source)).Scan(&newest); {
		case err == nil:
			list = append(list, fmt.Sprintf("%s newest %d", source, newest))
		case !errors.Is(err, pgx.ErrNoRows):
			t.Fatal(err)
		}
	}
	return list
}

func TestApply(t *testing.T) {
	encoded, err := memory.Encode([]memory.Memory{line("a", 1, 0, "from a blob")})
	if err != nil {
		t.Fatal(err)
	}
	blobs := store{
		"blob-whole": encoded, "blob-damaged": &eventstore.BlobError{Stream: "blob-damaged"},
		"blob-unreadable": []byte("{"),
	}
	db, p := pgtest.Database(t), projector(blobs)
	projectiontest.Make(t, db, p)
	for _, c := range []struct {
		name  string
		given func(w *writer)
		want  []string
	}{
		{"memories of two revisions", func(w *writer) {
			w.derived("a", 1, line("a", 1, 0, "one"), line("a", 1, 1, "two"))
			w.derived("a", 2, line("a", 2, 0, "three"))
		}, []string{"a 1 0: one, 1 inputs", "a 1 1: two, 1 inputs", "a 2 0: three, 1 inputs", "a newest 2"}},
		{"a revision without any", func(w *writer) {
			w.derived("a", 1, line("a", 1, 0, "one"))
			w.derived("a", 2)
		}, []string{"a 1 0: one, 1 inputs", "a newest 2"}},
		{"an older revision derived again", func(w *writer) {
			w.derived("a", 1, line("a", 1, 0, "one"), line("a", 1, 1, "two"))
			w.derived("a", 2, line("a", 2, 0, "three"))
			w.derived("a", 1, line("a", 1, 0, "better"))
		}, []string{"a 1 0: better, 1 inputs", "a 2 0: three, 1 inputs", "a newest 2"}},
		{"memories in a blob", func(w *writer) { w.derivedBlob("a", 1, "blob-whole") }, []string{"a 1 0: from a blob, 1 inputs", "a newest 1"}},
		{"a missing blob", func(w *writer) { w.derivedBlob("a", 1, "blob-missing") }, []string{"a newest 1"}},
		{"a damaged blob", func(w *writer) { w.derivedBlob("a", 1, "blob-damaged") }, []string{"a newest 1"}},
		{"a blob that is no list", func(w *writer) { w.derivedBlob("a", 1, "blob-unreadable") }, []string{"a newest 1"}},
		{"a deletion takes all of a data point, and nothing of another", func(w *writer) {
			w.derived("a", 1, line("a", 1, 0, "one"))
			w.derived("b", 1, line("b", 1, 0, "two"))
			w.deleted("d", "a")
		}, []string{"b 1 0: two, 1 inputs", "b newest 1"}},
		{"what is derived too late", func(w *writer) {
			w.deleted("d", "a")
			w.derived("a", 1, line("a", 1, 0, "late"))
			w.kept("d", "a")
			w.derived("a", 2, line("a", 2, 0, "later"))
		}, []string{}},
		{"the deletion itself was erased", func(w *writer) {
			w.derived("a", 1, line("a", 1, 0, "one"))
			w.kept("d", "a")
			w.derived("a", 2, line("a", 2, 0, "late"))
		}, []string{}},
		{"zero bytes, a subject that no index holds, a memory that stands twice", func(w *writer) {
			long := line("a", 1, 0, "one\x00")
			long.Subject, long.Attribute = strings.Repeat("x", 5000), "a\x00b\xff"
			w.derived("a", 1, long, long)
		}, []string{"a 1 0: one\x00, 1 inputs", "a newest 1"}},
	} {
		for _, whole := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, in one page %v", c.name, whole), func(t *testing.T) {
				projectiontest.Empty(t, db, p)
				w := &writer{}
				c.given(w)
				if whole {
					projectiontest.Apply(t, db, p, w.Facts...)
				} else {
					for _, f := range w.Facts {
						projectiontest.Apply(t, db, p, f)
					}
				}
				if diff := cmp.Diff(c.want, lines(t, db, "a", "b")); diff != "" {
					t.Errorf("memories (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestApply_DerivedAgain(t *testing.T) {
	db, p, w := pgtest.Database(t), projector(nil), &writer{}
	projectiontest.Make(t, db, p)
	w.derived("a", 1, line("a", 1, 0, "one"), line("a", 1, 1, "two"))
	w.derived("a", 1, line("a", 1, 0, "one"))
	for _, f := range w.Facts {
		projectiontest.Apply(t, db, p, f)
	}
	var edges int
	if err := db.QueryRow(t.Context(), `select count(*) from memories.edges`).Scan(&edges); err != nil || edges != 1 {
		t.Errorf("%d edges, %v", edges, err)
	}
}

func TestApply_UnavailableBlob(t *testing.T) {
	db, w := pgtest.Database(t), &writer{}
	p := projector(store{"blob-busy": fmt.Errorf("read blob: %w", eventstore.ErrUnavailable)})
	projectiontest.Make(t, db, p)
	w.derivedBlob("a", 1, "blob-busy")
	if _, err := projectiontest.Rows(
		t.Context(), db, p, [][]eventstore.DecodedEvent{w.Facts},
	); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("error is %v", err)
	}
}

func TestApply_CleanedDeletion(t *testing.T) {
	db, p, w := pgtest.Database(t), projector(nil), &writer{}
	projectiontest.Make(t, db, p)
	w.derived("a", 1, line("a", 1, 0, "one"))
	w.deleted("d", "a")
	w.kept("d", "a")
	w.cleaned("d")
	projectiontest.Apply(t, db, p, w.Facts...)
	dump, err := projectiontest.Dump(t.Context(), db, p)
	if err != nil || len(dump) != 0 {
		t.Errorf("left: %v, %v", dump, err)
	}
}

func TestApply_PageSizes(tt *testing.T) {
	db := pgtest.Database(tt)
	projectiontest.Make(tt, db, projector(nil))
	rapid.Check(tt, func(t *rapid.T) {
		h := projectiontest.DrawBlobHistory(t)
		p := projector(storeOf(h.Blobs))
		var single [][]eventstore.DecodedEvent
		for _, f := range h.Facts {
			single = append(single, []eventstore.DecodedEvent{f})
		}
		want := rows(t, tt, db, p, single)
		if diff := cmp.Diff(want, rows(t, tt, db, p, projectiontest.Cut(t, h.Facts))); diff != "" {
			t.Fatalf("rows of pages differ from those of single events (-single +pages):\n%s", diff)
		}
	})
}

func TestApply_ErasedStreams(tt *testing.T) {
	db := pgtest.Database(tt)
	projectiontest.Make(tt, db, projector(nil))
	rapid.Check(tt, func(t *rapid.T) {
		h := projectiontest.DrawBlobHistory(t)
		want := rows(t, tt, db, projector(storeOf(h.Blobs)), projectiontest.Cut(t, h.Facts))
		if diff := cmp.Diff(
			want, rows(t, tt, db, projector(storeOf(h.LeftBlobs())), projectiontest.Cut(t, h.WithoutErased(t))),
		); diff != "" {
			t.Fatalf("rows differ (-whole +erased):\n%s", diff)
		}
		for deleted := range h.Deleted {
			for table, list := range want {
				for _, row := range list {
					if table != "gone" && strings.Contains(row, deleted.String()) {
						t.Fatalf("%s holds a deleted data point: %s", table, row)
					}
				}
			}
		}
	})
}

func rows(
	t *rapid.T, tt *testing.T, db *pgxpool.Pool, p *memories.Projector, pages [][]eventstore.DecodedEvent,
) map[string][]string {
	tt.Helper()
	return projectiontest.RowsAfter(t, tt, db, p.WithRows(rapid.SampledFrom([]int{1, 2, 1000}).Draw(t, "rows of a slice")), pages)
}
