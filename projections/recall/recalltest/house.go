// Package recalltest is a small house for tests of recall: a log in memory, the projections that recall rests on, and an index.
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

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/memory"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/memories"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
)

// House is one project with everything that recall needs.
type House struct {
	t       testing.TB
	DB      *pgxpool.Pool
	Store   *eventstoretest.Memory
	Codec   *eventstore.Codec
	Index   recallindex.Index
	Project auth.Project
	// PageSize is how many events are applied at a time.
	PageSize int
	// Now is the time of what happens next.
	Now        time.Time
	projectors []projections.Projector
	applied    map[string]eventstore.Position
	service    *recall.Service
	// feels says that vectors are stored; embedded is up to where they are.
	feels    bool
	embedded eventstore.Position
}

// New makes a house. Where index is nil it has a Bleve index of its own.
func New(t testing.TB, index recallindex.Index) *House {
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
	codec, err := eventstore.NewCodec(domain.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	h := &House{
		t: t, DB: pgtest.Database(t), Store: eventstoretest.NewMemory(), Codec: codec, Index: index, PageSize: 512,
		Project: auth.Project{ID: uuid.New(), Number: 1, Slug: "default", Namespace: uuid.New()},
		Now:     time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC), applied: map[string]eventstore.Position{},
	}
	log := recallindex.Log{Store: h.Store, Codec: codec}
	analyzer := domainrecall.NewAnalyzer()
	h.projectors = []projections.Projector{
		datapoints.New(h), memories.New(h, slog.New(slog.DiscardHandler)), recallindex.New(index, log, analyzer, slog.New(slog.DiscardHandler)),
		embeddings.Projector{},
	}
	for _, p := range h.projectors {
		h.MakeSchema(p)
	}
	config := recall.Config{DB: h.DB, Index: index, Analyzer: analyzer, Blobs: h, Now: func() time.Time { return h.Now }}
	if feelsAlways() {
		config.Meaning = h.Feel(nil)
	}
	h.service = recall.New(config)
	return h
}

// MakeSchema makes the tables of a projector anew.
func (h *House) MakeSchema(p projections.Projector) {
	h.t.Helper()
	name := pgx.Identifier{p.Name()}.Sanitize()
	err := pgx.BeginFunc(h.t.Context(), h.DB, func(tx pgx.Tx) error {
		for _, ddl := range []string{"drop schema if exists " + name + " cascade", "create schema " + name, "set local search_path = " + name, p.Schema()} {
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

// Follow adds a projector, and makes its tables.
func (h *House) Follow(p projections.Projector) {
	h.t.Helper()
	h.projectors = append(h.projectors, p)
	h.MakeSchema(p)
}

// ReadBlob reads a blob of the log.
func (h *House) ReadBlob(ctx context.Context, ref blob.Ref) ([]byte, error) {
	return eventstore.ReadBlob(ctx, h.Store, h.Codec, ref)
}

// Point is what is sent of a data point; zero fields are omitted.
type Point struct {
	ID, Content, Label, Author string
	Metadata                   json.RawMessage
	OccurredAt                 time.Time
	Audience                   uuid.UUID
	// Big puts content and metadata into blobs, whatever their size.
	Big bool
}

// DataPoint is the id of the data point of a source id.
func (h *House) DataPoint(sourceID string) uuid.UUID {
	return stream.DataPointID(h.Project.Namespace, sourceID)
}

// Send sends a data point and returns its newest revision.
func (h *House) Send(p Point) int {
	h.t.Helper()
	id := h.DataPoint(p.ID)
	send := datapoint.Ingest{
		Send: datapoint.Send{
			ProjectID: h.Project.ID, IngestionID: uuid.New(), Items: 1, AcceptedAt: h.Now, RequestID: uuid.New(), Author: p.Author,
			Bytes: int64(len(p.Content)), Month: "2025-06",
		},
		SourceID: p.ID, ContentDigest: datapoint.Digest([]byte(p.Content)), Content: h.text(id, p.Content, p.Big), Audience: p.Audience,
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
	decided := base.Decide(send, nil)
	h.Append(stream.Name(stream.DataPoint, id), decided)
	state, _ = h.State(p.ID)
	return state.Revision
}

func (h *House) text(owner uuid.UUID, text string, big bool) datapoint.Text {
	h.t.Helper()
	if !big {
		return datapoint.Text{Inline: text}
	}
	ref := h.WriteBlob(owner, []byte(text))
	return datapoint.Text{Blob: &ref}
}

// WriteBlob writes a blob of a data point.
func (h *House) WriteBlob(owner uuid.UUID, data []byte) blob.Ref {
	h.t.Helper()
	ref, err := eventstore.WriteBlob(h.t.Context(), h.Store, h.Codec, owner, uuid.New(), h.Project.ID, h.Now.Add(time.Hour), event.Meta{}, data)
	if err != nil {
		h.t.Fatal(err)
	}
	return ref
}

// State is what stands of a data point, nil for nothing, and the revision that its stream goes on with.
func (h *House) State(sourceID string) (state *datapoint.State, next eventstore.Revision) {
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
	if _, standing, sent := datapoint.SendOf(decoded); sent {
		head := standing.Head()
		state = &head
	}
	return state, last.Revision + 1
}

// Append appends an event at the end of a stream.
func (h *House) Append(name string, e event.Event) {
	h.t.Helper()
	past, err := h.Store.Read(h.t.Context(), name, eventstore.Revision(math.MaxInt64), eventstore.Backwards, 1)
	if err != nil {
		h.t.Fatal(err)
	}
	expected := eventstore.NoStream
	if len(past) == 1 {
		expected = past[0].Revision
	}
	proposed, err := h.Codec.Encode(e, 0, event.Meta{CommandID: uuid.New()})
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
func (h *House) Derive(sourceID string, revision int, occurredAt time.Time, big bool, lines ...Line) []uuid.UUID {
	h.t.Helper()
	id := h.DataPoint(sourceID)
	var ids []uuid.UUID
	var list []memory.Memory
	for n, l := range lines {
		m := memory.Memory{
			ID: memory.ID(id, revision, n), Kind: l.Kind, Content: l.Content, Excerpt: l.Excerpt, Subject: l.Subject, Attribute: l.Attribute,
			Inputs: []uuid.UUID{datapoint.NodeID(id, revision)},
		}
		list, ids = append(list, m), append(ids, m.ID)
	}
	h.DeriveMemories(sourceID, revision, occurredAt, big, list)
	return ids
}

// DeriveMemories stores the memories of a revision; with big in a blob.
func (h *House) DeriveMemories(sourceID string, revision int, occurredAt time.Time, big bool, list []memory.Memory) {
	h.t.Helper()
	id := h.DataPoint(sourceID)
	derived := memory.Derived{ProjectID: h.Project.ID, IngestionID: uuid.New(), Revision: revision, Extractor: "test/1", DerivedAt: h.Now, OccurredAt: occurredAt}
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

// Delete deletes a data point, as a deletion of one id does.
func (h *House) Delete(sourceID string) (deletionID uuid.UUID) {
	h.t.Helper()
	state, _ := h.State(sourceID)
	deletionID = uuid.New()
	h.Append(stream.Name(stream.DataPoint, h.DataPoint(sourceID)), datapoint.Deleted{
		ProjectID: h.Project.ID, DeletionID: deletionID, RequestID: uuid.New(), DeletedAt: h.Now, IngestionID: state.IngestionID, Single: true,
	})
	return deletionID
}

// Keep stores the facts that outlive a deleted data point, none of them.
func (h *House) Keep(sourceID string, deletionID uuid.UUID) {
	h.t.Helper()
	h.Append(stream.Name(stream.Deletion, deletionID), deletion.FactsKept{ProjectID: h.Project.ID, DataPoint: h.DataPoint(sourceID), DeletedAt: h.Now})
}

// Projector is the projector of a name.
func (h *House) Projector(name string) projections.Projector {
	for _, p := range h.projectors {
		if p.Name() == name {
			return p
		}
	}
	h.t.Fatalf("no projector %s", name)
	return nil
}

// CatchUp applies what the log holds to the projections of these names, all of them where none is named.
func (h *House) CatchUp(names ...string) {
	h.t.Helper()
	if h.feels {
		h.embed()
	}
	for _, p := range h.projectors {
		wanted := len(names) == 0
		for _, name := range names {
			wanted = wanted || name == p.Name()
		}
		if !wanted {
			continue
		}
		for h.ApplyPage(p, h.PageSize, true) {
		}
	}
}

// ApplyPage applies the next page to a projector; without commit the transaction is lost. It is false at the head.
func (h *House) ApplyPage(p projections.Projector, size int, commit bool) bool {
	h.t.Helper()
	recorded, err := h.Store.ReadAll(h.t.Context(), h.applied[p.Name()], size)
	if err != nil {
		h.t.Fatal(err)
	}
	if len(recorded) == 0 {
		return false
	}
	var facts []eventstore.Fact
	for _, r := range recorded {
		for _, family := range p.Families() {
			if stream.Family(r.Stream) == family {
				facts = append(facts, h.Codec.Fact(r))
			}
		}
	}
	tx, err := h.DB.Begin(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	if len(facts) > 0 {
		if err := projectiontest.Enter(h.t.Context(), tx, p); err != nil {
			h.t.Fatal(err)
		}
		if err := p.Apply(h.t.Context(), tx, facts); err != nil {
			h.t.Fatalf("%s: %v", p.Name(), err)
		}
	}
	if !commit {
		if err := tx.Rollback(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
		return true
	}
	if err := tx.Commit(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	h.applied[p.Name()] = recorded[len(recorded)-1].Position
	return true
}

// Ask is a query with the defaults of the API: everything project-visible, 100 documents, 8,000 tokens.
func (h *House) Ask(text string) recall.Query {
	return recall.Query{Project: h.Project, Audiences: []uuid.UUID{uuid.Nil}, Text: text, Identity: "ana", Limit: 100, Budget: 8000}
}

// Recall answers a query.
func (h *House) Recall(q recall.Query) recall.Page {
	h.t.Helper()
	page, err := h.service.Recall(h.t.Context(), q)
	if err != nil {
		h.t.Fatalf("recall: %v", err)
	}
	return page
}

// Service is the service of the house.
func (h *House) Service() *recall.Service { return h.service }
