package history_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/history"
)

// A visit has a row of its organization, which goes with its stream.
func TestProjector_Visits(t *testing.T) {
	db, p := pgtest.Database(t), history.New()
	projectiontest.Make(t, db, p)
	of, other, ana, ben := uuid.New(), uuid.New(), uuid.New(), uuid.New()
	noon := time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)
	var log projectiontest.Log
	visits := func(in, person uuid.UUID) string { return stream.VisitsName(in, person, "2026-11") }
	add := func(in, person uuid.UUID, hour int, e func(visit.Visit) event.Event) {
		at := noon.Add(time.Duration(hour) * time.Hour)
		log.Append(visits(in, person), e(visit.Visit{OrganizationID: in, PersonID: person, VisitedAt: at}))
		details := &log.Facts[len(log.Facts)-1].Details
		details.Principal, details.At = "person:"+person.String(), at
	}
	signIn := func(v visit.Visit) event.Event { return &visit.SignedIn{Visit: v, Way: visit.Password} }
	export := func(v visit.Visit) event.Event { return &visit.Exported{Visit: v, What: "members", Format: "csv"} }
	add(of, ana, 0, signIn)
	add(of, ana, 2, signIn)
	add(of, ana, 3, export)
	add(of, ben, 1, signIn)
	add(other, ana, 5, signIn)
	projectiontest.Apply(t, db, p, log.Facts...)
	rows := func() map[string]int {
		t.Helper()
		dump, err := projectiontest.Dump(t.Context(), db, p)
		runtest.Must(t, err)
		return map[string]int{"entries": len(dump["entries"]), "about": len(dump["about"])}
	}
	if diff := cmp.Diff(map[string]int{"entries": 5, "about": 5}, rows()); diff != "" {
		t.Errorf("rows: %s", diff)
	}
	log.Append(eventstore.SystemStream, &eventstore.Tombstoned{Stream: visits(of, ana)})
	projectiontest.Apply(t, db, p, log.Facts[len(log.Facts)-1])
	if diff := cmp.Diff(map[string]int{"entries": 2, "about": 2}, rows()); diff != "" {
		t.Errorf("rows after the end of a stream: %s", diff)
	}
	projectiontest.Empty(t, db, p)
	projectiontest.Apply(t, db, p, log.Facts...)
	if diff := cmp.Diff(map[string]int{"entries": 2, "about": 2}, rows()); diff != "" {
		t.Errorf("rows of one page: %s", diff)
	}
}
