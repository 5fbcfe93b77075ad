package recallindex_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// texts reads events of a given log, and blobs of a map.
type texts struct {
	events []eventstore.DecodedEvent
	blobs  map[string][]byte
	reads  int
	err    error
}

func (l *texts) At(_ context.Context, name string, at eventstore.Revision) (eventstore.DecodedEvent, bool, error) {
	l.reads++
	for _, f := range l.events {
		if f.Stream == name && f.Revision == at {
			return f, true, l.err
		}
	}
	return eventstore.DecodedEvent{}, false, l.err
}

func (l *texts) ReadBlob(_ context.Context, ref blob.Ref) ([]byte, error) {
	l.reads++
	data, ok := l.blobs[ref.Stream]
	if !ok && l.err == nil {
		return nil, &eventstore.BlobError{Stream: ref.Stream, Missing: true}
	}
	return data, l.err
}

func projector(index recallindex.Index, l recallindex.Texts) *recallindex.Projector {
	return recallindex.New(index, l, recall.NewAnalyzers(), slog.New(slog.DiscardHandler))
}

type documents = map[uuid.UUID]map[recallindex.Key]recallindex.Document

// expected is what an index holds of a log: for each live data point the passages of its newest
// revision and the memories of its newest derivation, with its newest audience.
func expected(t *rapid.T, h *projectiontest.History) documents {
	type liveRow struct {
		project  uuid.UUID
		accepted *datapoint.RevisionAccepted
		audience uuid.UUID
		derived  *memory.Derived
	}
	points := map[uuid.UUID]*liveRow{}
	for _, f := range h.Facts {
		id := stream.Owner(f.Stream)
		switch e := f.Event.(type) {
		case *datapoint.RevisionAccepted:
			if e.Historic() {
				continue
			}
			if points[id] == nil {
				points[id] = &liveRow{project: e.ProjectID}
			}
			points[id].accepted, points[id].audience = e, e.Effect.Audience
		case *datapoint.Moved:
			if !e.Historic() && points[id] != nil {
				points[id].audience = e.Effect.Audience
			}
		case *datapoint.Deleted:
			delete(points, id)
		case *memory.Derived:
			if p := points[id]; p != nil && (p.derived == nil || e.Revision >= p.derived.Revision) {
				p.derived = e
			}
		}
	}
	all, analyzer := documents{}, recall.NewAnalyzer()
	put := func(project uuid.UUID, d recallindex.Document) {
		if all[project] == nil {
			all[project] = map[recallindex.Key]recallindex.Document{}
		}
		all[project][d.Key] = d
	}
	for id, p := range points {
		effect, content := p.accepted.Effect, p.accepted.Content.Inline
		if ref := p.accepted.Content.Blob; ref != nil {
			content = string(h.Blobs[ref.Stream])
		}
		for n, terms := range analyzer.Passages(recall.Document{Content: content, Author: p.accepted.Author}) {
			put(p.project, recallindex.Document{
				Key: recallindex.Key{DataPoint: id, Revision: effect.Revision, N: n}, Audience: p.audience,
				OccurredAt: effect.OccurredAt, Terms: terms, Tie: recallindex.TieOf(effect.SourceID, fmt.Sprint(n)),
			})
		}
		if p.derived == nil {
			continue
		}
		lines := p.derived.Memories
		if ref := p.derived.Blob; ref != nil {
			var err error
			if lines, err = memory.Decode(h.Blobs[ref.Stream]); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range lines {
			put(p.project, recallindex.Document{
				Key: recallindex.Key{DataPoint: id, Revision: p.derived.Revision, Memory: m.ID}, Audience: p.audience,
				OccurredAt: p.derived.OccurredAt, Tie: recallindex.TieOf(m.Content),
				Terms: recall.Terms{Text: analyzer.Terms(m.Content)},
			})
		}
	}
	return all
}

// apply applies each page in a transaction; lose reports which of them are rolled back after the
// index was written.
func apply(
	ctx context.Context, begin func(context.Context) (pgx.Tx, error), p *recallindex.Projector,
	pages [][]eventstore.DecodedEvent, lose func() bool,
) error {
	for _, page := range pages {
		own := projectiontest.Own(p, page)
		if len(own) == 0 {
			continue
		}
		for lost := lose(); ; lost = false {
			tx, err := begin(ctx)
			if err != nil {
				return err
			}
			if err := projectiontest.Enter(ctx, tx, p); err != nil {
				return errors.Join(err, tx.Rollback(ctx))
			}
			if err := p.Apply(ctx, tx, own); err != nil {
				return errors.Join(err, tx.Rollback(ctx))
			}
			if !lost {
				if err := tx.Commit(ctx); err != nil {
					return err
				}
				break
			}
			if err := tx.Rollback(ctx); err != nil {
				return err
			}
			if len(own) > 1 {
				// The first half comes alone, as a page that is cut differently the second time.
				if err := apply(ctx, begin, p, [][]eventstore.DecodedEvent{own[:len(own)/2]},
					func() bool { return false }); err != nil {
					return err
				}
				own = own[len(own)/2:]
			}
		}
	}
	return nil
}

// verify calls Verify as a rebuild does.
func verify(ctx context.Context, begin func(context.Context) (pgx.Tx, error), p *recallindex.Projector) error {
	tx, err := begin(ctx)
	if err != nil {
		return err
	}
	return errors.Join(projectiontest.Enter(ctx, tx, p), p.Verify(ctx, tx), tx.Rollback(ctx))
}

// TestProjector_Histories: with any pages, and if transactions are rolled back after the index was
// written, the index holds what the log describes, and the rows do not depend on the pages. Without
// the events of erased streams it is the same.
func TestProjector_Histories(t *testing.T) {
	db := pgtest.Database(t)
	projectiontest.Make(t, db, projector(indextest.NewMemory(), &texts{}))
	rapid.Check(t, func(r *rapid.T) {
		h := projectiontest.DrawBlobHistory(r)
		run := func(events []eventstore.DecodedEvent, blobs map[string][]byte, lose func() bool) (documents,
			map[string][]string,
		) {
			index := indextest.NewMemory()
			p := projector(index, &texts{events: events, blobs: blobs})
			if _, err := db.Exec(t.Context(), `truncate recallindex.data_points`); err != nil {
				r.Fatal(err)
			}
			if err := apply(t.Context(), db.Begin, p, projectiontest.Cut(r, events), lose); err != nil {
				r.Fatal(err)
			}
			if err := verify(t.Context(), db.Begin, p); err != nil {
				r.Fatal(err)
			}
			rows, err := projectiontest.Dump(t.Context(), db, p)
			if err != nil {
				r.Fatal(err)
			}
			return index.Documents(), rows
		}
		held, rows := run(h.Facts, h.Blobs, func() bool { return false })
		want := expected(r, h)
		if diff := cmp.Diff(want, held); diff != "" {
			r.Fatalf("index (-want +got):\n%s", diff)
		}
		again, otherRows := run(h.Facts, h.Blobs, func() bool { return rapid.Bool().Draw(r, "lost") })
		if diff := cmp.Diff(want, again); diff != "" {
			r.Fatalf("index after lost transactions (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(rows, otherRows); diff != "" {
			r.Fatalf("rows of other pages (-one +other):\n%s", diff)
		}
		// Replay after the erasure, with rollbacks: no document and no row changes.
		left, leftRows := run(h.WithoutErased(r), h.LeftBlobs(), func() bool { return rapid.Bool().Draw(r, "lost") })
		if diff := cmp.Diff(want, left); diff != "" {
			r.Fatalf("index without erased events (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(rows, leftRows); diff != "" {
			r.Fatalf("rows without erased events (-whole +erased):\n%s", diff)
		}
	})
}

var when = time.Date(2025, 5, 12, 9, 0, 0, 0, time.UTC)

// accepted is a revision as it is sent.
func accepted(revision int, content datapoint.Text) *datapoint.RevisionAccepted {
	return &datapoint.RevisionAccepted{
		Send: datapoint.Send{ProjectID: uuid.UUID{1}, IngestionID: uuid.New(), Items: 1, AcceptedAt: when},
		States: datapoint.States{Effect: datapoint.State{
			SourceID: "a", Revision: revision, LastNumber: revision,
			OccurredAt: when,
		}},
		Body: datapoint.Body{Content: content},
	}
}

func TestProjector_Blobs(t *testing.T) {
	db, index := pgtest.Database(t), indextest.NewMemory()
	l := &texts{blobs: map[string][]byte{}}
	p := projector(index, l)
	projectiontest.Make(t, db, p)
	id := uuid.New()
	log := new(projectiontest.Log)
	l.blobs["content"] = []byte("helix")
	data, err := memory.Encode([]memory.Memory{
		{ID: uuid.New(), Content: "helix line"},
		{ID: uuid.New(), Content: "helix line"},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.blobs["memories"] = data
	log.Append(stream.Name(stream.DataPoint, id), accepted(1, datapoint.Text{Blob: &blob.Ref{Stream: "content", Size: 5}}))
	log.Append(stream.Name(stream.Memory, id),
		&memory.Derived{ProjectID: uuid.UUID{1}, Revision: 1, OccurredAt: when, Blob: &blob.Ref{Stream: "memories"}})
	count := func(want int) {
		t.Helper()
		if n := len(index.Documents()[uuid.UUID{1}]); n != want {
			t.Fatalf("%d documents, want %d", n, want)
		}
		if err := verify(t.Context(), db.Begin, p); err != nil {
			t.Fatal(err)
		}
	}
	projectiontest.Apply(t, db, p, log.Facts...)
	count(3)

	// The content of the next revision is erased already, and unreadable memories count as none:
	// neither stops the projector.
	l.blobs["broken"] = []byte("{")
	log.Append(stream.Name(stream.DataPoint, id), accepted(2, datapoint.Text{Blob: &blob.Ref{Stream: "gone", Size: 5}}))
	projectiontest.Apply(t, db, p, log.Facts[2:]...)
	count(2)
	log.Append(stream.Name(stream.Memory, id),
		&memory.Derived{ProjectID: uuid.UUID{1}, Revision: 2, OccurredAt: when, Blob: &blob.Ref{Stream: "broken"}})
	log.Append(stream.Name(stream.DataPoint, id), accepted(3, datapoint.Text{Inline: "vim"}))
	projectiontest.Apply(t, db, p, log.Facts[3:]...)
	count(1)
	for what, change := range map[string]recallindex.Change{
		"one too many": {Upserts: []recallindex.Document{{Key: recallindex.Key{DataPoint: uuid.New()}}}},
		"one too few":  {Deletes: []recallindex.Scope{{DataPoint: id, Part: recallindex.Sources, Revision: 3}}},
	} {
		other := indextest.NewMemory()
		write := recallindex.Change{
			Analysis: indextest.Analysis,
			Project:  uuid.UUID{1}, Upserts: slices.Collect(maps.Values(index.Documents()[uuid.UUID{1}])),
		}
		change.Project, change.Analysis = uuid.UUID{1}, indextest.Analysis
		for _, c := range []recallindex.Change{write, change} {
			if err := other.Apply(t.Context(), []recallindex.Change{c}); err != nil {
				t.Fatal(err)
			}
		}
		if err := verify(t.Context(), db.Begin, projector(other, l)); !errors.Is(err, projections.ErrTarget) {
			t.Errorf("%s: verified with %v", what, err)
		}
	}
}

// A move, a revision of another audience, and a deletion read no text that is indexed already.
func TestAudience_MovedReadsNoText(t *testing.T) {
	db, index := pgtest.Database(t), indextest.NewMemory()
	l := &texts{blobs: map[string][]byte{"content": []byte("helix")}}
	p := projector(index, l)
	projectiontest.Make(t, db, p)
	id, log, team, board := uuid.New(), new(projectiontest.Log), uuid.New(), uuid.New()
	audiences := func() map[string]uuid.UUID {
		found := map[string]uuid.UUID{}
		for k, d := range index.Documents()[uuid.UUID{1}] {
			found[fmt.Sprint(k.Part(), k.Revision)] = d.Audience
		}
		return found
	}
	check := func(reads int, want map[string]uuid.UUID) {
		t.Helper()
		if diff := cmp.Diff(want, audiences()); diff != "" {
			t.Fatal(diff)
		}
		if l.reads != reads {
			t.Fatalf("%d reads of the log, want %d", l.reads, reads)
		}
	}
	log.Append(stream.Name(stream.DataPoint, id), accepted(1, datapoint.Text{Blob: &blob.Ref{Stream: "content", Size: 5}}))
	log.Append(stream.Name(stream.Memory, id), &memory.Derived{
		ProjectID: uuid.UUID{1}, Revision: 1, OccurredAt: when,
		Memories: []memory.Memory{{ID: uuid.New(), Content: "helix"}},
	})
	projectiontest.Apply(t, db, p, log.Facts...)
	check(1, map[string]uuid.UUID{"source1": {}, "memory1": {}})
	moved := accepted(1, datapoint.Text{})
	moved.Effect.Audience = team
	log.Append(stream.Name(stream.DataPoint, id), &datapoint.Moved{Send: moved.Send, States: moved.States})
	projectiontest.Apply(t, db, p, log.Facts[2:]...)
	check(1, map[string]uuid.UUID{"source1": team, "memory1": team})
	second := accepted(2, datapoint.Text{Inline: "helix"})
	second.Effect.Audience = board
	log.Append(stream.Name(stream.DataPoint, id), second)
	projectiontest.Apply(t, db, p, log.Facts[3:]...)
	check(1, map[string]uuid.UUID{"source2": board, "memory1": board})
	log.Append(stream.Name(stream.DataPoint, id), &datapoint.Deleted{})
	projectiontest.Apply(t, db, p, log.Facts[4:]...)
	check(1, map[string]uuid.UUID{})
}

func TestProjector_Errors(t *testing.T) {
	db := pgtest.Database(t)
	index, l := indextest.NewMemory(), &texts{err: eventstore.ErrUnavailable}
	p := projector(index, l)
	projectiontest.Make(t, db, p)
	attempt := func(events ...eventstore.DecodedEvent) error {
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return errors.Join(projectiontest.Enter(t.Context(), tx, p), p.Apply(t.Context(), tx, events),
			tx.Rollback(t.Context()))
	}
	log, id := new(projectiontest.Log), uuid.New()
	log.Append(stream.Name(stream.DataPoint, id),
		accepted(1, datapoint.Text{Blob: &blob.Ref{Stream: "content", Size: 20 << 20}}))
	if err := attempt(log.Facts...); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("a blob that cannot be read now: %v", err)
	}
	l.err = nil
	log.Append(stream.Name(stream.DataPoint, uuid.New()), log.Facts[0].Event)
	if err := attempt(log.Facts[0]); err != nil {
		t.Errorf("an event of 20 MiB alone: %v", err)
	}
	unknown := eventstore.DecodedEvent{
		Recorded: eventstore.Recorded{Stream: stream.Name(stream.Memory, id)},
		Err:      fmt.Errorf("unknown"),
	}
	if err := attempt(unknown); err == nil {
		t.Error("an event that could not be decoded is passed over")
	}
	if err := index.Close(); err != nil {
		t.Fatal(err)
	}
	small := new(projectiontest.Log)
	small.Append(stream.Name(stream.DataPoint, id), accepted(1, datapoint.Text{Inline: "helix"}))
	if err := attempt(small.Facts...); !errors.Is(err, recallindex.ErrClosed) {
		t.Errorf("a closed index: %v", err)
	}
}
