// Package recalltest is a harness for tests of recall: a log in memory, the projections that recall
// reads, and an index.
package recalltest

import (
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/memory"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/memories"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
)

// Harness is one project with everything that recall needs.
type Harness struct {
	t testing.TB
	eventstore.Journal
	DB      *pgxpool.Pool
	Store   *eventstoretest.Memory
	Index   recallindex.Index
	Project auth.Project
	// PageSize is how many events are applied at a time.
	PageSize int
	// Now is the time of the next event.
	Now        time.Time
	analyzers  domainrecall.Analyzers
	projectors []projections.Projector
	applied    map[string]eventstore.Position
	service    *recall.Service
	// semantic reports that vectors are stored; embedded is the position up to which they are.
	semantic bool
	embedded eventstore.Position
}

// New makes a harness. If index is nil, it opens a Bleve index.
func New(t testing.TB, index recallindex.Index) *Harness {
	t.Helper()
	if index == nil {
		own, err := bleve.Open(filepath.Join(t.TempDir(), "bleve"), bleve.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := own.Close(); err != nil {
				t.Errorf("close the index: %v", err)
			}
		})
		index = own
	}
	codec := eventstoretest.Codec(t)
	store := eventstoretest.NewMemory()
	h := &Harness{
		t: t, DB: pgtest.Database(t), Store: store, Journal: eventstore.Journal{Store: store, Codec: codec}, Index: index,
		PageSize: 512,
		Project:  auth.Project{ID: uuid.New(), Number: 1, Slug: "default", Namespace: uuid.New()},
		Now:      time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC), applied: map[string]eventstore.Position{},
	}
	analyzers := domainrecall.NewAnalyzers()
	h.projectors = []projections.Projector{
		datapoints.New(h), memories.New(h, slog.New(slog.DiscardHandler)), recallindex.New(index, h, analyzers,
			slog.New(slog.DiscardHandler)),
		embeddings.New(),
	}
	for _, p := range h.projectors {
		h.MakeSchema(p)
	}
	h.analyzers = analyzers
	config := h.Config()
	if alwaysSemantic() {
		config.Semantic = h.UseSemantic(nil)
	}
	h.service = recall.New(config)
	return h
}

// Config returns the configuration of a service on the harness: lexical search, and the audiences of the
// query.
func (h *Harness) Config() recall.Config {
	return recall.Config{
		DB: h.DB, Index: h.Index, Analyzers: h.analyzers, Blobs: h, Projections: Running{},
		Now: func() time.Time { return h.Now }, Log: slog.New(slog.DiscardHandler),
	}
}

// Running is a set of projections of which none is stopped.
type Running struct{}

// Stopped implements the check of recall.Config.
func (Running) Stopped(context.Context, string) error { return nil }

// MakeSchema creates the tables of a projector, empty.
func (h *Harness) MakeSchema(p projections.Projector) {
	h.t.Helper()
	name := pgx.Identifier{p.Name()}.Sanitize()
	err := pgx.BeginFunc(h.t.Context(), h.DB, func(tx pgx.Tx) error {
		for _, ddl := range []string{
			"drop schema if exists " + name + " cascade", "create schema " + name,
			"set local search_path = " + name, p.Schema(),
		} {
			if _, err := tx.Exec(h.t.Context(), ddl); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		h.t.Fatalf("schema %s: %v", p.Name(), err)
	}
	h.applied[p.Name()] = 0
}

// AddProjector adds a projector and creates its tables.
func (h *Harness) AddProjector(p projections.Projector) {
	h.t.Helper()
	h.projectors = append(h.projectors, p)
	h.MakeSchema(p)
}

// DataPoint is a data point to send; zero fields are omitted.
type DataPoint struct {
	ID, Content, Label, Author string
	Metadata                   json.RawMessage
	OccurredAt                 time.Time
	Audience                   uuid.UUID
	// Big puts content and metadata into blobs, whatever their size.
	Big bool
}

// DataPoint returns the id of the data point of a source id.
func (h *Harness) DataPoint(sourceID string) uuid.UUID {
	return stream.DataPointID(h.Project.Namespace, sourceID)
}

// Send sends a data point and returns its newest revision.
func (h *Harness) Send(p DataPoint) int {
	h.t.Helper()
	id := h.DataPoint(p.ID)
	send := datapoint.Ingest{
		Send: datapoint.Send{
			ProjectID: h.Project.ID, IngestionID: uuid.New(), Items: 1, AcceptedAt: h.Now, RequestID: uuid.New(),
			Bytes: int64(len(p.Content)), Month: "2025-06",
		},
		Author: p.Author, SourceID: p.ID, ContentDigest: datapoint.Digest([]byte(p.Content)),
		Content: h.text(id, p.Content, p.Big), Audience: p.Audience,
	}
	if p.Label != "" {
		send.Label = &p.Label
	}
	if !p.OccurredAt.IsZero() {
		send.OccurredAt = &p.OccurredAt
	}
	if p.Metadata != nil {
		text := h.text(id, string(p.Metadata), p.Big)
		send.MetadataSent, send.MetadataDigest, send.Metadata = true, datapoint.Digest(p.Metadata), &text
	}
	state, next := h.State(p.ID)
	base := datapoint.Base{State: state, Next: int64(next)}
	if state != nil {
		base.LastNumber = state.LastNumber
	}
	decided := base.Decide(send).Event(send, nil)
	h.Append(stream.Name(stream.DataPoint, id), decided)
	state, _ = h.State(p.ID)
	return state.Revision
}

func (h *Harness) text(owner uuid.UUID, text string, big bool) datapoint.Text {
	h.t.Helper()
	if !big {
		return datapoint.Text{Inline: text}
	}
	ref := h.WriteBlob(owner, []byte(text))
	return datapoint.Text{Blob: &ref}
}

// WriteBlob writes a blob of a data point.
func (h *Harness) WriteBlob(owner uuid.UUID, data []byte) blob.Ref {
	h.t.Helper()
	meta := event.NewMeta("", h.Now)
	ref, err := h.Journal.WriteBlob(h.t.Context(), owner, uuid.New(), h.Project.ID, h.Now.Add(time.Hour), meta, data)
	if err != nil {
		h.t.Fatal(err)
	}
	return ref
}

// State returns the current state of a data point, nil if there is none, and the next revision of
// its stream.
func (h *Harness) State(sourceID string) (state *datapoint.State, next eventstore.Revision) {
	h.t.Helper()
	last, ok, err := h.Store.ReadLast(h.t.Context(), stream.Name(stream.DataPoint, h.DataPoint(sourceID)))
	if err != nil {
		h.t.Fatal(err)
	}
	if !ok {
		return nil, 0
	}
	decoded, err := h.Codec.Decode(last)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, states, sent := datapoint.SendOf(decoded); sent {
		head := states.Head()
		state = &head
	}
	return state, last.Revision + 1
}

// Append appends an event at the end of a stream.
func (h *Harness) Append(name string, e event.Event) {
	h.t.Helper()
	past, err := h.Store.Read(h.t.Context(), name, eventstore.Revision(math.MaxInt64), eventstore.Backwards, 1)
	if err != nil {
		h.t.Fatal(err)
	}
	expected := eventstore.NoStream
	if len(past) == 1 {
		expected = past[0].Revision
	}
	proposed, err := h.Codec.Encode(e, 0, event.NewMeta("", h.Now))
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.Store.Append(h.t.Context(), name, expected, []eventstore.Proposed{proposed}); err != nil {
		h.t.Fatalf("append %s to %s: %v", e.EventType(), name, err)
	}
}

// Line is a memory to derive.
type Line struct {
	Kind, Content, Excerpt, Subject, Attribute string
}

// Derive stores lines as the memories of a revision; with big in a blob.
func (h *Harness) Derive(sourceID string, revision int, occurredAt time.Time, big bool, lines ...Line) []uuid.UUID {
	h.t.Helper()
	id := h.DataPoint(sourceID)
	var ids []uuid.UUID
	var list []memory.Memory
	for n, l := range lines {
		m := memory.Memory{
			ID: memory.ID(id, revision, n), Kind: l.Kind, Content: l.Content, Excerpt: l.Excerpt, Subject: l.Subject,
			Attribute: l.Attribute,
			Inputs:    []uuid.UUID{datapoint.NodeID(id, revision)},
		}
		list, ids = append(list, m), append(ids, m.ID)
	}
	h.DeriveMemories(sourceID, revision, occurredAt, big, list)
	return ids
}

// DeriveMemories stores the memories of a revision; with big in a blob.
func (h *Harness) DeriveMemories(sourceID string, revision int, occurredAt time.Time, big bool, list []memory.Memory) {
	h.t.Helper()
	id := h.DataPoint(sourceID)
	derived := memory.Derived{
		ProjectID: h.Project.ID, IngestionID: uuid.New(), Revision: revision, Extractor: "test/1",
		DerivedAt: h.Now, OccurredAt: occurredAt,
	}
	state, _ := h.State(sourceID)
	if state != nil {
		derived.IngestionID = state.IngestionID
	}
	if big {
		data, err := memory.Encode(list)
		if err != nil {
			h.t.Fatal(err)
		}
		ref := h.WriteBlob(id, data)
		derived.Blob = &ref
	} else {
		derived.Memories = list
	}
	h.Append(stream.Name(stream.Memory, id), derived)
}

// Delete deletes a data point as a deletion of one id does.
func (h *Harness) Delete(sourceID string) (deletionID uuid.UUID) {
	h.t.Helper()
	state, _ := h.State(sourceID)
	deletionID = uuid.New()
	h.Append(stream.Name(stream.DataPoint, h.DataPoint(sourceID)), datapoint.Deleted{
		ProjectID: h.Project.ID, DeletionID: deletionID, RequestID: uuid.New(), DeletedAt: h.Now,
		IngestionID: state.IngestionID, Single: true,
	})
	return deletionID
}

// Projector returns a projector by name.
func (h *Harness) Projector(name string) projections.Projector {
	for _, p := range h.projectors {
		if p.Name() == name {
			return p
		}
	}
	h.t.Fatalf("no projector %s", name)
	return nil
}

// Ask returns a query with the defaults of the API: everything project-visible, 100 documents,
// 8,000 tokens.
func (h *Harness) Ask(text string) recall.Query {
	return recall.Query{
		Project: h.Project, Audiences: []uuid.UUID{uuid.Nil}, Text: text, Identity: "ana", Limit: 100,
		Budget: 8000,
	}
}

// Recall answers a query.
func (h *Harness) Recall(q recall.Query) recall.Response {
	h.t.Helper()
	page, err := h.service.Recall(h.t.Context(), q)
	if err != nil {
		h.t.Fatalf("recall: %v", err)
	}
	return page
}

// Service returns the recall service.
func (h *Harness) Service() *recall.Service { return h.service }
