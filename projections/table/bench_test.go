package table_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/memories"
	"github.com/annals-project/annals/projections/trace"
	"github.com/annals-project/annals/projections/usage"
)

// pageLog makes the events of pages.
type pageLog struct {
	at   eventstore.Position
	page []eventstore.DecodedEvent
}

func (l *pageLog) add(category string, owner uuid.UUID, e event.Event) {
	l.at += 10
	l.page = append(l.page, eventstore.DecodedEvent{
		Recorded: eventstore.Recorded{
			Stream: stream.Name(category, owner), Revision: eventstore.Revision(l.at), Position: l.at, Type: e.EventType(),
		},
		Event: e,
	})
}

// BenchmarkPage applies pages of about 512 events to each projection that has tables of rows, but for datapoints, whose
// own package has its benchmark.
func BenchmarkPage(b *testing.B) {
	logger, at := slog.New(slog.DiscardHandler), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, bench := range []struct {
		projector projectiontest.Projector
		add       func(l *pageLog, n int)
		times     int
	}{
		{access.New(), func(l *pageLog, n int) { addKeys(l, n, at) }, 85},
		{directory.New(nil, stream.Namespaces{}, logger), func(l *pageLog, n int) { addIdentity(l, n, at) }, 512},
		{memories.New(nil, logger), func(l *pageLog, _ int) { addMemories(l, at) }, 512},
		{trace.NewProjector(nil), func(l *pageLog, _ int) { addMemories(l, at) }, 256},
		{usage.New(), func(l *pageLog, n int) { addCharges(l, n, at) }, 256},
	} {
		b.Run(bench.projector.Name(), func(b *testing.B) {
			db, l, n := pgtest.Database(b), &pageLog{}, 0
			projectiontest.Make(b, db, bench.projector)
			for b.Loop() {
				b.StopTimer()
				l.page = nil
				for range bench.times {
					n++
					bench.add(l, n)
				}
				b.StartTimer()
				projectiontest.Apply(b, db, bench.projector, l.page...)
			}
		})
	}
}

func addKeys(l *pageLog, n int, at time.Time) {
	org, id, key, hash := uuid.New(), uuid.New(), uuid.New(), sha256.Sum256(fmt.Append(nil, n))
	l.add(stream.Registry, org, &registry.OrganizationCreated{OrganizationID: org, Name: "org", Plan: "free", CreatedAt: at})
	l.add(stream.Registry, id, &registry.ProjectCreated{
		OrganizationID: org, ProjectID: id, Number: int64(n), Slug: "main", Name: "Main", Namespace: uuid.New(), CreatedAt: at,
	})
	l.add(stream.Project, id, &project.KeyCreated{
		ProjectID: id, KeyID: key, Name: "key", Hash: hex.EncodeToString(hash[:]), Prefix: "svc_sk_", Suffix: "abcd",
		CreatedAt: at,
	})
	l.add(stream.Organization, org, &organization.MemberAdded{
		OrganizationID: org, MemberID: uuid.New(), Role: organization.Owner, AddedAt: at,
	})
	l.add(stream.Project, id, &project.Described{ProjectID: id, Name: "Other", Description: "text", DescribedAt: at})
	l.add(stream.Project, id, &project.KeyRevoked{ProjectID: id, KeyID: key, RevokedAt: at})
}

var benchProject = uuid.New()

func addIdentity(l *pageLog, n int, at time.Time) {
	if n == 1 {
		l.add(stream.Registry, benchProject, &registry.ProjectCreated{ProjectID: benchProject, Slug: "main", CreatedAt: at})
	}
	name := fmt.Sprint("person ", n)
	l.add(stream.Identity, uuid.NewSHA1(benchProject, []byte(name)), &identity.TraitsReplaced{
		ProjectID: benchProject, Record: identity.Record{
			Identity: name, Origin: "api", CreatedAt: at, UpdatedAt: at,
			Traits: identity.Traits{Inline: map[string]string{"team": fmt.Sprint("team ", n%100), "level": fmt.Sprint(n % 5)}},
		},
	})
}

func addMemories(l *pageLog, at time.Time) {
	id, send := uuid.New(), uuid.New()
	l.add(stream.DataPoint, id, &datapoint.RevisionAccepted{
		Send:   datapoint.Send{ProjectID: benchProject, IngestionID: send, Items: 1, AcceptedAt: at, RequestID: send},
		States: datapoint.States{Effect: datapoint.State{SourceID: "a", Revision: 1, LastNumber: 1, OccurredAt: at}},
		Body:   datapoint.Body{Content: datapoint.Text{Inline: "text"}},
	})
	e := &memory.Derived{ProjectID: benchProject, IngestionID: send, Revision: 1, DerivedAt: at, OccurredAt: at}
	for n := range 3 {
		e.Memories = append(e.Memories, memory.Memory{
			ID: memory.ID(id, 1, n), Kind: "claim", Content: "Ada likes tea.", Excerpt: "I like tea", End: 10,
			Subject: "ada", Attribute: "likes", Inputs: []uuid.UUID{datapoint.NodeID(id, 1)},
		})
	}
	l.add(stream.Memory, id, e)
}

func addCharges(l *pageLog, n int, at time.Time) {
	org, id := uuid.NewSHA1(benchProject, fmt.Append(nil, n%500)), uuid.NewSHA1(benchProject, fmt.Append(nil, n%2000))
	l.add(stream.Usage, id, &metering.Charged{
		ProjectID: id, OrganizationID: org, FlushID: uuid.New(), Month: "2026-11", Recalls: 5, RecallTenths: 5, At: at,
	})
	l.add(stream.Organization, org, &organization.CreditsGranted{
		OrganizationID: org, Kind: "bought", Tenths: 100, Month: "2026-11", GrantedAt: at,
	})
}
