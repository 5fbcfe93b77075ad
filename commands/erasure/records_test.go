package erasure_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/seedtest"
	"github.com/annals-project/annals/internal/work"
)

// tenants are projects with their organizations.
type tenants map[uuid.UUID]uuid.UUID

func (p tenants) OrganizationOf(_ context.Context, project uuid.UUID) (uuid.UUID, error) {
	organization, ok := p[project]
	if !ok {
		return uuid.Nil, fmt.Errorf("project %s: %w", project, engine.ErrNoProject)
	}
	return organization, nil
}

func (tenants) AuthorID(_ context.Context, project uuid.UUID, author string) (uuid.UUID, error) {
	return stream.IdentityID(project, author), nil
}

// unsearchable is a work list of deletions in which no send is searchable.
type unsearchable struct{}

func (unsearchable) SearchableSince(context.Context, []uuid.UUID) (map[uuid.UUID]time.Time, error) {
	return map[uuid.UUID]time.Time{}, nil
}

func (unsearchable) FactsOf(context.Context, uuid.UUID, int, int) (work.Facts, error) {
	return work.Facts{}, nil
}

func (unsearchable) Erasures(context.Context, int) ([]work.Erasure, error) { return nil, nil }

func (unsearchable) CleanableDeletions(context.Context, *work.Deletion, int) ([]work.Deletion, error) {
	return nil, nil
}

// history is a log with events of every type, which processes that die erase.
type history struct {
	*rand.Rand
	t        *testing.T
	memory   *eventstoretest.Memory
	log      eventstore.Journal
	projects tenants
	// ids are those that streams of each category have: few, so that streams grow.
	ids []uuid.UUID
	// owners are the projects of the ids, deletions those that took data points, by data point.
	owners    map[uuid.UUID]uuid.UUID
	deletions map[uuid.UUID]uuid.UUID
	removals  []work.Removal
	blobs     []string
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{
		Rand: rand.New(rand.NewPCG(seed, seed)), t: t, memory: eventstoretest.NewMemory(), projects: tenants{},
		owners: map[uuid.UUID]uuid.UUID{}, deletions: map[uuid.UUID]uuid.UUID{},
	}
	codec := eventstoretest.Codec(t)
	h.log = eventstore.Journal{Store: h.memory, Codec: codec, Aside: eventstore.NewSetAside(h.memory, codec)}
	h.append(stream.Registry, &registry.LogOpened{LogID: uuid.New()})
	for range 3 {
		h.projects[uuid.New()] = uuid.New()
	}
	for project, organization := range h.projects {
		h.append(stream.Registry, &registry.ProjectCreated{OrganizationID: organization, ProjectID: project})
		for range 3 {
			id := uuid.New()
			h.ids, h.owners[id] = append(h.ids, id), project
		}
	}
	return h
}

func (h *history) must(err error) {
	h.t.Helper()
	if err != nil && !errors.Is(err, errDied) {
		h.t.Fatal(err)
	}
}

func (h *history) id() uuid.UUID { return h.ids[h.IntN(len(h.ids))] }

// eraser is that of a process, which mostly dies at one of its next writes.
func (h *history) eraser(dies bool) *erasure.Eraser {
	log := h.log
	if dies {
		log.Store = &hooked{Memory: h.memory, hook: dying(1+h.IntN(5), h.IntN(2) == 0)}
	}
	return &erasure.Eraser{
		Streams: erasure.Streams{
			Journal: log, Projects: h.projects, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
		},
		Deletions: unsearchable{},
	}
}

// append appends to a stream that is not erased. ok is false for one that is.
func (h *history) append(name string, events ...event.Event) (done eventstore.Appended, ok bool) {
	h.t.Helper()
	last, _, err := h.log.Last(h.t.Context(), name)
	if errors.Is(err, eventstore.ErrDeleted) {
		return done, false
	}
	h.must(err)
	done, err = h.log.Append(h.t.Context(), name, last.Revision, event.NewMeta("test", time.Now()), events...)
	h.must(err)
	return done, true
}

// streams are the names of blobs in golden payloads.
var streams = regexp.MustCompile(`"stream": "[^"]*"`)

// categories are those of the streams whose name is not the first word of their events.
var categories = map[string]string{"audience": stream.Audiences, "audit": stream.Records}

// store appends events of any type to a stream of their category: those of the golden payloads, for a
// project of the log. A data point that is deleted gets none, its memories do.
func (h *history) store() {
	e := domain.Catalog[h.IntN(len(domain.Catalog))]()
	name := e.EventType()
	payload, err := os.ReadFile(filepath.Join("../../domain/testdata/events", name+".json"))
	h.must(err)
	payload = streams.ReplaceAll(payload, []byte(`"stream": "`+stream.BlobName(h.id(), uuid.New())+`"`))
	h.must(json.Unmarshal(payload, e))
	category, _, _ := strings.Cut(name, ".")
	if other, is := categories[category]; is {
		category = other
	}
	id := h.id()
	switch e := e.(type) {
	case *datapoint.Deleted, *identity.Removed, *blob.Opened, *deletion.FactsKept, *deletion.Cleaned,
		*audit.RecordsKept, *registry.ProjectCreated: // the others of the walk decide when
		return
	case *deletion.Accepted, *deletion.FannedOut:
		id = uuid.New() // of no deletion of the walk
	default:
		if field := reflect.ValueOf(e).Elem().FieldByName("ProjectID"); field.IsValid() {
			field.Set(reflect.ValueOf(h.owners[id]))
		}
	}
	if category == stream.DataPoint && h.deletions[id] != uuid.Nil {
		return
	}
	streamName := stream.Name(category, id) // of records: of none that the eraser writes
	switch category {
	case stream.Registry, stream.Pipeline:
		streamName = category
	case stream.Usage:
		streamName = stream.UsageName(id, "2026-05")
	}
	events := make([]event.Event, 1+h.IntN(3))
	for i := range events {
		events[i] = e
	}
	h.append(streamName, events...)
}

// strange stores an event that cannot be decoded, and sets it aside. Its leaf is of the organization that its bytes
// name, if they name a project.
func (h *history) strange() {
	id := h.id()
	category := []string{stream.DataPoint, stream.Memory, stream.Identity, stream.Person}[h.IntN(4)]
	if category == stream.DataPoint && h.deletions[id] != uuid.Nil {
		return
	}
	other := h.owners[h.id()].String()
	data := []string{`{"projectId":"` + other + `"}`, `{"projectId":"` + uuid.NewString() + `"}`, `{"projectId":1}`, `{`}
	meta := []byte(`{"schema":1,"at":"2026-11-05T12:00:00Z"}`)
	if h.IntN(3) > 0 {
		meta = event.WithSalt(meta, [event.SaltSize]byte{byte(h.Int())})
	}
	name := stream.Name(category, id)
	last, _, err := h.log.Last(h.t.Context(), name)
	if errors.Is(err, eventstore.ErrDeleted) {
		return
	}
	h.must(err)
	done, err := h.memory.Append(h.t.Context(), name, last.Revision, []eventstore.Proposed{
		{ID: uuid.New(), Type: category + ".unheard-of.v1", Data: []byte(data[h.IntN(len(data))]), Meta: meta},
	})
	h.must(err)
	h.append(stream.Registry, &registry.EventSetAside{Position: uint64(done.Position), Projections: []string{"audit"}})
}

func (h *history) deleteDataPoint() {
	id := h.id()
	if h.deletions[id] != uuid.Nil {
		return
	}
	h.deletions[id] = uuid.New()
	h.append(stream.Name(stream.DataPoint, id), &datapoint.Deleted{ProjectID: h.owners[id], DeletionID: h.deletions[id]})
}

func (h *history) retain(dies bool) {
	for _, id := range h.ids {
		if of := h.deletions[id]; of != uuid.Nil {
			h.must(h.eraser(dies).RetainFacts(h.t.Context(), of, []uuid.UUID{id}))
		}
	}
}

func (h *history) tombstone(dies bool) {
	for _, id := range h.ids {
		of := h.deletions[id]
		if _, _, err := h.eraser(dies).Tombstone(h.t.Context(), of); !errors.Is(err, erasure.ErrNotYet) {
			h.must(err)
		}
	}
}

// forget makes the ids of erased data points those of new ones.
func (h *history) forget() {
	for i, id := range h.ids {
		_, _, err := h.memory.ReadLast(h.t.Context(), stream.Name(stream.DataPoint, id))
		if errors.Is(err, eventstore.ErrDeleted) {
			h.ids[i] = uuid.New()
			h.owners[h.ids[i]] = h.owners[id]
			delete(h.deletions, id)
		}
	}
}

func (h *history) removeIdentity() {
	id := h.id()
	done, ok := h.append(stream.Name(stream.Identity, id), &identity.Removed{ProjectID: h.owners[id]})
	if ok {
		h.removals = append(h.removals, work.Removal{ProjectID: h.owners[id], IdentityID: id, Revision: done.Revision})
	}
}

func (h *history) truncate(dies bool) {
	for _, r := range h.removals {
		h.must(h.eraser(dies).TruncateIdentity(h.t.Context(), r))
		if done, err := h.eraser(false).IsTruncated(h.t.Context(), r); err == nil && done && h.IntN(2) == 0 {
			h.must(h.eraser(dies).RecordCleared(h.t.Context(), r, time.Now()))
		}
	}
}

// erasePerson ends the stream of a person, which belongs to no organization.
func (h *history) erasePerson(dies bool) {
	h.must(h.eraser(dies).ErasePerson(h.t.Context(), h.id()))
}

func (h *history) sweep(dies bool) {
	id := h.id()
	now := time.Now()
	ref, err := h.log.WriteBlob(h.t.Context(), id, uuid.New(), h.owners[id], now, event.NewMeta("test", now), []byte("text"))
	h.must(err)
	h.blobs = append(h.blobs, ref.Stream)
	for _, name := range h.blobs {
		_, err := h.eraser(dies).SweepBlob(h.t.Context(), name, time.Now().Add(time.Hour))
		h.must(err)
	}
}

// After erasures by processes that die, and scavenges, the log has the leaf of every event that was
// ever stored, at its place: the event, or its record.
func TestRecords_OfEveryEventEverStored(t *testing.T) {
	steps := 400
	if text := os.Getenv("ANNALS_TEST_RECORDS"); text != "" {
		var err error
		if steps, err = strconv.Atoi(text); err != nil {
			t.Fatalf("ANNALS_TEST_RECORDS: %v", err)
		}
	}
	h := newHistory(t, seedtest.Of(t))
	for range steps {
		dies := h.IntN(3) > 0
		switch h.IntN(14) {
		case 0:
			h.deleteDataPoint()
		case 1:
			h.retain(dies)
		case 2:
			h.tombstone(dies)
		case 3:
			h.forget()
		case 4:
			h.removeIdentity()
		case 5:
			h.truncate(dies)
		case 6:
			h.sweep(dies)
		case 7:
			h.erasePerson(dies)
		case 8:
			h.must(h.memory.Scavenge(t.Context()))
			eventstoretest.CheckRecords(t, h.memory, h.memory.Ever())
		case 9:
			h.strange()
		default:
			h.store()
		}
	}
	for range 2 { // what a process left is retained first, and then tombstoned
		h.retain(false)
		h.tombstone(false)
		h.truncate(false)
	}
	h.must(h.memory.Scavenge(t.Context()))
	kept := eventstoretest.CheckRecords(t, h.memory, h.memory.Ever())
	gone := 0
	for _, r := range h.memory.Ever() {
		if _, ok, err := h.memory.ReadAt(t.Context(), r.Position); err != nil {
			t.Fatal(err)
		} else if !ok && stream.Category(r.Stream) != stream.Blob {
			gone++
		}
	}
	t.Logf("%d events were stored, %d left the log, %d records are kept", len(h.memory.Ever()), gone, kept)
	if gone < steps/10 || kept < gone {
		t.Errorf("%d events left the log, and %d records are kept", gone, kept)
	}
}

// The records of a long stream are kept a part at a time. A process that dies between them is followed
// by one that goes on, and by one that finds all kept.
func TestKeepRecords_LongStream(t *testing.T) {
	const count = 2500
	h := newHistory(t, 1)
	id := h.id()
	name := stream.Name(stream.Identity, id)
	of := erasure.Owner{Organization: h.projects[h.owners[id]], Project: h.owners[id]}
	for range count {
		h.append(name, &identity.Appeared{ProjectID: of.Project, Identity: "ana"})
	}
	for _, writes := range []int{2, 10, 1} {
		s := h.eraser(false).Streams
		s.Journal.Store = &hooked{Memory: h.memory, hook: dying(writes, true)}
		err := s.KeepRecords(t.Context(), of, name, 0, count)
		if died := errors.Is(err, errDied); died != (writes == 2) || !died && err != nil {
			t.Errorf("with %d writes to its death: %v", writes, err)
		}
	}
	parts, err := h.log.ReadFrom(t.Context(), stream.RecordsName(name), 0)
	if err != nil || len(parts) != 3 {
		t.Fatalf("%d parts, %v", len(parts), err)
	}
	next := int64(0)
	for _, f := range parts {
		e := f.Event.(*audit.RecordsKept)
		if e.From != next || len(e.Records) > 1000 || f.Size() > 100<<10 || e.Stream != name ||
			e.OrganizationID != of.Organization || e.ProjectID != of.Project {
			t.Errorf("a part of %d bytes keeps %d records of %s from %d", f.Size(), len(e.Records), e.Stream, e.From)
		}
		next = e.To()
	}
	if next != count {
		t.Errorf("records up to %d are kept", next)
	}
	eventstoretest.CheckRecords(t, h.memory, h.memory.Ever())
}

// An event that left the log without a record is not passed over.
func TestKeepRecords_EventIsGone(t *testing.T) {
	h := newHistory(t, 1)
	id := h.id()
	name := stream.Name(stream.Identity, id)
	h.append(name, &identity.Appeared{}, &identity.Appeared{}, &identity.Removed{})
	h.must(h.memory.Truncate(t.Context(), name, 1))
	if err := h.eraser(false).KeepRecords(t.Context(), erasure.Owner{}, name, 0, 2); err == nil {
		t.Error("the records are kept without that of the first event")
	}
}
