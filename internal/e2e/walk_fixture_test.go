package e2e

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	derived "github.com/annals-project/annals/projections/memories"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
	"github.com/annals-project/annals/projections/runner"
)

// fixture is the service in this process without its edge: a node whose disk is memory, Postgres,
// Bleve, the commands, the projections and recall. Memory is derived when a test calls for it.
type fixture struct {
	t         *testing.T
	store     eventstore.Store
	log       *commands.Journal
	db        *pgxpool.Pool
	runtime   *runner.Runtime
	waiter    *runner.Waiter
	directory *directory.Queries
	write     *commands.Service
	recall    *recall.Service
	call      commands.Call
}

// needed are the projections that a walk rests on.
var needed = []string{datapoints.Name, derived.Name, recallindex.Name, directory.Name}

// unseen knows of no recall that is not in the log.
type unseen struct{}

func (unseen) PendingSeen(context.Context, auth.Project, []uuid.UUID) (map[uuid.UUID]time.Time, error) {
	return map[uuid.UUID]time.Time{}, nil
}

// patientWaiter waits for projections for longer than a caller would. Otherwise, on a busy machine,
// a write would be answered as stored but not visible yet, and a walk checks what is visible.
type patientWaiter struct{ *runner.Waiter }

func (p patientWaiter) Wait(ctx context.Context, pos eventstore.Position, names ...string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyLimit)
	defer cancel()
	return p.Waiter.Wait(ctx, pos, names...)
}

func newInside(t *testing.T) *fixture {
	t.Helper()
	quiet := runtest.Warnings(t)
	store := nodetest.Store(t, node.Config{Logger: quiet})
	codec := eventstoretest.Codec(t)
	index, err := bleve.Open(filepath.Join(t.TempDir(), "index"), bleve.Options{})
	runtest.Must(t, err)
	nodetest.CloseAtEnd(t, index)

	w := &fixture{t: t, store: store, log: commands.NewJournal(store, codec, quiet), db: pgtest.Database(t)}
	hashKey, stored := make([]byte, 32), uuid.New()
	namespaces := stream.NewNamespaces(hashKey)
	project := auth.Project{ID: uuid.New(), Number: 1, Slug: "default"}
	project.Namespace, err = namespaces.Of(stored)
	runtest.Must(t, err)
	born := time.Now().UTC().Add(-24 * time.Hour).Truncate(time.Microsecond)
	w.call = commands.Call{
		Principal:  auth.Principal{Kind: auth.ProjectKey, KeyID: uuid.New(), OrganizationID: uuid.New(), Project: project},
		ReceivedAt: born,
	}
	_, err = w.log.Append(t.Context(), stream.Registry, eventstore.NoStream, event.NewMeta("test", time.Now()),
		registry.LogOpened{LogID: uuid.New(), Format: registry.Format, OpenedAt: born}, registry.ProjectCreated{
			OrganizationID: w.call.Principal.OrganizationID, ProjectID: project.ID, Number: 1, Slug: project.Slug, Name: "default", Namespace: stored, CreatedAt: born,
		})
	runtest.Must(t, err)
	journal, analyzers := eventstore.Journal{Store: store, Codec: codec}, domainrecall.NewAnalyzers()
	w.runtime, err = runner.New(runner.Config{
		DB: w.db, Store: store, Codec: codec, LogID: runner.LogIDOf(store, codec), Logger: quiet,
		Projectors: []projections.Projector{
			datapoints.New(journal), derived.New(journal, quiet), directory.New(journal, namespaces, quiet),
			recallindex.New(index, journal, analyzers, quiet),
		},
	})
	runtest.Must(t, err)
	w.waiter = w.runtime.Waiter()
	waits := patientWaiter{w.waiter}
	points := datapoints.Queries{DB: w.db, Store: store, Wait: waits}
	w.directory = directory.NewQueries(w.db, store, waits, points, unseen{})
	w.write = commands.New(commands.Config{
		Journal: w.log, Waiter: waits, FollowUps: w.waiter, Sends: points, DataPoints: points, HashKey: hashKey, Pipeline: true,
		Directory: w.directory, Records: w.directory, SoleWriter: true,
	})
	w.recall = recall.New(recall.Config{
		Without:     []string{domainrecall.Floor}, // its question finds every note
		DB:          w.db,
		Index:       index,
		Analyzers:   analyzers,
		Blobs:       journal,
		Projections: w.waiter,
		Log:         quiet,
		Now:         time.Now,
		Viewers:     w.directory,
	})
	runtest.Part(w.t, w.runtime.Run)
	w.settle()
	return w
}

// head is the end of the log.
func (w *fixture) head() eventstore.Position {
	w.t.Helper()
	head, err := w.store.Head(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return head
}

// settle waits until the projections have applied all that is stored.
func (w *fixture) settle() {
	w.t.Helper()
	head := w.head()
	ctx, cancel := context.WithTimeout(w.t.Context(), readyLimit)
	defer cancel()
	for _, name := range needed {
		for {
			err := w.waiter.Wait(ctx, head, name)
			if err == nil {
				break
			}
			if stop := w.waiter.Stopped(ctx, name); stop != nil || ctx.Err() != nil {
				w.t.Fatalf("projection %s: %v, %v", name, err, stop)
			}
		}
	}
}

// derive reads a note as the worker does, and stores what was read.
func (w *fixture) derive(p *note) {
	w.t.Helper()
	id := stream.DataPointID(w.call.Principal.Project.Namespace, p.id)
	lines := comprehend.Extract(comprehend.Input{
		DataPoint:  id,
		Revision:   p.revision,
		Content:    p.content,
		Label:      p.label,
		Author:     p.author,
		OccurredAt: p.occurredAt,
	})
	w.work(p, memory.Derived{
		ProjectID: w.call.Principal.Project.ID, IngestionID: p.send, Ordinal: p.ordinal, Revision: p.revision, Extractor: comprehend.Extractor, DerivedAt: w.call.ReceivedAt,
		OccurredAt: p.occurredAt, Memories: lines,
	})
	p.reading = &reading{revision: p.revision, occurredAt: p.occurredAt, lines: lines}
}

// attempt begins to derive memory from a note, and stores nothing, or that its text was rejected.
func (w *fixture) attempt(p *note, rejected bool) {
	w.t.Helper()
	if !rejected {
		w.work(p)
		return
	}
	w.work(p, memory.Failed{
		ProjectID: w.call.Principal.Project.ID, IngestionID: p.send, Ordinal: p.ordinal, Revision: p.revision, Attempt: 1,
		Code: ingestion.ContentRejected, Message: "refused", FailedAt: w.call.ReceivedAt, Final: true,
	})
}

// work stores the start of an attempt, and how it ended.
func (w *fixture) work(p *note, end ...event.Event) {
	w.t.Helper()
	project := w.call.Principal.Project
	name, at := stream.Name(stream.Memory, stream.DataPointID(project.Namespace, p.id)), eventstore.NoStream
	last, some, err := w.log.Last(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	if some {
		at = last.Revision
	}
	events := append([]event.Event{memory.DerivationStarted{
		ProjectID: project.ID, IngestionID: p.send, Ordinal: p.ordinal, Revision: p.revision, Attempt: 1, StartedAt: w.call.ReceivedAt,
	}}, end...)
	meta := event.NewMeta("pipeline", time.Now())
	if _, err := w.log.Append(w.t.Context(), name, at, meta, events...); err != nil {
		w.t.Fatal(err)
	}
}
