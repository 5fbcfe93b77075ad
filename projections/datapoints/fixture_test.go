package datapoints_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
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
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/memories"
)

// TestMain makes rapid check fewer histories than its default: each is written to Postgres several times. Its flag, as
// in make soak, sets another number.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "40"); err != nil {
		panic(err)
	}
	pgtest.Main(m)
}

// same compares what a test wants with what it got.
func same(t runtest.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func exec(t runtest.T, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	_, err := db.Exec(t.Context(), sql, args...)
	runtest.Must(t, err)
}

// id makes a UUID of a name.
func id(name string) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)) }

// project is the project of most tests, neighbour another one.
var (
	project   = auth.Project{ID: id("project"), Number: 1, Slug: "default"}
	neighbour = auth.Project{ID: id("neighbour"), Number: 2, Slug: "other"}
)

// noon is the time of the first event; each further event is a second later.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// unavailableBlobs is a store that cannot be reached.
type unavailableBlobs struct{}

func (unavailableBlobs) ReadBlob(context.Context, blob.Ref) ([]byte, error) {
	return nil, eventstore.ErrUnavailable
}

// fixture is a log with a projection of its applied part.
type fixture struct {
	t *testing.T
	projectiontest.Log
	Queries datapoints.Queries
	applied int
	project uuid.UUID
	states  map[string]datapoint.State
	last    eventstore.Position
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	db := pgtest.Database(t)
	makeSchemas(t, db)
	return fixtureOf(t, db)
}

// makeSchemas makes the tables that the queries read.
func makeSchemas(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	projectiontest.Make(t, db, datapoints.New(nil))
	projectiontest.Make(t, db, memoryProjector)
}

var memoryProjector = memories.New(nil, slog.New(slog.DiscardHandler))

func fixtureOf(t *testing.T, db *pgxpool.Pool) *fixture {
	w := &fixture{t: t, Queries: datapoints.Queries{DB: db}, project: project.ID, states: map[string]datapoint.State{}}
	w.Queries.Store, w.Queries.Wait = w, w
	return w
}

// Head implements the reader of the head.
func (w *fixture) Head(context.Context) (eventstore.Position, error) { return w.last, nil }

// Wait implements the waiter by applying the rest of the log.
func (w *fixture) Wait(context.Context, eventstore.Position, ...string) error {
	w.apply()
	return nil
}

// apply applies the rest of the log.
func (w *fixture) apply() {
	w.t.Helper()
	projectiontest.Apply(w.t, w.Queries.DB, datapoints.New(nil), w.Facts[w.applied:]...)
	w.applied = len(w.Facts)
}

func (w *fixture) at() time.Time { return noon.Add(time.Duration(len(w.Facts)) * time.Second) }

func at(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }

// location is the place of an item in its send; commit is the position of a batch, 0 for a single
// send.
type location struct {
	ordinal, items int
	commit         eventstore.Position
}

func (w *fixture) send(name string, in location) datapoint.Send {
	return datapoint.Send{
		ProjectID: w.project, IngestionID: id(name), Ordinal: in.ordinal, Items: in.items,
		AcceptedAt: w.at(), RequestID: id("request of " + name),
		Commit: uint64(in.commit), Bytes: 7, CreditTenths: 10, Month: "2026-11",
	}
}

var alone = location{items: 1}

// revised stores a revision, which is historic if historic is given.
func (w *fixture) revised(send, source string, in location, historic ...bool) {
	state, before := w.states[source], w.states[source]
	state.SourceID, state.IngestionID, state.OccurredAt = source, id(send), noon
	state.Revision, state.LastNumber = before.LastNumber+1, before.LastNumber+1
	states := datapoint.States{Effect: state}
	if len(historic) > 0 {
		before.LastNumber = state.LastNumber
		states.Current, state = &before, before
	}
	w.states[source] = state
	w.last = w.Append(stream.Name(stream.DataPoint, id(source)), &datapoint.RevisionAccepted{
		Send: w.send(send, in), States: states, Body: datapoint.Body{Content: datapoint.Text{Inline: "content of " + source}},
	})
}

func (w *fixture) resent(send, source string, in location) {
	w.last = w.Append(stream.Name(stream.DataPoint, id(source)),
		&datapoint.Resent{Send: w.send(send, in), States: datapoint.States{Effect: w.states[source]}})
}

func (w *fixture) moved(send, source string, audience uuid.UUID, in location) {
	state := w.states[source]
	state.Audience = audience
	w.states[source] = state
	w.last = w.Append(stream.Name(stream.DataPoint, id(source)),
		&datapoint.Moved{Send: w.send(send, in), States: datapoint.States{Effect: state}})
}

func (w *fixture) started(send, source string, ordinal, revision, attempt, round int) {
	w.last = w.Append(stream.Name(stream.Memory, id(source)), &memory.DerivationStarted{
		ProjectID: w.project, IngestionID: id(send), Ordinal: ordinal, Revision: revision,
		Attempt: attempt, Round: round, StartedAt: w.at(),
	})
}

func (w *fixture) derived(send, source string, ordinal, revision int) {
	w.last = w.Append(stream.Name(stream.Memory, id(source)), &memory.Derived{
		ProjectID: w.project, IngestionID: id(send), Ordinal: ordinal, Revision: revision,
		Extractor: "builtin/1", DerivedAt: w.at(), OccurredAt: noon,
	})
}

func (w *fixture) missed(send, source string, ordinal, revision, attempt, round int, final bool) {
	w.last = w.Append(stream.Name(stream.Memory, id(source)), &memory.Failed{
		ProjectID: w.project, IngestionID: id(send), Ordinal: ordinal, Revision: revision, Attempt: attempt, Round: round,
		Code: ingestion.ModelUnavailable, Message: fmt.Sprintf("%s failed", source), FailedAt: w.at(), Final: final,
	})
}

func (w *fixture) indexed(send string) {
	w.last = w.Append(stream.Name(stream.Ingestion, id(send)), &ingestion.Indexed{ProjectID: w.project, IndexedAt: w.at()})
}

// searchable stores a watermark: what is captured up to a position is searchable since the returned
// time.
func (w *fixture) searchable(upTo eventstore.Position) time.Time {
	since := w.at()
	w.last = w.Append(stream.Pipeline, &pipeline.Searchable{Position: uint64(upTo), SearchableAt: since})
	return since
}

func (w *fixture) stopped(send, code string) {
	w.last = w.Append(stream.Name(stream.Ingestion, id(send)),
		&ingestion.Failed{ProjectID: w.project, Code: code, Message: send + " stopped", FailedAt: w.at()})
}

func (w *fixture) retried(send string, round int) {
	w.last = w.Append(stream.Name(stream.Ingestion, id(send)),
		&ingestion.Retried{ProjectID: w.project, Round: round, RetriedAt: w.at()})
}

// committed commits a batch and returns the locations of its items.
func (w *fixture) committed(send string, sources ...string) func(ordinal int) location {
	accepted := &ingestion.Accepted{
		ProjectID: w.project, RequestID: id("request of " + send), AcceptedAt: w.at(), Month: "2026-11",
	}
	for _, source := range sources {
		accepted.Items = append(accepted.Items, ingestion.Item{DataPoint: id(source), Bytes: 7, CreditTenths: 10})
	}
	w.last = w.Append(stream.Name(stream.Ingestion, id(send)), accepted)
	commit := w.last
	return func(ordinal int) location { return location{ordinal: ordinal, items: len(sources), commit: commit} }
}

func (w *fixture) fannedOut(send string, outcomes ...ingestion.Outcome) {
	w.last = w.Append(stream.Name(stream.Ingestion, id(send)),
		&ingestion.FannedOut{ProjectID: w.project, Outcomes: outcomes})
}

// deleted deletes a data point, alone or as a part of an operation.
func (w *fixture) deleted(operation, source string, single bool) {
	w.last = w.Append(stream.Name(stream.DataPoint, id(source)), &datapoint.Deleted{
		ProjectID: w.project, DeletionID: id(operation), DeletedAt: w.at(),
		IngestionID: w.states[source].IngestionID, Single: single,
	})
}

// wiped commits a deletion; send is "" for one by source ids.
func (w *fixture) wiped(operation, send string, sources ...string) {
	accepted := &deletion.Accepted{ProjectID: w.project, AcceptedAt: w.at()}
	if send != "" {
		accepted.IngestionID = id(send)
	}
	for _, source := range sources {
		accepted.Targets = append(accepted.Targets, deletion.Target{DataPoint: id(source)})
	}
	w.last = w.Append(stream.Name(stream.Deletion, id(operation)), accepted)
}

func (w *fixture) wipeFannedOut(operation string) {
	w.last = w.Append(stream.Name(stream.Deletion, id(operation)), &deletion.FannedOut{ProjectID: w.project})
}

func (w *fixture) kept(operation, source string, facts ...deletion.RetainedFact) {
	w.keptOf(w.at(), operation, source, facts...)
}

func (w *fixture) keptOf(deletedAt time.Time, operation, source string, facts ...deletion.RetainedFact) {
	newest := 0
	for _, fact := range facts {
		if fact.CreatedRevision() && !fact.Historic {
			newest = max(newest, fact.Revision)
		}
	}
	w.last = w.Append(stream.Name(stream.Deletion, id(operation)), &deletion.FactsKept{
		ProjectID: w.project, DataPoint: id(source), Facts: facts, Blobs: []string{"blob-of-" + source}, DeletedAt: deletedAt,
		To: int64(len(facts)), Complete: true, Newest: newest,
	})
}

func (w *fixture) cleaned(operation string) {
	w.last = w.Append(stream.Name(stream.Deletion, id(operation)),
		&deletion.Cleaned{ProjectID: w.project, CleanedAt: w.at()})
}

// sendRow is what a test expects of a send.
type sendRow struct {
	Phase       string
	Settled     time.Time // zero for none
	Code        string
	FailureOpen bool
	Round       int
}

func (w *fixture) sends() map[uuid.UUID]sendRow {
	w.t.Helper()
	rows, err := w.Queries.DB.Query(w.t.Context(), `select id, phase, coalesce(settled_at, '0001-01-01Z'),
		coalesce(failure_code, ''), failure_open, round from datapoints.sends`)
	runtest.Must(w.t, err)
	sends := map[uuid.UUID]sendRow{}
	var (
		send uuid.UUID
		row  sendRow
	)
	if _, err := pgx.ForEachRow(rows, []any{
		&send, &row.Phase, &row.Settled, &row.Code, &row.FailureOpen, &row.Round,
	}, func() error {
		sends[send] = row
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	return sends
}

// shown returns the items of a send, with what the fold derives.
func (w *fixture) shown(send string) []datapoints.Item {
	w.t.Helper()
	s, _, err := w.Queries.Explain(w.t.Context(), project, id(send), 100, 0)
	if err != nil {
		w.t.Fatalf("items of %s: %v", send, err)
	}
	for n := range s.Items { // these are of TestExplain
		s.Items[n].SourceID, s.Items[n].Searchable, s.Items[n].Memories = "", false, 0
	}
	return s.Items
}
