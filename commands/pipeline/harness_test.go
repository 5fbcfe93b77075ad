package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/eventstore/cut"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/erasures"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	people "github.com/annals-project/annals/projections/directory"
	derived "github.com/annals-project/annals/projections/memories"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
	"github.com/annals-project/annals/projections/runner"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// harness is the write side, the projections and the background work over real parts.
type harness struct {
	t       *testing.T
	store   eventstore.Store
	log     *engine.Journal
	db      *pgxpool.Pool
	index   recallindex.Index
	queries datapoints.Queries
	// directory lists what writes of identities left to do.
	directory *people.Queries
	runtime   *runner.Runtime
	waiter    *runner.Waiter
	write     *commands.Service
	config    commands.Config
	finisher  *Finisher
	call      engine.Call
	// clock is the finisher's; folder holds the files of the log and of the index.
	clock  *clock
	folder string
	sent   sent
}

// nobodySeen reports that nobody recalled.
type nobodySeen struct{}

func (nobodySeen) PendingSeen(context.Context, auth.Project, []uuid.UUID) (map[uuid.UUID]time.Time, error) {
	return map[uuid.UUID]time.Time{}, nil
}

// clock is a time that a test moves.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time       { return at.Add(time.Duration(c.ahead.Load())) }
func (c *clock) move(d time.Duration) { c.ahead.Add(int64(d)) }

func newHarness(t *testing.T) *harness {
	t.Helper()
	w := newIdleHarness(t)
	w.derive()
	w.confirm()
	return w
}

// newNodeHarness is newHarness over the files of a node, for what depends on them.
func newNodeHarness(t *testing.T) *harness {
	t.Helper()
	w := newIdleNodeHarness(t)
	w.derive()
	w.confirm()
	return w
}

func (w *harness) derive() {
	worker := w.worker("test")
	worker.Now = time.Now
	runtest.Part(w.t, worker.Run)
}

func (w *harness) confirm() { runtest.Part(w.t, w.confirmer().Run) }

// worker returns a worker on the clock of the harness that does not run.
func (w *harness) worker(name string) *Worker {
	return &Worker{
		Journal: w.log, Queue: w.queries, Progress: w.waiter, Extractor: Builtin{}, Logger: w.log.Logger,
		LoadGauge: idle{}, Age: noAge, Holder: name, Now: w.clock.now,
	}
}

// confirmer returns a confirmer that does not run.
func (w *harness) confirmer() *Confirmer {
	return &Confirmer{
		Journal: w.log, Sends: w.queries, Progress: w.waiter, IndexErr: func(context.Context) error { return nil },
		Logger: w.log.Logger, Now: time.Now,
	}
}

// newIdleHarness is a harness without derivation, as with the pipeline switched off. Its log is in memory, which the
// suite of eventstoretest holds to what a node does.
func newIdleHarness(t *testing.T) *harness {
	t.Helper()
	log := eventstoretest.NewMemory()
	eventstoretest.CheckRecordsAtEnd(t, log)
	return idleHarnessOver(t, t.TempDir(), log, log)
}

// newIdleNodeHarness is newIdleHarness over the files of a node.
func newIdleNodeHarness(t *testing.T) *harness {
	t.Helper()
	folder := t.TempDir()
	n := nodetest.Start(t, node.Config{Dir: filepath.Join(folder, "log")})
	return idleHarnessOver(t, folder, nodetest.Open(t, nodetest.ConfigOf(n.Connection())), n)
}

// scavenging removes what was deleted from a log.
type scavenging interface{ Scavenge(context.Context) error }

func idleHarnessOver(t *testing.T, folder string, store eventstore.Store, log scavenging) *harness {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	store = cut.New(store, quiet)
	w := &harness{t: t, db: pgtest.Database(t), clock: &clock{}, folder: folder, store: store}
	w.sent.events = map[sentKey]eventstore.Proposed{}
	codec := eventstoretest.Codec(t)
	w.log = engine.NewJournal(w.store, codec, quiet)
	w.log.Now = w.clock.now
	w.log.Namespaces = stream.NewNamespaces(make([]byte, 32))
	var err error
	w.index, err = bleve.Open(filepath.Join(folder, "index"), bleve.Options{})
	runtest.Must(t, err)
	nodetest.CloseAtEnd(t, w.index)
	_, err = w.log.Append(t.Context(), stream.Registry, eventstore.NoStream, event.NewMeta("test", time.Now()),
		registry.LogOpened{LogID: uuid.New(), Format: registry.Format, OpenedAt: at})
	runtest.Must(t, err)
	runtime, err := runner.New(runner.Config{
		DB: w.db, Store: w.store, Codec: codec, LogID: runner.LogIDOf(w.store, codec), Logger: quiet,
		Projectors: []projections.Projector{
			datapoints.New(w.log), derived.New(w.log, quiet),
			recallindex.New(w.index, w.log, recall.NewAnalyzers(), quiet),
			people.New(w.log, w.log.Namespaces, quiet), access.New(),
		},
	})
	runtest.Must(t, err)
	w.runtime, w.waiter = runtime, runtime.Waiter()
	w.queries = datapoints.Queries{DB: w.db, Store: w.store, Wait: w.waiter}
	w.directory = people.NewQueries(w.db, w.store, w.waiter, w.queries, nobodySeen{})
	w.config = commands.Config{
		Journal: w.log, Waiter: w.waiter, Sends: w.queries, Directory: w.directory, Records: w.directory,
		HashKey: make([]byte, 32), Pipeline: true,
	}
	w.write = commands.New(w.config)
	w.finisher = w.newFinisher(w.log, w.clock.now)
	w.finisher.Eraser.Store, w.finisher.Eraser.Index = log, w.index
	logID := runner.LogIDOf(w.store, codec)
	w.finisher.Eraser.Tables = runner.Vacuum{DB: w.db, LogID: logID, Projectors: []projections.Projector{
		datapoints.New(nil),
		derived.New(nil, nil), people.New(nil, stream.Namespaces{}, nil), access.New(),
	}}
	w.call = engine.Call{
		Principal:  auth.Principal{Kind: auth.ProjectKey, OrganizationID: uuid.New(), Project: auth.Project{Number: 1}},
		RequestID:  uuid.New(),
		ReceivedAt: at,
	}
	runtest.Part(w.t, runtime.Run)
	w.openProject()
	w.passHead()
	return w
}

// nothing is tables and an index without anything to purge, and no reservations.
type nothing struct{}

func (nothing) Vacuum(context.Context) (int, error)                      { return 0, nil }
func (nothing) Purge(context.Context) (int, error)                       { return 0, nil }
func (nothing) DropFacts(context.Context) (time.Duration, error)         { return 0, nil }
func (nothing) Overdue(context.Context, int) ([]work.Reservation, error) { return nil, nil }
func (nothing) Drop(context.Context, []work.Reservation) error           { return nil }

// newFinisher makes a finisher over a journal, which purges nothing from the disk.
func (w *harness) newFinisher(log *engine.Journal, now func() time.Time) *Finisher {
	f := &Finisher{
		Journal: log, FanOuts: w.queries, Identities: w.directory, Reservations: nothing{}, Progress: w.waiter,
		IsSetAside: func(eventstore.Position) bool { return false }, Logger: w.log.Logger, Now: now, People: w.newPeople(log, now),
		Eraser: &erasure.Eraser{
			Streams:   erasure.Streams{Journal: log.Journal, Projects: log, Logger: w.log.Logger, Now: now},
			Deletions: w.queries, Blobs: w.queries, Identities: w.directory, People: access.Queries{DB: w.db},
			Rows:     identities.BulkRows{Journal: log, Directory: w.directory},
			Progress: w.waiter, Tables: nothing{}, Index: nothing{}, Store: erasure.Cluster,
			HasIndex: func() bool { return true },
		},
	}
	f.People.Pending = f.Pending
	return f
}

// newPeople makes what erases people over a journal.
func (w *harness) newPeople(log *engine.Journal, now func() time.Time) *erasure.People {
	config := w.config
	config.Journal = log
	return &erasure.People{
		Streams: erasure.Streams{Journal: log.Journal, Projects: log, Logger: w.log.Logger, Now: now},
		Names:   erasures.Names{DB: w.db}, DataPoints: w.queries, Records: w.directory,
		Commands: commands.PersonCommands{Service: commands.New(config)}, Calls: &requestlog.Blanker{DB: w.db},
		Progress: w.waiter,
	}
}

// finishOver makes the finisher read and write through a journal.
func (w *harness) finishOver(log *engine.Journal) {
	w.finisher.Journal, w.finisher.Eraser.Journal, w.finisher.Eraser.Projects = log, log.Journal, log
	w.finisher.Eraser.Rows = identities.BulkRows{Journal: log, Directory: w.directory}
}

// part begins a part of the test, in a project of its own.
func (w *harness) part(t *testing.T) {
	w.t = t
	w.openProject()
}

// openProject makes a project, and the caller one of its callers.
func (w *harness) openProject() {
	w.t.Helper()
	stored := uuid.New()
	project := &w.call.Principal.Project
	namespace, err := w.log.Namespaces.Of(stored)
	runtest.Must(w.t, err)
	project.ID, project.Namespace = uuid.New(), namespace
	last, _, err := w.log.Last(w.t.Context(), stream.Registry)
	if err == nil {
		project.Number = int64(last.Revision) + 1
		_, err = w.log.Append(w.t.Context(), stream.Registry, last.Revision, event.NewMeta("test", time.Now()),
			registry.ProjectCreated{
				OrganizationID: w.call.Principal.OrganizationID, ProjectID: project.ID, Number: project.Number,
				Slug: project.ID.String(), Namespace: stored, CreatedAt: at,
			})
	}
	runtest.Must(w.t, err)
}

func (w *harness) pointID(id string) uuid.UUID {
	return stream.DataPointID(w.call.Principal.Project.Namespace, id)
}

func (w *harness) pointName(id string) string { return stream.Name(stream.DataPoint, w.pointID(id)) }

// recordName is the stream of an identity.
func (w *harness) recordName(name string) string {
	return stream.Name(stream.Identity, stream.IdentityID(w.call.Principal.Project.Namespace, name))
}

// sendID is the id of the send with an idempotency key.
func (w *harness) sendID(key string) uuid.UUID {
	return stream.IngestionID(w.call.Principal.Project.Namespace, key)
}

// sendStatus is the status of a send.
func (w *harness) sendStatus(id uuid.UUID) datapoints.Status {
	w.t.Helper()
	s, err := w.queries.Status(w.t.Context(), w.call.Principal.Project, id)
	runtest.Must(w.t, err)
	return s
}

// wantEnded checks that a stream has a tombstone.
func (w *harness) wantEnded(t *testing.T, name string) {
	t.Helper()
	if _, _, err := w.store.ReadLast(t.Context(), name); !errors.Is(err, eventstore.ErrDeleted) {
		t.Errorf("stream %s: %v, want a tombstone", name, err)
	}
}

// ok ends the test where a command failed.
func (w *harness) ok(_ any, err error) {
	w.t.Helper()
	runtest.Must(w.t, err)
}

// dead ends the test where a process was answered after its store died.
func (w *harness) dead(_ any, err error) {
	w.t.Helper()
	if err == nil {
		w.t.Fatal("the call succeeded after its store died")
	}
}

// ingest sends one data point, and returns the id of the send.
func (w *harness) ingest(in ingest.DataPoint) uuid.UUID {
	w.t.Helper()
	r, err := w.write.Ingest(w.t.Context(), w.call, in, "")
	runtest.Must(w.t, err)
	return r.IngestionID
}

// ingestBatch sends data points as a batch, and returns the id of the send.
func (w *harness) ingestBatch(items ...ingest.DataPoint) uuid.UUID {
	w.t.Helper()
	r, err := w.write.IngestBatch(w.t.Context(), w.call, items, "")
	runtest.Must(w.t, err)
	return r.IngestionID
}

// remove deletes data points by their ids.
func (w *harness) remove(ids ...string) {
	w.t.Helper()
	w.ok(w.write.DeleteDataPoints(w.t.Context(), w.call, ids))
}

func (w *harness) passHead() {
	w.t.Helper()
	head, err := w.store.Head(w.t.Context())
	runtest.Must(w.t, err)
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Minute)
	defer cancel()
	for _, name := range []string{datapoints.Name, derived.Name, recallindex.Name, people.Name, access.Name} {
		for w.waiter.Wait(ctx, head, name) != nil && ctx.Err() == nil {
			_ = backoff.Pause(ctx, 10*time.Millisecond, nil) // the schema is being made
		}
	}
	if ctx.Err() != nil {
		w.t.Fatal("the projections do not get to the head")
	}
}

func (w *harness) until(what string, condition func() bool) {
	w.t.Helper()
	runtest.Await(w.t, what, condition)
}

// What is deleted is gone from every table, from the index and from the log once the deletion is
// cleaned; what the send was stays known.
func TestDeletedText_IsGone(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	short, long, label := "note", "long note", "quokkalabel"
	r, err := w.write.IngestBatch(t.Context(), w.call, []ingest.DataPoint{
		{ID: &short, Label: &label, Content: "Ana's favourite editor is quokkazebra.", Metadata: []byte(`{"tag":"quokkazebra"}`)},
		{ID: &long, Content: strings.Repeat("quokkazebra rests.\n", 20_000)},
	}, "")
	runtest.Must(t, err)
	status := func() datapoints.Status {
		s, err := w.queries.Status(t.Context(), w.call.Principal.Project, r.IngestionID)
		runtest.Must(t, err)
		return s
	}
	w.until("the send is indexed", func() bool { return status().Status == datapoints.StatusCompleted })
	w.everywhere("quokkazebra", "datapoints.revisions memories.memories index:source blob.chunk memory.derived")
	w.remove(short, long)
	runtest.Part(w.t, w.finisher.Run)
	w.until("the deletion is cleaned", func() bool {
		var cleaned bool
		runtest.Must(t, w.db.QueryRow(t.Context(),
			`select coalesce(bool_and(cleaned), false) from datapoints.deletions`).Scan(&cleaned))
		return cleaned
	})
	for _, word := range []string{"quokkazebra", "quokkalabel"} {
		w.until("the text is gone", func() bool { return len(w.places(word)) == 0 })
	}
	if s := status(); s.Status != datapoints.StatusCompleted || !s.Settled {
		t.Errorf("the send reads %+v", s)
	}
}

// A batch whose process died after its commit is completed before calls are taken, and then
// derived and indexed like any other.
func TestCatchUp_LeftByACrash(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	w.commitBatch("key", item("a", "Bo moved to Lisbon"), item("b", "Cy lives in Porto"))
	w.passHead()
	runtest.Must(t, w.finisher.CatchUp(t.Context()))
	id := w.sendID("key")
	w.until("the batch is indexed", func() bool {
		return w.sendStatus(id).Status == datapoints.StatusCompleted
	})
	for _, word := range []string{"lisbon", "porto"} {
		w.everywhere(word, "index:source")
	}
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }
