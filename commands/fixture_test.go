package commands_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
)

// fixture is the write side over a store. What projections know is read from the log.
type fixture struct {
	*commands.Service
	config commands.Config
	t      *testing.T
	log    *engine.Journal
	store  eventstore.Store
	call   engine.Call
}

// newFixture is over a store in memory, which the suite of eventstoretest holds to what a node does. At the end of the
// test, the log has the leaf of every event that was ever stored.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	memory := eventstoretest.NewMemory()
	eventstoretest.CheckRecordsAtEnd(t, memory)
	return fixtureOver(t, memory)
}

// newRegistered is newFixture with the project in the registry, where an erasure finds its organization.
func newRegistered(t *testing.T) *fixture {
	t.Helper()
	w := newFixture(t)
	_, err := w.log.Append(t.Context(), stream.Registry, eventstore.NoStream, event.NewMeta("test", time.Now()),
		registry.ProjectCreated{OrganizationID: uuid.New(), ProjectID: w.call.Principal.Project.ID})
	runtest.Must(t, err)
	return w
}

// fixtureOver returns another process on the same log, with the same project.
func fixtureOver(t *testing.T, store eventstore.Store) *fixture {
	t.Helper()
	codec := eventstoretest.Codec(t)
	w := &fixture{t: t, store: store, log: engine.NewJournal(store, codec, slog.New(slog.DiscardHandler))}
	w.log.Namespaces = stream.NewNamespaces(make([]byte, 32))
	w.config = commands.Config{
		Journal: w.log, Waiter: noWait{}, Sends: w, Directory: logDirectory{w.log}, HashKey: make([]byte, 32), Pipeline: true,
	}
	w.Service = commands.New(w.config)
	w.call = engine.Call{
		Principal: auth.Principal{
			Kind: auth.ProjectKey, KeyID: uuid.MustParse("00000000-0000-4000-8000-0000000000aa"),
			Project: auth.Project{
				ID: uuid.MustParse("00000000-0000-4000-8000-0000000000bb"), Number: 7,
				Namespace: uuid.MustParse("00000000-0000-4000-8000-0000000000cc"),
			},
		},
		RequestID: uuid.New(), ReceivedAt: time.Date(2026, 5, 12, 12, 0, 0, 0, time.UTC),
	}
	return w
}

// configure replaces the service by one with a changed configuration.
func (w *fixture) configure(change func(*commands.Config)) {
	change(&w.config)
	w.Service = commands.New(w.config)
}

// nothingSearchable is a projection that has applied no watermark.
type nothingSearchable struct{}

func (nothingSearchable) SearchableSince(context.Context, []uuid.UUID) (map[uuid.UUID]time.Time, error) {
	return map[uuid.UUID]time.Time{}, nil
}

func (nothingSearchable) FactsOf(context.Context, uuid.UUID, int, int) (work.Facts, error) {
	return work.Facts{}, nil
}

func (nothingSearchable) Erasures(context.Context, int) ([]work.Erasure, error) { return nil, nil }

func (nothingSearchable) CleanableDeletions(context.Context, *work.Deletion, int) ([]work.Deletion, error) {
	return nil, nil
}

// eraser erases single deletions, identities and blobs of the log.
func (w *fixture) eraser() *erasure.Eraser {
	return &erasure.Eraser{
		Streams: erasure.Streams{
			Journal:  w.log.Journal,
			Projects: w.log,
			Logger:   w.log.Logger,
			Now:      time.Now,
		}, Deletions: nothingSearchable{},
	}
}

// noWait is a Waiter for projections that are never late. The tests of the projections cover
// waiting.
type noWait struct{}

func (noWait) Wait(context.Context, eventstore.Position, ...string) error { return nil }

// Targets implements ingest.Sends by a fold of the log.
func (w *fixture) Targets(
	ctx context.Context, project auth.Project, id uuid.UUID,
) (targets []uuid.UUID, found bool, err error) {
	err = logDirectory{w.log}.fold(ctx, func(f eventstore.DecodedEvent) {
		send, _, ok := datapoint.SendOf(f.Event)
		if !ok || send.IngestionID != id || send.ProjectID != project.ID {
			return
		}
		found = true
		if _, created := f.Event.(*datapoint.RevisionAccepted); created {
			targets = append(targets, stream.Owner(f.Stream))
		}
	})
	return targets, found, err
}

// ProjectOf implements ingest.Sends: each send of a fixture is of the project of its call.
func (w *fixture) ProjectOf(ctx context.Context, id uuid.UUID) (uuid.UUID, bool, error) {
	_, found, err := w.Targets(ctx, w.call.Principal.Project, id)
	return w.call.Principal.Project.ID, found, err
}

// NewestSends implements ingest.Sends by a fold of the log.
func (w *fixture) NewestSends(
	ctx context.Context, _ auth.Project, dataPoints []uuid.UUID,
) (map[uuid.UUID]uuid.UUID, error) {
	newest := map[uuid.UUID]uuid.UUID{}
	err := logDirectory{w.log}.fold(ctx, func(f eventstore.DecodedEvent) {
		id := stream.Owner(f.Stream)
		if stream.Category(f.Stream) != stream.DataPoint || !slices.Contains(dataPoints, id) {
			return
		}
		if send, _, ok := datapoint.SendOf(f.Event); ok {
			newest[id] = send.IngestionID
		} else {
			delete(newest, id)
		}
	})
	return newest, err
}

// Pending implements ingest.Sends by a fold of the log.
func (w *fixture) Pending(
	ctx context.Context, project auth.Project, dataPoints []uuid.UUID,
) (map[uuid.UUID]bool, error) {
	open := map[string]*ingestion.Accepted{}
	err := logDirectory{w.log}.fold(ctx, func(f eventstore.DecodedEvent) {
		switch e := f.Event.(type) {
		case *ingestion.Accepted:
			open[f.Stream] = e
		case *ingestion.FannedOut, *ingestion.Failed:
			delete(open, f.Stream)
		}
	})
	pending := map[uuid.UUID]bool{}
	for _, e := range open {
		for _, i := range e.Items {
			if e.ProjectID == project.ID && slices.Contains(dataPoints, i.DataPoint) {
				pending[i.DataPoint] = true
			}
		}
	}
	return pending, err
}

// Completed implements ingest.Sends by a fold of the log.
func (w *fixture) Completed(ctx context.Context, project auth.Project, id uuid.UUID) (is bool, err error) {
	err = logDirectory{w.log}.fold(ctx, func(f eventstore.DecodedEvent) {
		d, ok := f.Event.(*deletion.Accepted)
		is = is || ok && d.IngestionID == id && d.ProjectID == project.ID
	})
	return is, err
}

func (w *fixture) ingest(in ingest.DataPoint, key string) ingest.Receipt {
	w.t.Helper()
	r, err := w.Ingest(w.t.Context(), w.call, in, key)
	runtest.Must(w.t, err)
	return r
}

// read returns the decoded events of a stream.
func (w *fixture) read(name string) []eventstore.DecodedEvent {
	w.t.Helper()
	facts, err := w.log.ReadFrom(w.t.Context(), name, 0)
	runtest.Must(w.t, err)
	return facts
}

// history returns the decoded events of a data point.
func (w *fixture) history(sourceID string) []eventstore.DecodedEvent {
	w.t.Helper()
	return w.read(stream.Name(stream.DataPoint, stream.DataPointID(w.call.Principal.Project.Namespace, sourceID)))
}

// head returns the state at the head of a data point's stream.
func (w *fixture) head(sourceID string) datapoint.State {
	w.t.Helper()
	facts := w.history(sourceID)
	if len(facts) == 0 {
		w.t.Fatalf("no data point %q", sourceID)
	}
	_, current, _ := datapoint.SendOf(facts[len(facts)-1].Event)
	return current.Head()
}

func (w *fixture) types(sourceID string) []string {
	var types []string
	for _, f := range w.history(sourceID) {
		types = append(types, f.Type)
	}
	return types
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

func wantTypes(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

func wantFault(t *testing.T, err error, code string) *fault.Error {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Code != code {
		t.Fatalf("error %v, want %s", err, code)
	}
	return f
}

// text returns a data point with an id.
func text(id, content string, change ...func(*ingest.DataPoint)) ingest.DataPoint {
	in := ingest.DataPoint{Content: content, ID: &id}
	for _, c := range change {
		c(&in)
	}
	return in
}

func labelled(label string) func(*ingest.DataPoint) {
	return func(in *ingest.DataPoint) { in.Label = &label }
}

func by(author string) func(*ingest.DataPoint) {
	return func(in *ingest.DataPoint) { in.Identity = &author }
}

func with(metadata string) func(*ingest.DataPoint) {
	return func(in *ingest.DataPoint) { in.Metadata = json.RawMessage(metadata) }
}

// waits records the projections that an answer waited for, and the position.
type waits struct {
	at    eventstore.Position
	names []string
	// late is returned for follow-ups.
	late error
}

func (w *waits) Wait(_ context.Context, position eventstore.Position, names ...string) error {
	if position > 0 {
		w.at, w.names = position, names
	}
	return nil
}

// WaitFollowUp implements identities.FollowUps. It records the follow-up like a projection.
func (w *waits) WaitFollowUp(_ context.Context, projection, kind string, key uuid.UUID) error {
	w.names = append(w.names, projection+" "+kind+" "+key.String())
	return w.late
}

func (w *waits) take() (names []string) {
	names, w.names = w.names, nil
	return names
}

// want checks what an answer waited for since the last take.
func (w *waits) want(t *testing.T, what string, names ...string) {
	t.Helper()
	if got := w.take(); !slices.Equal(got, names) {
		t.Errorf("%s waited for %q, want %q", what, got, names)
	}
}

func fixedOf(slug string, names ...string) identities.AudiencePut {
	return identities.AudiencePut{Slug: slug, Kind: audience.KindFixed, Identities: append([]string{}, names...)}
}

func ruleOf(slug string, conditions ...audience.Condition) identities.AudiencePut {
	return identities.AudiencePut{
		Slug: slug,
		Kind: audience.KindRule,
		Rule: &audience.Rule{Match: audience.MatchAll, Conditions: conditions},
	}
}

func to(slug string) func(*ingest.DataPoint) {
	return func(in *ingest.DataPoint) { in.Audience = &slug }
}

func (w *fixture) put(in identities.AudiencePut) identities.AudienceReceipt {
	w.t.Helper()
	r, err := w.PutAudience(w.t.Context(), w.call, in)
	runtest.Must(w.t, err)
	return r
}

// audiences returns the decoded events of the project's audiences.
func (w *fixture) audiences() []eventstore.DecodedEvent {
	w.t.Helper()
	return w.read(stream.Name(stream.Audiences, w.call.Principal.Project.ID))
}

func (w *fixture) identityID(name string) uuid.UUID {
	return stream.IdentityID(w.call.Principal.Project.Namespace, name)
}

// records returns the decoded events of an identity.
func (w *fixture) records(name string) []eventstore.DecodedEvent {
	w.t.Helper()
	return w.read(stream.Name(stream.Identity, w.identityID(name)))
}

// records is an identities.Records that has some identities, by name.
type records struct {
	names []string
	asked int
}

func (r *records) Known(_ context.Context, project auth.Project, ids []uuid.UUID) (map[uuid.UUID]struct{}, error) {
	known := make(map[uuid.UUID]struct{})
	for _, name := range r.names {
		if id := stream.IdentityID(project.Namespace, name); slices.Contains(ids, id) {
			known[id] = struct{}{}
		}
	}
	r.asked += len(ids)
	return known, nil
}
