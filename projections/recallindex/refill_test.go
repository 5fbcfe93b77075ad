package recallindex_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// makeRows makes the schema of the index, and the columns of the checkpoint that a refill reads.
func makeRows(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	projectiontest.Make(t, db, projector(indextest.NewMemory(), &texts{}))
	if _, err := db.Exec(t.Context(), `create table recallindex.checkpoint (target text)`); err != nil {
		t.Fatal(err)
	}
}

func begin(ctx context.Context, db *pgxpool.Pool, index recallindex.Index) error {
	_, err := db.Exec(ctx, `truncate recallindex.data_points, recallindex.checkpoint`)
	if err == nil {
		_, err = db.Exec(ctx, `insert into recallindex.checkpoint values ($1)`, index.Generation())
	}
	return err
}

// lockedTexts are texts that several goroutines read.
type lockedTexts struct {
	mu sync.Mutex
	texts
}

func (l *lockedTexts) At(
	ctx context.Context, name string, at eventstore.Revision,
) (eventstore.DecodedEvent, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.texts.At(ctx, name, at)
}

// Whatever is lost, and whenever, while pages go on and transactions are rolled back, the index
// ends as the log describes.
func TestRefill_AmongPages(t *testing.T) {
	db := pgtest.Database(t)
	makeRows(t, db)
	rapid.Check(t, func(r *rapid.T) {
		h := projectiontest.DrawBlobHistory(r)
		want := expected(r, h)
		index := indextest.NewMemory()
		if err := begin(t.Context(), db, index); err != nil {
			r.Fatal(err)
		}
		p := projector(index, &texts{events: h.Facts, blobs: h.Blobs})
		refiller := recallindex.New(index, &lockedTexts{texts: texts{events: h.Facts, blobs: h.Blobs}}, recall.NewAnalyzers(),
			slog.New(slog.DiscardHandler))
		refill := func() error {
			for _, loss := range index.Losses() {
				if err := refiller.Refill(t.Context(), db, loss); err != nil && !errors.Is(err, recallindex.ErrDamaged) {
					return err
				}
			}
			return nil
		}
		projects := slices.Collect(maps.Keys(want))
		var background sync.WaitGroup
		stop, failed := make(chan struct{}), make(chan error, 1)
		background.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := refill(); err != nil {
					failed <- err
					return
				}
			}
		})
		for _, page := range projectiontest.Cut(r, h.Facts) {
			if len(projects) > 0 && rapid.Bool().Draw(r, "damage") {
				index.Damage(rapid.SampledFrom(projects).Draw(r, "project"))
			}
			lose := func() bool { return rapid.Bool().Draw(r, "lost") }
			if err := apply(t.Context(), db.Begin, p, [][]eventstore.DecodedEvent{page}, lose); err != nil {
				r.Fatal(err)
			}
		}
		close(stop)
		background.Wait()
		close(failed)
		if err := errors.Join(<-failed, refill()); err != nil {
			r.Fatal(err)
		}
		if n := len(index.Losses()); n > 0 {
			r.Fatalf("%d losses are left", n)
		}
		if diff := cmp.Diff(want, index.Documents()); diff != "" {
			r.Fatalf("index (-want +got):\n%s", diff)
		}
	})
}

// between applies a page after a text was read.
type between struct {
	texts
	then func()
}

func (b *between) At(ctx context.Context, name string, at eventstore.Revision) (eventstore.DecodedEvent, bool, error) {
	e, ok, err := b.texts.At(ctx, name, at)
	if b.then != nil {
		then := b.then
		b.then = nil
		then()
	}
	return e, ok, err
}

// What is deleted, moved or replaced after a refill read its text is not restored.
func TestRefill_PageAfterTheTextWasRead(t *testing.T) {
	db, id, team := pgtest.Database(t), uuid.New(), uuid.New()
	makeRows(t, db)
	moved, second := accepted(1, datapoint.Text{}), accepted(2, datapoint.Text{Inline: "vim"})
	moved.Effect.Audience = team
	type entry struct {
		Part     recallindex.Part
		Revision int
		Audience uuid.UUID
		Word     string
	}
	for name, c := range map[string]struct {
		then event.Event
		want []entry
	}{
		"deleted":  {&datapoint.Deleted{}, nil},
		"moved":    {&datapoint.Moved{Send: moved.Send, States: moved.States}, []entry{{recallindex.Memories, 1, team, "helix"}, {recallindex.Sources, 1, team, "helix"}}},
		"replaced": {second, []entry{{recallindex.Memories, 1, uuid.Nil, "helix"}, {recallindex.Sources, 2, uuid.Nil, "vim"}}},
	} {
		t.Run(name, func(t *testing.T) {
			index, log := indextest.NewMemory(), new(projectiontest.Log)
			if err := begin(t.Context(), db, index); err != nil {
				t.Fatal(err)
			}
			log.Append(stream.Name(stream.DataPoint, id), accepted(1, datapoint.Text{Inline: "helix"}))
			log.Append(stream.Name(stream.Memory, id), &memory.Derived{
				ProjectID: uuid.UUID{1}, Revision: 1, OccurredAt: when,
				Memories: []memory.Memory{{ID: uuid.New(), Content: "helix"}},
			})
			p := projector(index, &texts{})
			projectiontest.Apply(t, db, p, log.Facts...)
			index.Damage(uuid.UUID{1})
			read := &between{texts: texts{events: log.Facts}}
			read.then = func() {
				log.Append(stream.Name(stream.DataPoint, id), c.then)
				projectiontest.Apply(t, db, p, log.Facts[2])
			}
			if err := projector(index, read).Refill(t.Context(), db, index.Losses()[0]); err != nil {
				t.Fatal(err)
			}
			var got []entry
			for k, d := range index.Documents()[uuid.UUID{1}] {
				got = append(got, entry{k.Part(), k.Revision, d.Audience, d.Terms.Text[0]})
			}
			slices.SortFunc(got, func(a, b entry) int { return cmpPart(a.Part, b.Part) })
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func cmpPart(a, b recallindex.Part) int {
	if a < b {
		return -1
	}
	return 1
}

// Rows of another process's index refill nothing, and a text that cannot be read now ends nothing.
func TestRefill_WaitsForWhatIsMissing(t *testing.T) {
	db, index := pgtest.Database(t), indextest.NewMemory()
	makeRows(t, db)
	if err := begin(t.Context(), db, indextest.NewMemory()); err != nil {
		t.Fatal(err)
	}
	log := new(projectiontest.Log)
	log.Append(stream.Name(stream.DataPoint, uuid.New()), accepted(1, datapoint.Text{Inline: "helix"}))
	l := &texts{events: log.Facts}
	p := projector(index, l)
	projectiontest.Apply(t, db, p, log.Facts...)
	index.Damage(uuid.UUID{1})
	if err := p.Refill(t.Context(), db, index.Losses()[0]); err == nil || l.reads > 0 {
		t.Errorf("rows of another index: %d texts are read, %v", l.reads, err)
	}
	if _, err := db.Exec(t.Context(), `update recallindex.checkpoint set target = $1`, index.Generation()); err != nil {
		t.Fatal(err)
	}
	l.err = eventstore.ErrUnavailable
	if err := p.Refill(t.Context(), db, index.Losses()[0]); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("a text that cannot be read now: %v", err)
	}
	if len(index.Losses()) != 1 {
		t.Error("the part counts as whole")
	}
	l.err = nil
	if err := p.Refill(t.Context(), db, index.Losses()[0]); err != nil {
		t.Fatal(err)
	}
	if len(index.Losses()) != 0 || len(index.Documents()[uuid.UUID{1}]) != 1 {
		t.Errorf("losses %v, documents %v", index.Losses(), index.Documents())
	}
}
