package datapoints_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/pipeline"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/datapoints"
)

// id makes a uuid of a name, so that tests read in names.
func id(name string) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)) }

// project is the project that tests are about, neighbour another one.
var (
	project   = auth.Project{ID: id("project"), Number: 1, Slug: "default"}
	neighbour = auth.Project{ID: id("neighbour"), Number: 2, Slug: "other"}
)

// noon is when tests begin; each event is at the second of its place in the log.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// shelf is blobs by stream; any other is gone.
type shelf map[string][]byte

func (s shelf) ReadBlob(_ context.Context, ref blob.Ref) ([]byte, error) {
	if data, ok := s[ref.Stream]; ok {
		return data, nil
	}
	return nil, &eventstore.BlobError{Stream: ref.Stream, Missing: true}
}

// away is a store that cannot be reached.
type away struct{}

func (away) ReadBlob(context.Context, blob.Ref) ([]byte, error) {
	return nil, eventstore.ErrUnavailable
}

// world is a log, and the projection of as much of it as was applied.
type world struct {
	t *testing.T
	projectiontest.Log
	Queries datapoints.Queries
	applied int
	project uuid.UUID
	states  map[string]datapoint.State
	last    eventstore.Position
}

func newWorld(t *testing.T) *world {
	t.Helper()
	db := pgtest.Database(t)
	projectiontest.Make(t, db, datapoints.New(nil))
	return worldOf(t, db)
}

func worldOf(t *testing.T, db *pgxpool.Pool) *world {
	w := &world{t: t, Queries: datapoints.Queries{DB: db}, project: project.ID, states: map[string]datapoint.State{}}
	w.Queries.Log, w.Queries.Wait = w, w
	return w
}

// Head implements datapoints.Log.
func (w *world) Head(context.Context) (eventstore.Position, error) { return w.last, nil }

// Wait implements datapoints.Waiter by applying the rest of the log.
func (w *world) Wait(context.Context, eventstore.Position, ...string) error {
	w.apply()
	return nil
}

// apply applies what is not applied yet.
func (w *world) apply() {
	w.t.Helper()
	projectiontest.Apply(w.t, w.Queries.DB, datapoints.New(nil), w.Facts[w.applied:]...)
	w.applied = len(w.Facts)
}

func (w *world) at() time.Time { return noon.Add(time.Duration(len(w.Facts)) * time.Second) }

func at(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }

// place is where an item stands in its send; commit is the position of a batch, 0 for a single send.
type place struct {
	ordinal, items int
	commit         eventstore.Position
}

func (w *world) send(name string, in place) datapoint.Send {
	return datapoint.Send{
		ProjectID: w.project, IngestionID: id(name), Ordinal: in.ordinal, Items: in.items, AcceptedAt: w.at(), RequestID: id("request of " + name),
		Commit: uint64(in.commit), Bytes: 7, CreditTenths: 10, Month: "2026-11",
	}
}

var alone = place{items: 1}

// revised stores a revision; historic ones stand behind what is there.
func (w *world) revised(send, source string, in place, historic ...bool) {
	state, before := w.states[source], w.states[source]
	state.SourceID, state.Revision, state.LastNumber, state.IngestionID, state.OccurredAt = source, before.LastNumber+1, before.LastNumber+1, id(send), noon
	standing := datapoint.Standing{Effect: state}
	if len(historic) > 0 {
		before.LastNumber = state.LastNumber
		standing.Current, state = &before, before
	}
	w.states[source] = state
	w.last = w.Append(stream.Name(stream.DataPoint, id(source)), &datapoint.RevisionAccepted{
		Send: w.send(send, in), Standing: standing, Body: datapoint.Body{Content: datapoint.Text{Inline: "content of " + source}},
	})
}

func (w *world) resent(send, source string, in place) {
	w.last = w.Append(stream.Name(stream.DataPoint, id(source)), &datapoint.Resent{Send: w.send(send, in), Standing: datapoint.Standing{Effect: w.states[source]}})
}

func (w *world) moved(send, source string, audience uuid.UUID, in place) {
	state := w.states[source]
	state.Audience = audience
	w.states[source] = state
	w.last = w.Append(stream.Name(stream.DataPoint, id(source)), &datapoint.Moved{Send: w.send(send, in), Standing: datapoint.Standing{Effect: state}})
}

func (w *world) started(send, source string, ordinal, revision, attempt, round int) {
	w.last = w.Append(stream.Name(stream.Memory, id(source)), &memory.DerivationStarted{
		ProjectID: w.project, IngestionID: id(send), Ordinal: ordinal, Revision: revision, Attempt: attempt, Round: round, StartedAt: w.at(),
	})
}

func (w *world) derived(send, source string, ordinal, revision int) {
	w.last = w.Append(stream.Name(stream.Memory, id(source)), &memory.Derived{
		ProjectID: w.project, IngestionID: id(send), Ordinal: ordinal, Revision: revision, Extractor: "builtin/1", DerivedAt: w.at(), OccurredAt: noon,
	})
}

func (w *world) missed(send, source string, ordinal, revision, attempt, round int, final bool) {
	w.last = w.Append(stream.Name(stream.Memory, id(source)), &memory.Failed{
		ProjectID: w.project, IngestionID: id(send), Ordinal: ordinal, Revision: revision, Attempt: attempt, Round: round,
		Code: ingestion.ModelUnavailable, Message: fmt.Sprintf("%s failed", source), FailedAt: w.at(), Final: final,
	})
}

func (w *world) indexed(send string) {
	w.last = w.Append(stream.Name(stream.Ingestion, id(send)), &ingestion.Indexed{ProjectID: w.project, IndexedAt: w.at()})
}

// searchable stores a watermark: everything captured up to a position is searchable since that
// time.
func (w *world) searchable(upTo eventstore.Position) time.Time {
	since := w.at()
	w.last = w.Append(stream.Pipeline, &pipeline.Searchable{Position: uint64(upTo), SearchableAt: since})
	return since
}

func (w *world) stopped(send, code string) {
	w.last = w.Append(stream.Name(stream.Ingestion, id(send)), &ingestion.Failed{ProjectID: w.project, Code: code, Message: send + " stopped", FailedAt: w.at()})
}

func (w *world) retried(send string, round int) {
	w.last = w.Append(stream.Name(stream.Ingestion, id(send)), &ingestion.Retried{ProjectID: w.project, Round: round, RetriedAt: w.at()})
}

// committed commits a batch and answers its place for the items.
func (w *world) committed(send string, sources ...string) func(ordinal int) place {
	accepted := &ingestion.Accepted{ProjectID: w.project, RequestID: id("request of " + send), AcceptedAt: w.at(), Month: "2026-11"}
	for _, source := range sources {
		accepted.Items = append(accepted.Items, ingestion.Item{DataPoint: id(source), Bytes: 7, CreditTenths: 10})
	}
	w.last = w.Append(stream.Name(stream.Ingestion, id(send)), accepted)
	commit := w.last
	return func(ordinal int) place { return place{ordinal: ordinal, items: len(sources), commit: commit} }
}

func (w *world) fannedOut(send string, outcomes ...ingestion.Outcome) {
	w.last = w.Append(stream.Name(stream.Ingestion, id(send)), &ingestion.FannedOut{ProjectID: w.project, Outcomes: outcomes})
}

// deleted ends a data point: as an operation of its own, or as a part of one.
func (w *world) deleted(operation, source string, single bool) {
	w.last = w.Append(stream.Name(stream.DataPoint, id(source)), &datapoint.Deleted{
		ProjectID: w.project, DeletionID: id(operation), DeletedAt: w.at(), IngestionID: w.states[source].IngestionID, Single: single,
	})
}

// wiped commits a deletion; send is "" for one by source ids.
func (w *world) wiped(operation, send string, sources ...string) {
	accepted := &deletion.Accepted{ProjectID: w.project, AcceptedAt: w.at()}
	if send != "" {
		accepted.IngestionID = id(send)
	}
	for _, source := range sources {
		accepted.Targets = append(accepted.Targets, deletion.Target{DataPoint: id(source)})
	}
	w.last = w.Append(stream.Name(stream.Deletion, id(operation)), accepted)
}

func (w *world) wipeFannedOut(operation string) {
	w.last = w.Append(stream.Name(stream.Deletion, id(operation)), &deletion.FannedOut{ProjectID: w.project})
}

func (w *world) kept(operation, source string, facts ...deletion.Fact) {
	w.keptOf(w.at(), operation, source, facts...)
}

func (w *world) keptOf(deletedAt time.Time, operation, source string, facts ...deletion.Fact) {
	w.last = w.Append(stream.Name(stream.Deletion, id(operation)), &deletion.FactsKept{
		ProjectID: w.project, DataPoint: id(source), Facts: facts, Blobs: []string{"blob-of-" + source}, DeletedAt: deletedAt,
	})
}

func (w *world) cleaned(operation string) {
	w.last = w.Append(stream.Name(stream.Deletion, id(operation)), &deletion.Cleaned{ProjectID: w.project, CleanedAt: w.at()})
}
