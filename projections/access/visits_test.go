package access_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
)

func of(org, email string, at time.Time) visit.Visit {
	return visit.Visit{OrganizationID: id(org), PersonID: id(email), Network: "192.0.2.1", Browser: "Lynx", VisitedAt: at}
}

func visitsOf(org, email string, at time.Time) string {
	person := uuid.Nil
	if email != "" {
		person = id(email)
	}
	return stream.VisitsName(id(org), person, at.Format("2006-01"))
}

func (w *writer) signIn(org, email string, at time.Time) {
	w.Append(visitsOf(org, email, at), &visit.SignedIn{Visit: of(org, email, at), Way: visit.Password})
}

func (w *writer) export(org, email, slug string, at time.Time) {
	w.Append(visitsOf(org, email, at),
		&visit.Exported{Visit: of(org, email, at), ProjectID: id(slug), What: "data-points", Format: "csv"})
}

func (w *writer) operatorRead(org string, at time.Time) {
	w.Append(visitsOf(org, "", at), &visit.OperatorRead{OrganizationID: id(org), Command: "log", VisitedAt: at})
}

// The streams of removed people are listed to end, and those of months that are too old; rows go with their stream.
func TestVisits_End(t *testing.T) {
	w := &writer{}
	w.organization("org")
	w.of("org", &organization.VisitsKeptSet{OrganizationID: id("org"), Days: 30, SetAt: noon})
	for _, email := range []string{"ana@example.com", "ben@example.com", "cy@example.com"} {
		w.person(email)
		w.signIn("org", email, noon)
		w.signIn("org", email, noon.AddDate(0, 1, 0))
	}
	w.operatorRead("org", noon)
	w.removePerson("ben@example.com")
	w.Append(eventstore.SystemStream, &eventstore.Tombstoned{Stream: visitsOf("org", "cy@example.com", noon)})
	q := applied(t, w)
	ended := func(now time.Time) (list []string) {
		t.Helper()
		for after := ""; ; {
			page, err := q.EndedVisits(t.Context(), now, after, 2)
			runtest.Must(t, err)
			if len(page) == 0 {
				return list
			}
			for _, v := range page {
				person, _ := stream.Visitor(v.Stream)
				if diff := cmp.Diff(work.Visits{Stream: v.Stream, Organization: id("org"), Person: person}, v); diff != "" {
					t.Error(diff)
				}
				list = append(list, v.Stream)
			}
			after = page[len(page)-1].Stream
		}
	}
	december := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	removed := []string{
		visitsOf("org", "ben@example.com", noon), visitsOf("org", "ben@example.com", noon.AddDate(0, 1, 0)),
	}
	old := append(slices.Clone(removed), visitsOf("org", "ana@example.com", noon), visitsOf("org", "", noon))
	slices.Sort(removed)
	slices.Sort(old)
	if diff := cmp.Diff(removed, ended(december.AddDate(0, 0, 30).Add(-time.Second))); diff != "" {
		t.Errorf("before the end: %s", diff)
	}
	if diff := cmp.Diff(old, ended(december.AddDate(0, 0, 30))); diff != "" {
		t.Errorf("after the end: %s", diff)
	}
	if diff := cmp.Diff(old, ended(december.AddDate(0, 0, 40))); diff != "" {
		t.Errorf("with a stream that has ended: %s", diff)
	}
}
