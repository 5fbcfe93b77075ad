package erasure_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
)

// hooked is a store whose writes a test may stop. It makes them one after another.
type hooked struct {
	*eventstoretest.Memory
	mu sync.Mutex
	// hook returns whether a write to a stream is stored, and the error that the caller then sees.
	hook func(name string) (stored bool, err error)
}

func (h *hooked) write(name string, do func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	stored, err := h.hook(name)
	if stored {
		if failed := do(); err == nil {
			err = failed
		}
	}
	return err
}

func (h *hooked) Append(
	ctx context.Context, name string, at eventstore.Revision, events []eventstore.Proposed,
) (done eventstore.Appended, err error) {
	err = h.write(name, func() (err error) { done, err = h.Memory.Append(ctx, name, at, events); return err })
	return done, err
}

func (h *hooked) Tombstone(
	ctx context.Context, name string, at eventstore.Revision,
) (done eventstore.Position, err error) {
	err = h.write(name, func() (err error) { done, err = h.Memory.Tombstone(ctx, name, at); return err })
	return done, err
}

func (h *hooked) Truncate(ctx context.Context, name string, before eventstore.Revision) error {
	return h.write(name, func() error { return h.Memory.Truncate(ctx, name, before) })
}

var (
	errDied = errors.New("the process died")
	errLag  = errors.New("the projection lags")
)

// dying is the hook of a store whose process dies at its first write after some others, before or after that is stored.
func dying(left int, stored bool) func(string) (bool, error) {
	return func(string) (bool, error) {
		if left--; left > 0 {
			return true, nil
		}
		return left == 0 && stored, errDied
	}
}

// world is a log with two projects, of two organizations, and all that an eraser works on. Its lists are those of
// projections that are never late.
type world struct {
	t      *testing.T
	memory *eventstoretest.Memory
	log    *engine.Journal
	sends  *ingest.Service
	now    time.Time
	// own and other are the calls of the projects.
	own, other engine.Call

	deletions []work.Deletion
	taken     map[uuid.UUID][]uuid.UUID // data points, by deletion
	removals  []work.Removal

	// did are the steps on what is not in the log, in order; fails are those that fail.
	did   []string
	fails map[string]error
	// lags is a projection that applies nothing.
	lags string
	// copied and followed are what the lists have of data points and identities.
	copied, followed map[uuid.UUID]bool
	batches          []work.Batch
	bulks            []work.Bulk
	blobs            []work.Blob
	late             []string // blobs of data points that were written until their streams ended
}

func newWorld(t *testing.T) *world {
	t.Helper()
	store := eventstoretest.NewMemory()
	eventstoretest.CheckRecordsAtEnd(t, store)
	w := &world{
		t: t, memory: store, now: time.Date(2026, 5, 12, 12, 0, 0, 0, time.UTC), taken: map[uuid.UUID][]uuid.UUID{},
		fails: map[string]error{}, copied: map[uuid.UUID]bool{}, followed: map[uuid.UUID]bool{},
	}
	w.log, w.sends = w.process(store)
	w.own, w.other = w.project(), w.project()
	return w
}

// process is a process that serves clients over a store.
func (w *world) process(store eventstore.Store) (*engine.Journal, *ingest.Service) {
	w.t.Helper()
	log := engine.NewJournal(store, eventstoretest.Codec(w.t), slog.New(slog.DiscardHandler))
	log.Namespaces, log.Now = stream.NewNamespaces(make([]byte, 32)), func() time.Time { return w.now }
	records := identities.New(identities.Config{Journal: log, Waiter: w})
	return log, ingest.New(ingest.Config{
		Journal: log, Waiter: w, Authors: records.Authors, Audiences: records.Audiences, Sends: noBatches{},
		HashKey: make([]byte, 32),
	})
}

func (w *world) must(err error) {
	w.t.Helper()
	runtest.Must(w.t, err)
}

// append appends to the end of a stream.
func (w *world) append(name string, events ...event.Event) {
	w.t.Helper()
	last, ok, err := w.log.Last(w.t.Context(), name)
	w.must(err)
	if !ok {
		last.Revision = eventstore.NoStream
	}
	_, err = w.log.Append(w.t.Context(), name, last.Revision, event.NewMeta("test", w.now), events...)
	w.must(err)
}

// project registers a project of a new organization.
func (w *world) project() engine.Call {
	w.t.Helper()
	created := registry.ProjectCreated{OrganizationID: uuid.New(), ProjectID: uuid.New(), Namespace: uuid.New()}
	w.append(stream.Registry, created)
	namespace, err := w.log.Namespaces.Of(created.Namespace)
	w.must(err)
	return engine.Call{
		Principal: auth.Principal{
			Kind: auth.ProjectKey, KeyID: uuid.New(), OrganizationID: created.OrganizationID,
			Project: auth.Project{ID: created.ProjectID, Namespace: namespace},
		},
		RequestID: uuid.New(), ReceivedAt: w.now,
	}
}

// remember sends data points that have a blob each, by ana, and derives a memory from each. It returns their ids.
func (w *world) remember(call engine.Call, sourceIDs ...string) (ids []uuid.UUID) {
	w.t.Helper()
	author := "ana"
	for _, id := range sourceIDs {
		in := ingest.DataPoint{ID: &id, Content: id + strings.Repeat(" likes tea.", blob.InlineLimit/10), Identity: &author}
		receipt, err := w.sends.Ingest(w.t.Context(), call, in, "")
		w.must(err)
		dataPoint := stream.DataPointID(call.Principal.Project.Namespace, id)
		w.append(stream.Name(stream.Memory, dataPoint), memory.Derived{
			ProjectID: call.Principal.Project.ID, IngestionID: receipt.IngestionID, Revision: 1, Extractor: "test/1",
			DerivedAt: w.now, OccurredAt: w.now,
		})
		ids = append(ids, dataPoint)
	}
	return ids
}

// forget deletes data points, as their client does, and returns the deletion.
func (w *world) forget(call engine.Call, sourceIDs ...string) work.Deletion {
	w.t.Helper()
	return w.forgetBy(w.sends, call, sourceIDs...)
}

func (w *world) forgetBy(process *ingest.Service, call engine.Call, sourceIDs ...string) work.Deletion {
	w.t.Helper()
	receipt, err := process.DeleteDataPoints(w.t.Context(), call, sourceIDs)
	w.must(err)
	head, err := w.memory.Head(w.t.Context())
	w.must(err)
	d := work.Deletion{
		ProjectID: call.Principal.Project.ID, ID: receipt.OperationID, AcceptedAt: w.now, Position: head,
	}
	w.deletions = append(w.deletions, d)
	for _, id := range sourceIDs {
		w.taken[d.ID] = append(w.taken[d.ID], stream.DataPointID(call.Principal.Project.Namespace, id))
	}
	return d
}

// eraser is that of a new process, over the store of the log if it has none of its own.
func (w *world) eraser(store eventstore.Store) *erasure.Eraser {
	streams := erasure.On(w.log, w.log.Now)
	if store != nil {
		streams.Journal.Store = store
	}
	return &erasure.Eraser{
		Streams: streams, Deletions: w, Blobs: w, Identities: w, People: nobody{}, Rows: w, Progress: w,
		Tables: disk{w}, Index: files{w}, Store: w, Calls: w, HasIndex: func() bool { return true },
	}
}

// round passes everything through all stages, as the finisher does.
func (w *world) round(e *erasure.Eraser) (report erasure.Report, err error) {
	ctx := w.t.Context()
	if err := e.TruncateIdentities(ctx, func(work.Removal) bool { return true }); err != nil {
		return report, err
	}
	if err := e.RetainAll(ctx); err != nil {
		return report, err
	}
	round, err := e.TombstoneAll(ctx, &report)
	if round.IsEmpty() {
		return report, err
	}
	if purgeErr := e.Purge(ctx, round, &report); purgeErr != nil {
		return report, errors.Join(err, purgeErr)
	}
	return report, errors.Join(err, e.RecordAll(ctx, round, &report))
}

// step notes a step, and returns its error.
func (w *world) step(name string) error {
	w.did = append(w.did, name)
	return w.fails[name]
}

// take returns the steps since the last call.
func (w *world) take() (did []string) {
	did, w.did = w.did, nil
	return did
}

// Wait implements the progress of projections: those that lag fail.
func (w *world) Wait(_ context.Context, _ eventstore.Position, projections ...string) error {
	if slices.Contains(projections, w.lags) {
		return errLag
	}
	return nil
}

func (w *world) Blank(context.Context, []uuid.UUID) error { return w.step("blank calls") }

func (w *world) Scavenge(ctx context.Context) error {
	return errors.Join(w.step("scavenge"), w.memory.Scavenge(ctx))
}

// CompleteRows implements the completion of bulk writes: there are none that concern a record.
func (w *world) CompleteRows(context.Context, uuid.UUID, uuid.UUID, time.Time) error {
	return w.step("complete rows")
}

type disk struct{ w *world }

func (d disk) Vacuum(context.Context) (int, error) { return 3, d.w.step("vacuum") }

type files struct{ w *world }

func (f files) Purge(context.Context) (int, error) { return 1, f.w.step("purge index") }

// deletion reads a deletion.
func (w *world) deletion(id uuid.UUID) (state deletion.State) {
	w.t.Helper()
	events, err := w.log.ReadFrom(w.t.Context(), stream.Name(stream.Deletion, id), 0)
	w.must(err)
	for _, e := range events {
		state.Evolve(e.Event)
	}
	return state
}

func (w *world) retained(d work.Deletion) (left []uuid.UUID) {
	state := w.deletion(d.ID)
	for _, id := range w.taken[d.ID] {
		if r := state.Retained(id); r == nil || !r.Complete {
			left = append(left, id)
		}
	}
	return left
}

func (w *world) Erasures(_ context.Context, limit int) (found []work.Erasure, err error) {
	for _, d := range w.deletions {
		for _, id := range w.retained(d) {
			found = append(found, work.Erasure{ProjectID: d.ProjectID, DataPoint: id, DeletionID: d.ID, Position: d.Position})
		}
	}
	return found[:min(limit, len(found))], nil
}

func (w *world) CleanableDeletions(
	_ context.Context, after *work.Deletion, limit int,
) (found []work.Deletion, err error) {
	for _, d := range w.deletions {
		if after != nil && d.Position <= after.Position || len(w.retained(d)) > 0 || w.deletion(d.ID).Cleaned {
			continue
		}
		found = append(found, d)
	}
	return found[:min(limit, len(found))], nil
}

func (w *world) SearchableSince(_ context.Context, sends []uuid.UUID) (map[uuid.UUID]time.Time, error) {
	since := map[uuid.UUID]time.Time{}
	for _, id := range sends {
		since[id] = w.now
	}
	return since, nil
}

func (w *world) FactsOf(context.Context, uuid.UUID, int, int) (work.Facts, error) {
	return work.Facts{}, nil
}

func (w *world) UnreferencedBlobs(context.Context, time.Time, time.Time, int) ([]work.Blob, error) {
	return w.blobs, nil
}

func (w *world) BlobsOf(context.Context, []uuid.UUID) ([]string, error) { return w.late, nil }

func (w *world) BatchesOf(context.Context, []uuid.UUID) ([]work.Batch, error) { return w.batches, nil }

func (w *world) Copied(context.Context, []uuid.UUID, []uuid.UUID) (map[uuid.UUID]bool, error) {
	return w.copied, nil
}

func (w *world) FollowedUp(context.Context, []uuid.UUID) (map[uuid.UUID]bool, error) {
	return w.followed, nil
}

func (w *world) HasFollowUps(context.Context) (bool, error) { return len(w.followed) > 0, nil }

func (w *world) OpenRemovals(_ context.Context, after *work.Removal, _ int) ([]work.Removal, error) {
	if after != nil {
		return nil, nil
	}
	return slices.DeleteFunc(slices.Clone(w.removals), func(r work.Removal) bool {
		last, _, err := w.log.Last(w.t.Context(), stream.Name(stream.Identity, r.IdentityID))
		w.must(err)
		_, cleared := last.Event.(*identity.Cleared)
		return cleared
	}), nil
}

func (w *world) PendingBulks(context.Context, int) ([]work.Bulk, error) { return w.bulks, nil }

// nobody is the list of people of a log without any.
type nobody struct{}

func (nobody) OpenPeople(context.Context, uuid.UUID, int) ([]work.Person, error) { return nil, nil }

func (nobody) OpenOffers(context.Context, time.Time, uuid.UUID, int) ([]work.Offer, error) {
	return nil, nil
}

func (nobody) EndedVisits(context.Context, time.Time, string, int) ([]work.Visits, error) {
	return nil, nil
}

func (nobody) RemovedPeople(context.Context) (int, error) { return 0, nil }

// noBatches is a list of sends without batches.
type noBatches struct{ ingest.Sends }

func (noBatches) Pending(context.Context, auth.Project, []uuid.UUID) (map[uuid.UUID]bool, error) {
	return map[uuid.UUID]bool{}, nil
}

func (w *world) isErased(name string) bool {
	w.t.Helper()
	_, _, err := w.memory.ReadLast(w.t.Context(), name)
	if err != nil && !errors.Is(err, eventstore.ErrDeleted) {
		w.t.Fatal(err)
	}
	return err != nil
}

// streamsOf are the streams of data points or identities that were ever written: their own, and those of their
// memories and blobs.
func (w *world) streamsOf(ids ...uuid.UUID) []string {
	found := map[string]bool{}
	for _, r := range w.memory.Ever() {
		for _, id := range ids {
			if strings.Contains(r.Stream, id.String()) && !r.System() {
				found[r.Stream] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// contents are the events of streams that are not erased.
func (w *world) contents(names []string) map[string][]string {
	w.t.Helper()
	all := map[string][]string{}
	for _, name := range names {
		events, err := w.memory.Read(w.t.Context(), name, 0, eventstore.Forwards, 1000)
		if errors.Is(err, eventstore.ErrDeleted) {
			continue
		}
		w.must(err)
		for _, e := range events {
			all[name] = append(all[name], fmt.Sprint(e.Revision, e.Type, string(e.Data)))
		}
	}
	return all
}

// wantErased checks which of the streams of some data points are erased: all or none.
func (w *world) wantErased(want bool, ids ...uuid.UUID) {
	w.t.Helper()
	names := w.streamsOf(ids...)
	if len(names) != 3*len(ids) {
		w.t.Fatalf("%d data points have the streams %v", len(ids), names)
	}
	for _, name := range names {
		if w.isErased(name) != want {
			w.t.Errorf("erased is %t, of %s", !want, name)
		}
	}
}

// typesOf are the types of the events of a deletion.
func (w *world) typesOf(id uuid.UUID) (types []string) {
	w.t.Helper()
	events, err := w.log.ReadFrom(w.t.Context(), stream.Name(stream.Deletion, id), 0)
	w.must(err)
	for _, e := range events {
		types = append(types, e.Type)
	}
	return types
}

const (
	accepted  = "deletion.accepted.v1"
	fannedOut = "deletion.fanned-out.v1"
	facts     = "deletion.facts-kept.v1"
	cleaned   = "deletion.cleaned.v1"
)

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
