package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/engine"
	audiences "github.com/annals-project/annals/domain/audience"
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
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/seedtest"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	derived "github.com/annals-project/annals/projections/memories"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
	"github.com/annals-project/annals/projections/runner"
	"github.com/annals-project/annals/readapi"
	"github.com/annals-project/annals/writeapi"
)

// walkSteps is the number of steps of the walk, a tenth of it in short mode. ANNALS_WALK overrides it.
const walkSteps = 400

// Nobody ever recalls what they may not read, nor learns of it: neither a source, nor a memory, nor
// that something was said later. Estimates show nothing of it, and leave nothing.
func TestLeakWalk(t *testing.T) {
	t.Parallel()
	steps := walkSteps
	if testing.Short() {
		steps /= 10
	}
	newWalk(t, seedtest.Of(t)).walk(setting(t, "ANNALS_WALK", steps))
}

// walk is a random walk over everything that decides who may read what.
type walk struct {
	*fixture
	*accessModel
	estimates *walkEstimates
	// api has the routes that change the directory.
	api      *apitest.Client
	seed     uint64
	rng      *rand.Rand
	serial   int
	history  []string
	coverage map[string]int
	// prompt is set if the answer to the last step promised that recall follows it.
	prompt bool
}

func newWalk(t *testing.T, seed uint64) *walk {
	w := &walk{fixture: newInside(t), seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), coverage: map[string]int{}}
	w.accessModel = newAccess(w.call.Principal.Project)
	w.estimates = newWalkEstimates(w)
	cfg := apitest.EdgeConfig()
	cfg.Keys = ownKey{w.call.Principal}
	router := httpx.New(cfg)
	writeapi.Register(router, writeapi.Deps{
		Audiences: w.write, AudienceViews: readapi.AudienceViews{Queries: w.directory}, Identities: w.write, LastSeen: w.directory,
	})
	w.api = apitest.Start(t, readapi.OpenAPI, router)
	return w
}

// step is something that can happen; it is false where it cannot at the moment.
type step struct {
	weight int
	do     func() bool
}

func (w *walk) walk(steps int) {
	people := w.drawer()
	kinds := []step{
		{6, w.sendNew},
		{4, w.sendAgain},
		{4, w.move},
		{3, w.redact},
		{2, w.sendBatch},
		{3, w.deleteNote},
		{5, w.deriveSome},
		{4, func() bool { return w.change(people.record()) }},
		{3, func() bool { return w.change(people.patched()) }},
		{2, func() bool { return w.change(people.records(w.peopleModel)) }},
		{2, func() bool { return w.change(people.removal(w.peopleModel)) }},
		{4, func() bool { return w.change(people.fixed(w.peopleModel)) }},
		{4, func() bool { return w.change(people.ruled(w.peopleModel)) }},
		{2, func() bool { return w.change(people.audienceRemoval(w.peopleModel)) }},
		{1, func() bool { return w.change(people.recomputation(w.peopleModel)) }},
	}
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	for n := range steps {
		for done := false; !done; {
			pick := w.rng.IntN(total)
			for _, k := range kinds {
				if pick -= k.weight; pick < 0 {
					w.call.ReceivedAt = w.call.ReceivedAt.Add(time.Second)
					w.call.RequestID, w.prompt = uuid.New(), false
					done = k.do()
					break
				}
			}
		}
		if w.prompt {
			w.peek()
		}
		if n%estimatePeriod == 0 {
			w.estimate()
		}
		w.settle()
		w.look()
		if n%20 == 0 || n == steps-1 {
			w.count()
		}
	}
	w.estimateAll()
	w.did("rebuild")
	for _, name := range needed {
		if err := w.runtime.Rebuild(w.t.Context(), name, func(runner.RebuildProgress) {}); err != nil {
			w.fail("rebuild %s: %v", name, err)
		}
	}
	w.look()
	w.count()
	if steps >= 2000 { // a shorter walk may not reach all of it
		for _, what := range []string{"memories", "superseded", "superseded for some", "hidden", "of another audience of the slug", "of a text before its redaction", "after a removal"} {
			if w.coverage[what] == 0 {
				w.t.Errorf("the walk never saw: %s", what)
			}
		}
	}
	w.t.Logf("%d steps, %v", steps, w.coverage)
}

// did notes what was done, for the report of a walk that fails.
func (w *walk) did(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf(format, args...))
}

// fail ends the walk.
func (w *walk) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d, step %d: %s\nbefore that:\n%s", w.seed, len(w.history), fmt.Sprintf(format, args...),
		strings.Join(w.history[max(0, len(w.history)-25):], "\n"))
}

func (w *walk) must(err error) {
	w.t.Helper()
	if err != nil {
		w.fail("%v", err)
	}
}

// names are of those who may be known; the last is never. Some differ little.
var walkNames = []string{"ana", "Ana", "bulk", "a/b ü🙂", "bo", "cy", "a stranger"}

func (w *walk) someone() string { return walkNames[w.rng.IntN(len(walkNames)-1)] }

func pick[V any](w *walk, list []V) V { return among(w.rng, list...) }

var walkSlugs = []string{"aa", "bb", "cc", "dd"}

// question finds every note, and every line.
func (w *walk) question() recall.Query {
	return recall.Query{
		Project: w.project,
		Text:    "zebra note: what is the favourite editor, city and colour?",
		Limit:   200,
		Budget:  32000,
	}
}

// peek recalls as a few, right after an answer: what was taken away is gone, though the index may
// not know yet what else there is.
func (w *walk) peek() {
	w.t.Helper()
	query := w.question()
	for range 3 {
		query.Identity = pick(w, walkNames)
		page, err := w.recall.Recall(w.t.Context(), query)
		w.must(err)
		if v := w.judge(page, query.Identity, time.Now()); v.wrong() != "" {
			w.fail("right after the answer, %q:\n%s", query.Identity, v.wrong())
		}
	}
}

// look recalls as everyone and holds it against the model.
func (w *walk) look() {
	w.t.Helper()
	perspective := time.Now()
	query := w.question()
	if w.rng.IntN(4) == 0 {
		perspective = w.someTime()
		query.At = &perspective
	}
	everReplaced, everShown := map[uuid.UUID]int{}, map[uuid.UUID]int{}
	for _, name := range walkNames {
		query.Identity = name
		page, err := w.recall.Recall(w.t.Context(), query)
		w.must(err)
		verdict := w.judge(page, name, perspective)
		if wrong := verdict.wrong() + verdict.lacking(); wrong != "" {
			w.fail("%q as of %s:\n%s", name, perspective, wrong)
		}
		for id := range verdict.shown {
			everShown[id]++
		}
		for id, is := range verdict.replaced {
			if is {
				everReplaced[id]++
			}
		}
		for _, r := range page.Results {
			if r.Artifact.Kind != recall.KindSource {
				w.coverage["memories"]++
			}
		}
		for _, p := range w.notes {
			var other *audienceModel // that has the slug now
			if p.audience != nil {
				other = w.audiences[p.audience.slug]
			}
			switch {
			case p.reading != nil && w.reaches(name, p.audience) && !w.readsLines(name, p):
				w.coverage["of a text before its redaction"]++
			case w.reaches(name, p.audience):
			case other != nil && other != p.audience && w.reaches(name, other):
				w.coverage["of another audience of the slug"]++
			default:
				w.coverage["hidden"]++
			}
		}
	}
	for id, n := range everReplaced {
		w.coverage["superseded"]++
		if n < everShown[id] {
			w.coverage["superseded for some"]++
		}
	}
}

// count holds what the directory shows against the model.
func (w *walk) count() {
	w.t.Helper()
	shown, err := w.directory.AudienceList(w.t.Context(), w.project)
	w.must(err)
	if len(shown) != len(w.audiences)+1 || shown[0].Slug != audiences.Default ||
		shown[0].MemberCount != int64(len(w.people)) ||
		shown[0].MemoryCount != w.scoped(nil) {
		w.fail("audiences %+v; want %d people, %d memories, %d others", shown, len(w.people), w.scoped(nil), len(w.audiences))
	}
	for _, a := range shown[1:] {
		c := w.audiences[a.Slug]
		if c == nil {
			w.fail("audience %s is gone", a.Slug)
		}
		members := w.members(c)
		if int(a.MemberCount) != len(members) || a.ReachesNobody != (len(members) == 0) || a.MemoryCount != w.scoped(c) {
			w.fail("audience %+v: want the members %q, %d memories", a, members, w.scoped(c))
		}
		if c.rule == nil && !slices.Equal(a.Identities, slices.Sorted(maps.Keys(c.members))) {
			w.fail("audience %s is %q, want %v", a.Slug, a.Identities, c.members)
		}
	}
	for _, name := range walkNames {
		found, ok, err := w.directory.Identity(w.t.Context(), w.project, name)
		w.must(err)
		traits, known := w.people[name]
		var got map[string]string
		if ok {
			w.must(json.Unmarshal(found.Traits, &got))
		}
		audiences := slices.Sorted(slices.Values(found.Audiences))
		same := maps.Equal(got, traits) && slices.Equal(audiences, w.belongs(name))
		if ok != known || ok && !same {
			w.fail("%q is %+v (%t), want %v in %v", name, found, ok, traits, w.belongs(name))
		}
	}
}

// fixture is the service in this process without its edge: a node whose disk is memory, Postgres,
// Bleve, the commands, the projections and recall. Memory is derived when a test calls for it.
type fixture struct {
	t         *testing.T
	store     eventstore.Store
	log       *engine.Journal
	db        *pgxpool.Pool
	runtime   *runner.Runtime
	waiter    *runner.Waiter
	directory *directory.Queries
	write     *commands.Service
	recall    *recall.Service
	call      engine.Call
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

	w := &fixture{t: t, store: store, log: engine.NewJournal(store, codec, quiet), db: pgtest.Database(t)}
	hashKey, stored := make([]byte, 32), uuid.New()
	namespaces := stream.NewNamespaces(hashKey)
	project := auth.Project{ID: uuid.New(), Number: 1, Slug: "default"}
	project.Namespace, err = namespaces.Of(stored)
	runtest.Must(t, err)
	born := time.Now().UTC().Add(-24 * time.Hour).Truncate(time.Microsecond)
	w.call = engine.Call{
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
	runtest.Must(w.t, err)
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
	runtest.Must(w.t, err)
	if some {
		at = last.Revision
	}
	events := append([]event.Event{memory.DerivationStarted{
		ProjectID: project.ID, IngestionID: p.send, Ordinal: p.ordinal, Revision: p.revision, Attempt: 1, StartedAt: w.call.ReceivedAt,
	}}, end...)
	meta := event.NewMeta("pipeline", time.Now())
	runtest.Must(w.t, errorOf(w.log.Append(w.t.Context(), name, at, meta, events...)))
}
