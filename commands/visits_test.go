package commands_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/people"
	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/visits"
	"github.com/annals-project/annals/internal/work"
)

// visitQueue is a queue in memory. lost is how many removals fail after their append.
type visitQueue struct {
	entries []visits.Entry
	lost    int
}

// Take implements the queue of people.Visits.
func (q *visitQueue) Take(
	ctx context.Context, _ time.Time, do func(context.Context, visits.Entry) error,
) (bool, error) {
	if len(q.entries) == 0 {
		return false, nil
	}
	if err := do(ctx, q.entries[0]); err != nil {
		return false, err
	}
	if q.lost > 0 {
		q.lost--
		return false, errors.New("lost")
	}
	q.entries = q.entries[1:]
	return true, nil
}

// visitors appends the visits of a queue. Everybody is a member of some organizations.
func (w *fixture) visitors(q *visitQueue, organizations ...uuid.UUID) *people.Visits {
	members := func(context.Context, uuid.UUID) ([]uuid.UUID, error) { return organizations, nil }
	return &people.Visits{Journal: w.log, Queue: q, MembersOf: members, Now: w.log.Now}
}

func (w *fixture) visited(organization, person uuid.UUID, at time.Time) []eventstore.DecodedEvent {
	w.t.Helper()
	list := w.read(stream.VisitsName(organization, person, at.UTC().Format("2006-01")))
	return list
}

func signIn(person, in uuid.UUID, at time.Time) visits.Entry {
	return visits.Entry{
		ID: uuid.New(), Person: person, Organization: in, At: at, RequestID: uuid.New(), Attempts: 1, LastAt: at,
		Principal: "person:" + person.String(),
		Event:     &visit.SignedIn{Visit: visit.Visit{Network: "192.0.2.1", Browser: "Lynx"}, Way: visit.Password},
	}
}

// A visit is in the stream of each organization that it concerns, once, also if the removal from the queue fails after
// the append.
func TestVisits_OnceForEachOrganization(t *testing.T) {
	w := peopled(t)
	ana, at := w.add("Annals", anas, organization.Member), w.call.ReceivedAt
	both := []uuid.UUID{w.org("Annals"), w.org("Acme")}
	first, second := signIn(ana, uuid.Nil, at), signIn(ana, both[0], at.Add(time.Second))
	q := &visitQueue{entries: []visits.Entry{first, second}, lost: 1}
	v := w.visitors(q, both...)
	if err := v.Flush(t.Context()); err == nil {
		t.Error("the failure is lost")
	}
	runtest.Must(t, v.Flush(t.Context()))
	for i, want := range []int{2, 1} {
		list := w.visited(both[i], ana, at)
		if len(list) != want {
			t.Fatalf("organization %d has %d visits, want %d", i, len(list), want)
		}
		meta := list[0].Details
		if meta.Principal != "person:"+ana.String() || meta.RequestID != first.RequestID || !meta.At.Equal(at) {
			t.Errorf("caused by %+v", meta)
		}
		got := &visit.SignedIn{Visit: visit.Visit{
			OrganizationID: both[i], PersonID: ana, Network: "192.0.2.1", Browser: "Lynx", VisitedAt: at,
		}, Way: visit.Password}
		if diff := cmp.Diff(got, list[0].Event); diff != "" {
			t.Error(diff)
		}
	}
}

// While the log is away, visits wait.
func TestVisits_WaitForTheLog(t *testing.T) {
	w := peopled(t)
	ana, at := w.add("Annals", anas, organization.Member), w.call.ReceivedAt
	q := &visitQueue{entries: []visits.Entry{signIn(ana, w.org("Annals"), at)}}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.visitors(q).Flush(ended); err == nil || len(q.entries) != 1 {
		t.Errorf("%v, %d left", err, len(q.entries))
	}
	if err := w.visitors(q).Flush(t.Context()); err != nil || len(w.visited(w.org("Annals"), ana, at)) != 1 {
		t.Errorf("%v, %v", err, w.visited(w.org("Annals"), ana, at))
	}
}

// What an operator read names the organization alone.
func TestVisits_OfOperators(t *testing.T) {
	w := peopled(t)
	at, of := w.call.ReceivedAt, w.org("Annals")
	q := &visitQueue{entries: []visits.Entry{{
		ID: uuid.New(), Organization: of, At: at, Principal: "operator", Event: &visit.OperatorRead{Command: "log"},
	}}}
	runtest.Must(t, w.visitors(q).Flush(t.Context()))
	list := w.visited(of, uuid.Nil, at)
	want := &visit.OperatorRead{OrganizationID: of, Command: "log", VisitedAt: at}
	if len(list) != 1 || cmp.Diff(want, list[0].Event) != "" || list[0].Details.Principal != "operator" {
		t.Errorf("visits %+v", list)
	}
}

// The visits of a removed person end in all organizations, with their records kept, and nothing is added any more.
func TestSettleVisits_OfARemovedPerson(t *testing.T) {
	w := peopled(t)
	ana, at := w.add("Annals", anas, organization.Member), w.call.ReceivedAt
	of := []uuid.UUID{w.org("Annals"), w.org("Acme")}
	q := &visitQueue{entries: []visits.Entry{signIn(ana, uuid.Nil, at), signIn(ana, uuid.Nil, at)}}
	v := w.visitors(q, of...)
	runtest.Must(t, v.Flush(t.Context()))
	ever := eventstoretest.All(t, w.store, 0)
	settle := func(organization uuid.UUID) bool {
		t.Helper()
		ended, err := people.SettleVisits(t.Context(), w.log, work.Visits{
			Stream: stream.VisitsName(organization, ana, at.UTC().Format("2006-01")), Organization: organization, Person: ana,
		}, at)
		runtest.Must(t, err)
		return ended
	}
	if settle(of[0]) {
		t.Error("the visits of a member ended")
	}
	runtest.Must(t, w.RemovePerson(t.Context(), w.call, ana))
	for _, organization := range of {
		for range 2 { // a second run changes nothing
			if !settle(organization) {
				t.Error("the visits of a removed person did not end")
			}
		}
		name := stream.VisitsName(organization, ana, at.UTC().Format("2006-01"))
		if _, err := w.log.ReadFrom(t.Context(), name, 0); !errors.Is(err, eventstore.ErrDeleted) {
			t.Errorf("visits are read: %v", err)
		}
		kept, err := w.log.ReadFrom(t.Context(), stream.RecordsName(name), 0)
		if err != nil || len(kept) != 1 || len(kept[0].Event.(*audit.RecordsKept).Records) != 2 {
			t.Errorf("records %v, %v", kept, err)
		}
	}
	eventstoretest.CheckRecords(t, w.store, ever)
	q.entries = []visits.Entry{signIn(ana, of[0], at), signIn(ana, of[0], at.AddDate(0, 1, 0))}
	if err := v.Flush(t.Context()); err != nil || len(q.entries) > 0 {
		t.Errorf("%v, %d left", err, len(q.entries))
	}
	if list := w.visited(of[0], ana, at.AddDate(0, 1, 0)); len(list) > 0 {
		t.Errorf("visits of a removed person: %v", list)
	}
}

// A month of visits ends once it is older than the organization keeps, and not before.
func TestSettleVisits_AfterTheTimeOfTheOrganization(t *testing.T) {
	w := peopled(t)
	ana, of := w.add("Annals", anas, organization.Member), w.org("Annals")
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	q := &visitQueue{entries: []visits.Entry{signIn(ana, of, at)}}
	runtest.Must(t, w.visitors(q).Flush(t.Context()))
	settle := func(now time.Time) bool {
		t.Helper()
		ended, err := people.SettleVisits(t.Context(), w.log, work.Visits{
			Stream: stream.VisitsName(of, ana, "2026-02"), Organization: of, Person: ana,
		}, now)
		runtest.Must(t, err)
		return ended
	}
	march := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	if settle(march.AddDate(0, 0, organization.DefaultVisitDays).Add(-time.Second)) {
		t.Error("it ended before the default")
	}
	for _, days := range []int{29, 3651} {
		wantFault(t, w.SetVisitsKept(t.Context(), w.call, of, days), "invalid-request")
	}
	before := len(w.eventsOf("Annals"))
	for range 2 {
		runtest.Must(t, w.SetVisitsKept(t.Context(), w.call, of, 30))
	}
	if after := len(w.eventsOf("Annals")); after != before+1 {
		t.Errorf("%d events for one change", after-before)
	}
	if settle(march.AddDate(0, 0, 30).Add(-time.Second)) || !settle(march.AddDate(0, 0, 30)) {
		t.Error("it does not end after 30 days")
	}
}
