package projectiontest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/metering"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/memories"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/recalltest"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
	"github.com/annals-project/annals/readapi"
	"github.com/annals-project/annals/writeapi"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// harness is a service with one empty project.
type harness struct {
	t          *testing.T
	db         *pgxpool.Pool
	index      recallindex.Index
	analyzers  domainrecall.Analyzers
	store      *eventstoretest.Memory
	log        *engine.Journal
	project    auth.Project
	contract   *apitest.Contract
	api        http.Handler
	projectors []projectiontest.Projector
	applied    int
}

// KeyByHash implements auth.Keys: every key is the project's.
func (h *harness) KeyByHash(_ context.Context, kind auth.Kind, _ [32]byte) (auth.Holder, bool, error) {
	return auth.Holder{
		Principal: auth.Principal{Kind: kind, KeyID: uuid.New(), OrganizationID: uuid.New(), Project: h.project},
	}, true, nil
}

// ProjectNamed implements auth.Keys.
func (h *harness) ProjectNamed(context.Context, uuid.UUID, string) (auth.Named, bool, error) {
	return auth.Named{Project: h.project}, true, nil
}

// Agent implements auth.Keys.
func (h *harness) Agent(context.Context, uuid.UUID) (auth.AgentHolder, bool, error) {
	return auth.AgentHolder{}, false, nil
}

// Wait implements engine.Waiter: it applies the new events itself.
func (h *harness) Wait(ctx context.Context, _ eventstore.Position, _ ...string) error {
	return h.advance(ctx)
}

// Stopped implements directory.Waiter: a projection of the test fails instead of stopping.
func (*harness) Stopped(context.Context, string) error { return nil }

// PendingSeen implements directory.Pending: the test counts no recalls.
func (*harness) PendingSeen(context.Context, auth.Project, []uuid.UUID) (map[uuid.UUID]time.Time, error) {
	return map[uuid.UUID]time.Time{}, nil
}

// free is a meter of recalls that cost nothing.
type free struct{}

func (free) Charge(_ context.Context, _ auth.Principal, _ string, _ time.Time, search func() error) error {
	return search()
}

func (free) Refund(context.Context, auth.Principal, time.Time) {}

func (free) Ceiling(metering.Plan) int { return 32000 }

// sends replaces the sends of the projection, which no call of this test reads.
type sends struct{}

func (sends) Targets(context.Context, auth.Project, uuid.UUID) ([]uuid.UUID, bool, error) {
	return nil, false, nil
}

func (sends) ProjectOf(context.Context, uuid.UUID) (uuid.UUID, bool, error) {
	return uuid.Nil, false, nil
}

func (sends) Pending(context.Context, auth.Project, []uuid.UUID) (map[uuid.UUID]bool, error) {
	return map[uuid.UUID]bool{}, nil
}

func (sends) NewestSends(context.Context, auth.Project, []uuid.UUID) (map[uuid.UUID]uuid.UUID, error) {
	return nil, nil //nolint:nilnil // no stream is tombstoned
}

func (sends) Completed(context.Context, auth.Project, uuid.UUID) (bool, error) { return false, nil }

var namespaces = stream.NewNamespaces(make([]byte, 32))

func (h *harness) setUp(codec *eventstore.Codec) {
	discard := slog.New(slog.DiscardHandler)
	h.store = eventstoretest.NewMemory()
	h.log = engine.NewJournal(h.store, codec, discard)
	h.project = auth.Project{ID: uuid.New(), Number: 1, Slug: "default"}
	stored := uuid.New()
	var err error
	if h.project.Namespace, err = namespaces.Of(stored); err != nil {
		h.t.Fatal(err)
	}
	created := registry.ProjectCreated{
		OrganizationID: uuid.New(), ProjectID: h.project.ID, Number: 1, Slug: "default", Name: "default",
		Namespace: stored, CreatedAt: time.Unix(1, 0).UTC(),
	}
	meta := event.NewMeta("first start", time.Now())
	if _, err := h.log.Append(h.t.Context(), stream.Registry, eventstore.NoStream, meta, created); err != nil {
		h.t.Fatal(err)
	}
	records := directory.NewQueries(h.db, h.store, h, datapoints.Queries{DB: h.db}, h)
	service := commands.New(commands.Config{
		Journal:   h.log,
		Waiter:    h,
		Sends:     sends{},
		Directory: records,
		HashKey:   make([]byte, 32),
		Pipeline:  true,
	})
	e := httpx.New(httpx.Config{Log: discard, Keys: h, URLs: apitest.URLs})
	writeapi.Register(e, writeapi.Deps{
		Ingest:        service,
		Delete:        service,
		Identities:    service,
		LastSeen:      records,
		Audiences:     service,
		AudienceViews: readapi.AudienceViews{Queries: records},
	})
	readapi.Register(e, readapi.Deps{
		Identities: records, Audiences: records,
		Recall: recall.Charged{Meter: free{}, Recalls: recall.New(recall.Config{
			DB: h.db, Index: h.index, Analyzers: h.analyzers, Blobs: h.log, Viewers: records,
			Projections: recalltest.Running{}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		})},
	})
	h.api = e
	h.projectors = []projectiontest.Projector{
		datapoints.New(
			h.log,
		), memories.New(h.log, discard), directory.New(h.log, namespaces, discard),
		recallindex.New(h.index, h.log, h.analyzers, discard),
	}
}

// call sends a body to a route; see do.
func (h *harness) call(path string, body []byte) *httptest.ResponseRecorder {
	h.t.Helper()
	return h.do(http.MethodPost, path, body)
}

// do makes a call and checks the response against the document. No call may fail inside.
func (h *harness) do(method, path string, body []byte) *httptest.ResponseRecorder {
	h.t.Helper()
	req := httptest.NewRequestWithContext(h.t.Context(), method, auth.Prefix+path, bytes.NewReader(body))
	req.Header.Set(echo.HeaderAuthorization, "Bearer "+apitest.ProjectKey)
	req.Header.Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	res := httptest.NewRecorder()
	h.api.ServeHTTP(res, req)
	if res.Code >= 500 {
		h.t.Fatalf("%s is answered %d: %s\n%q", path, res.Code, res.Body, body)
	}
	if err := h.contract.Check(req, res.Code, res.Header(), res.Body.Bytes()); err != nil {
		h.t.Fatalf("%s is answered %d: %v\n%s\n%q", path, res.Code, err, res.Body, body)
	}
	return res
}

// facts returns the log so far.
func (h *harness) facts() []eventstore.DecodedEvent {
	h.t.Helper()
	records, err := h.store.ReadAll(h.t.Context(), 0, 1<<20)
	if err != nil {
		h.t.Fatal(err)
	}
	var facts []eventstore.DecodedEvent
	for _, r := range records {
		if r.System() { // as a page of the feed has it
			f := eventstore.DecodedEvent{
				Recorded: eventstore.Recorded{Stream: eventstore.SystemStream, Type: r.Type, Position: r.Position},
			}
			if r.Type == eventstore.TombstoneType {
				f.Event = &eventstore.Tombstoned{Stream: r.Stream}
			}
			facts = append(facts, f)
			continue
		}
		f := h.log.Codec.DecodeRecorded(r)
		if f.Err != nil {
			h.t.Fatalf("%s at %d of %s cannot be read back: %v\n%q", r.Type, r.Revision, r.Stream, f.Err, r.Data)
		}
		facts = append(facts, f)
	}
	return facts
}

// text reads a text, inline or from its blob.
func (h *harness) text(t *datapoint.Text) string {
	h.t.Helper()
	switch {
	case t == nil:
		return ""
	case t.Blob == nil:
		return t.Inline
	}
	data, err := h.log.ReadBlob(h.t.Context(), *t.Blob)
	if err != nil {
		h.t.Fatal(err)
	}
	return string(data)
}

// derive appends the memories of every revision, as the pipeline does.
func (h *harness) derive() {
	h.t.Helper()
	heads := map[uuid.UUID]eventstore.Revision{}
	for _, f := range h.facts() {
		e, ok := f.Event.(*datapoint.RevisionAccepted)
		if !ok {
			continue
		}
		id := stream.Owner(f.Stream)
		in := comprehend.Input{
			DataPoint: id, Revision: e.Effect.Revision, Content: h.text(&e.Content), Metadata: json.RawMessage(h.text(e.Metadata)),
			Author: e.Author, OccurredAt: e.Effect.OccurredAt,
		}
		if e.Effect.Label != nil {
			in.Label = *e.Effect.Label
		}
		derived := memory.Derived{
			ProjectID: e.ProjectID, IngestionID: e.IngestionID, Ordinal: e.Ordinal, Revision: e.Effect.Revision, Extractor: comprehend.Extractor,
			DerivedAt: time.Unix(1, 0).UTC(), OccurredAt: e.Effect.OccurredAt, Memories: comprehend.Extract(in),
		}
		head, begun := heads[id]
		if !begun {
			head = eventstore.NoStream
		}
		meta := event.NewMeta("pipeline", time.Now()).Of(e.IngestionID)
		encoded, err := memory.Encode(derived.Memories)
		if err != nil {
			h.t.Fatalf("memories cannot be stored: %v", err)
		}
		if len(encoded) > blob.InlineLimit {
			ref, err := h.log.WriteBlob(h.t.Context(), id, meta.CommandID, e.ProjectID, time.Now().Add(time.Hour), meta, encoded)
			if err != nil {
				h.t.Fatal(err)
			}
			derived.Memories, derived.Blob = nil, &ref
		}
		done, err := h.log.Append(h.t.Context(), stream.Name(stream.Memory, id), head, meta, derived)
		if err != nil {
			h.t.Fatalf("memories cannot be stored: %v", err)
		}
		heads[id] = done.Revision
	}
}

// apply applies the new events of the log with every projector, as one page.
func (h *harness) apply() {
	h.t.Helper()
	if err := h.advance(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

// advance is apply for callers other than the test: it returns the error.
func (h *harness) advance(ctx context.Context) error {
	facts := h.facts()[h.applied:]
	h.applied += len(facts)
	for _, p := range h.projectors {
		own := projectiontest.Own(p, facts)
		if len(own) == 0 {
			continue
		}
		err := pgx.BeginFunc(ctx, h.db, func(tx pgx.Tx) error {
			if err := projectiontest.Enter(ctx, tx, p); err != nil {
				return err
			}
			return p.Apply(ctx, tx, own)
		})
		if err != nil {
			return fmt.Errorf("%s stops on accepted input: %w", p.Name(), err)
		}
		if err := projectiontest.FollowUp(ctx, h.db, p); err != nil {
			return fmt.Errorf("%s stops in a follow-up: %w", p.Name(), err)
		}
	}
	return nil
}

// recall searches for a text, and compares the results with the current state.
func (h *harness) recall(text string, live map[string]sent) {
	h.t.Helper()
	query, err := json.Marshal(
		map[string]any{"query": text, "identity": "ana", "maxTokens": 32000, "queryTimestamp": "9999-12-31T23:59:59Z"},
	)
	if err != nil {
		h.t.Fatal(err)
	}
	res := h.call("/recall", query)
	if res.Code != http.StatusOK {
		return
	}
	var page struct {
		Results []struct {
			Content  string
			Artifact struct{ Kind string }
			Sources  []struct {
				SourceID string
				Label    string
				Metadata json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(res.Body.Bytes(), &page); err != nil {
		h.t.Fatal(err)
	}
	for _, r := range page.Results {
		s := r.Sources[0]
		want, ok := live[s.SourceID]
		if !ok {
			h.t.Fatalf("recall shows %q, which is not there", s.SourceID)
		}
		if r.Artifact.Kind == "source" &&
			(r.Content != want.content || s.Label != want.label || !bytes.Equal(s.Metadata, want.metadata)) {
			h.t.Fatalf("recall shows %q %q %s for %+v", r.Content, s.Label, s.Metadata, want)
		}
	}
}

// sent is the current state of a data point.
type sent struct {
	content, label string
	metadata       json.RawMessage
}

// standing returns the current state of every data point according to the log.
func (h *harness) standing() map[string]sent {
	live := map[string]sent{}
	for _, f := range h.facts() {
		switch e := f.Event.(type) {
		case *datapoint.RevisionAccepted:
			s := sent{content: h.text(&e.Content)}
			if e.Effect.Label != nil {
				s.label = *e.Effect.Label
			}
			if text := h.text(e.Metadata); text != "" {
				s.metadata = json.RawMessage(text)
			}
			live[e.Effect.SourceID] = s
		case *datapoint.Deleted:
			for id := range live {
				if stream.DataPointID(h.project.Namespace, id) == stream.Owner(f.Stream) {
					delete(live, id)
				}
			}
		}
	}
	return live
}

// built is shared by all houses: a database, an index, and the tables of the projectors.
type built struct {
	db        *pgxpool.Pool
	index     recallindex.Index
	codec     *eventstore.Codec
	contract  *apitest.Contract
	analyzers domainrecall.Analyzers
}

func build(f *testing.F) *built {
	f.Helper()
	codec := eventstoretest.Codec(f)
	index, err := bleve.Open(filepath.Join(f.TempDir(), "bleve"), bleve.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := index.Close(); err != nil {
			f.Errorf("close the index: %v", err)
		}
	})
	b := &built{
		db:        pgtest.Database(f),
		index:     index,
		codec:     codec,
		contract:  apitest.Load(f, readapi.OpenAPI),
		analyzers: domainrecall.NewAnalyzers(),
	}
	for _, p := range []projectiontest.Projector{
		datapoints.New(nil), memories.New(nil, nil), directory.New(nil, stream.Namespaces{}, nil),
		recallindex.New(index, nil, b.analyzers, nil),
	} {
		projectiontest.Make(f, b.db, p)
	}
	return b
}

// harness makes a harness for the length of one test.
func (b *built) harness(t *testing.T) *harness {
	t.Helper()
	h := &harness{t: t, db: b.db, index: b.index, contract: b.contract, analyzers: b.analyzers}
	h.setUp(b.codec)
	t.Cleanup(func() {
		if err := b.index.DropProject(context.WithoutCancel(t.Context()), h.project.ID); err != nil {
			t.Error(err)
		}
	})
	return h
}

// live derives, applies and recalls everything that was accepted.
func (h *harness) live() {
	h.t.Helper()
	if len(h.facts()) == 1 { // the project alone
		return
	}
	h.derive()
	h.apply()
	standing := h.standing()
	for id, s := range standing {
		h.recall(s.content, standing)
		h.recall(fmt.Sprintf("%s %s", id, s.label), standing)
	}
}
