// Package audittest makes logs with erasures, for tests of trees.
package audittest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/offer"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
)

// Leaf is a leaf that a tree must have, and the event that it is of.
type Leaf struct {
	eventstore.Recorded
	Record audit.Record
}

// Log is a log of some organizations, with the leaves that it must give.
type Log struct {
	t        testing.TB
	Store    eventstore.Store
	scavenge func(context.Context) error
	Codec    *eventstore.Codec
	// Organizations begin with the deployment, which is zero.
	Organizations []uuid.UUID
	Leaves        map[uuid.UUID][]Leaf
	at            time.Time
	projects      []owned
	erasable      []owned
	ids           *rand.Rand
	drawn         *rand.Rand
	last          map[string]eventstore.Revision
	signed        map[string]int64 // the sizes of the newest checkpoints, by origin
}

// owned is something of an organization, a project or a stream.
type owned struct {
	organization, project uuid.UUID
	stream                string
}

// New returns a log of two organizations with two projects each, in memory. What it draws follows from the seed.
func New(t testing.TB, seed uint64) *Log {
	store := eventstoretest.NewMemory()
	return On(t, seed, store, store.Scavenge)
}

// On is New on an empty store.
func On(t testing.TB, seed uint64, store eventstore.Store, scavenge func(context.Context) error) *Log {
	l := &Log{
		t: t, Store: store, scavenge: scavenge, Codec: eventstoretest.Codec(t), Leaves: map[uuid.UUID][]Leaf{},
		at: time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC), last: map[string]eventstore.Revision{},
		signed: map[string]int64{},
		ids:    rand.New(rand.NewPCG(seed, 1)), drawn: rand.New(rand.NewPCG(seed, 2)),
	}
	l.Organizations = []uuid.UUID{uuid.Nil, l.id(), l.id()}
	for _, o := range l.Organizations[1:] {
		l.Append(uuid.Nil, stream.Registry, registry.OrganizationCreated{OrganizationID: o, CreatedAt: l.at})
		for range 2 {
			p := l.id()
			l.projects = append(l.projects, owned{organization: o, project: p})
			l.Append(uuid.Nil, stream.Registry, registry.ProjectCreated{ProjectID: p, OrganizationID: o, CreatedAt: l.at})
		}
	}
	return l
}

func (l *Log) id() (id uuid.UUID) {
	for n := range id {
		id[n] = byte(l.ids.Uint32())
	}
	return id
}

// Append appends an event whose leaf is of an organization, a second after the one before.
func (l *Log) Append(of uuid.UUID, name string, e event.Event) eventstore.Position {
	l.t.Helper()
	l.at = l.at.Add(time.Second)
	proposed, err := l.Codec.EncodeAll([]event.Event{e}, event.Meta{CommandID: l.id(), Principal: "pipeline", At: l.at})
	if err != nil {
		l.t.Fatal(err)
	}
	return l.Put(of, name, proposed[0])
}

// Put appends an event as it is stored.
func (l *Log) Put(of uuid.UUID, name string, p eventstore.Proposed) eventstore.Position {
	l.t.Helper()
	expected, known := l.last[name]
	if !known {
		expected = eventstore.NoStream
	}
	done, err := l.Store.Append(context.Background(), name, expected, []eventstore.Proposed{p})
	if err != nil {
		l.t.Fatal(err)
	}
	l.last[name] = done.Revision
	r := eventstore.Recorded{
		Stream: name, Revision: done.Revision, Position: done.Position, ID: p.ID, Type: p.Type, Data: p.Data, Meta: p.Meta,
	}
	if stream.Category(name) == stream.Blob {
		return done.Position
	}
	kept, err := eventstore.DecodedEvent{Recorded: r, Event: eventstore.PassedOver{}}.Kept(of)
	if err != nil {
		l.t.Fatal(err)
	}
	l.Leaves[of] = append(l.Leaves[of], Leaf{r, kept.Record})
	return done.Position
}

// Grow appends events of many kinds, and erases some streams.
func (l *Log) Grow(events int) {
	l.t.Helper()
	for range events {
		of := l.projects[l.drawn.IntN(len(l.projects))]
		if l.drawn.IntN(4) > 0 && len(l.erasable) > 0 {
			of = l.erasable[l.drawn.IntN(len(l.erasable))]
		} else {
			of.stream = ""
		}
		l.step(of)
	}
}

func (l *Log) step(of owned) {
	l.t.Helper()
	begin := func(name string) string {
		if of.stream == "" {
			of.stream = name
			l.erasable = append(l.erasable, of)
		}
		return of.stream
	}
	switch stream.Category(of.stream) {
	case stream.DataPoint:
		id := stream.Owner(of.stream)
		l.Append(of.organization, stream.Name(stream.Memory, id), memory.Failed{ProjectID: of.project, FailedAt: l.at})
		return
	case stream.Identity:
		l.Append(of.organization, of.stream, identity.Removed{ProjectID: of.project, RemovedAt: l.at})
		return
	case stream.Person, stream.Offer, stream.Visits:
		of = l.projects[l.drawn.IntN(len(l.projects))]
	}
	switch l.drawn.IntN(8) {
	case 0:
		l.Append(of.organization, stream.Name(stream.Project, of.project), project.Described{ProjectID: of.project})
	case 1:
		l.Append(of.organization, stream.Name(stream.Organization, of.organization),
			organization.VisitsKeptSet{OrganizationID: of.organization, Days: 30})
	case 2:
		id := l.id()
		l.Append(uuid.Nil, stream.Name(stream.Person, id), person.Registered{PersonID: id, Email: "a@b.c"})
		l.erasable = append(l.erasable, owned{stream: stream.Name(stream.Person, id)})
	case 3:
		id := l.id()
		of = owned{organization: of.organization, stream: stream.Name(stream.Offer, id)}
		l.Append(of.organization, of.stream, offer.Addressed{OfferID: id, OrganizationID: of.organization})
		l.erasable = append(l.erasable, of)
	case 4:
		of = owned{organization: of.organization, stream: stream.VisitsName(of.organization, l.id(), "2026-11")}
		l.Append(of.organization, of.stream, visit.SignedIn{})
		l.erasable = append(l.erasable, of)
	case 5:
		l.Append(uuid.Nil, stream.BlobName(l.id(), l.id()), blob.Opened{ProjectID: of.project})
	case 6:
		name := begin(stream.Name(stream.Identity, l.id()))
		l.Append(of.organization, name, identity.Appeared{ProjectID: of.project, Identity: "ana"})
	case 7:
		name := begin(stream.Name(stream.DataPoint, l.id()))
		l.Append(of.organization, name, identity.Removed{ProjectID: of.project, RemovedAt: l.at})
	}
}

// Erase keeps the records of one stream that can be erased and ends it, and its memories with a data point. It reports
// whether there is one left.
func (l *Log) Erase() bool {
	l.t.Helper()
	if len(l.erasable) == 0 {
		return false
	}
	n := l.drawn.IntN(len(l.erasable))
	of := l.erasable[n]
	l.erasable = slices.DeleteFunc(l.erasable, func(o owned) bool { return o.stream == of.stream })
	id := stream.Owner(of.stream)
	if stream.Category(of.stream) == stream.DataPoint {
		memories := stream.Name(stream.Memory, id)
		kept := &deletion.FactsKept{
			OrganizationID: of.organization, ProjectID: of.project, DataPoint: id, Records: l.records(of.stream),
			MemoryRecords: l.records(memories),
		}
		kept.MemoriesTo = int64(len(kept.MemoryRecords))
		l.Append(of.organization, stream.Name(stream.Deletion, l.id()), kept)
		l.end(memories)
	} else {
		l.Append(of.organization, stream.RecordsName(of.stream), audit.RecordsKept{
			OrganizationID: of.organization, ProjectID: of.project, Stream: of.stream, Records: l.records(of.stream),
		})
	}
	l.end(of.stream)
	return true
}

func (l *Log) records(name string) (list audit.KeptList) {
	for _, leaves := range l.Leaves {
		for _, leaf := range leaves {
			if leaf.Stream == name {
				list = append(list, audit.Kept{EventID: leaf.ID, Position: uint64(leaf.Position), Record: leaf.Record})
			}
		}
	}
	return list
}

func (l *Log) end(name string) {
	l.t.Helper()
	last, known := l.last[name]
	if !known {
		return
	}
	if _, err := l.Store.Tombstone(context.Background(), name, last); err != nil {
		l.t.Fatal(err)
	}
}

// Scavenge removes what is erased.
func (l *Log) Scavenge() {
	l.t.Helper()
	if err := l.scavenge(context.Background()); err != nil {
		l.t.Fatal(err)
	}
}

// Events decodes the events of the log after a position, without those of the store.
func (l *Log) Events(after eventstore.Position) (events []eventstore.DecodedEvent) {
	for _, r := range eventstoretest.All(l.t, l.Store, after) {
		if !r.System() {
			events = append(events, l.Codec.DecodeRecorded(r))
		}
	}
	return events
}

// Root returns the root of the first leaves of a tree.
func (l *Log) Root(organization uuid.UUID, size int64) tlog.Hash {
	l.t.Helper()
	var hashes []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) (list []tlog.Hash, err error) {
		for _, n := range indexes {
			if n >= int64(len(hashes)) {
				return nil, fmt.Errorf("hash %d of %d", n, len(hashes))
			}
			list = append(list, hashes[n])
		}
		return list, nil
	})
	for n, leaf := range l.Leaves[organization][:size] {
		more, err := tlog.StoredHashes(int64(n), leaf.Record[:], reader)
		if err != nil {
			l.t.Fatal(err)
		}
		hashes = append(hashes, more...)
	}
	root, err := tlog.TreeHash(size, reader)
	if err != nil {
		l.t.Fatal(err)
	}
	return root
}

// OfProject returns an organization and a project of it.
func (l *Log) OfProject() (organization, project uuid.UUID) {
	return l.projects[0].organization, l.projects[0].project
}
