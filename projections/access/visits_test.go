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
	"github.com/annals-project/annals/projections/access"
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

// Visits are listed by person, project, kind and time, and never those of another organization.
func TestVisits(t *testing.T) {
	w := &writer{}
	w.organization("org")
	w.organization("other")
	for i := range 3 {
		w.signIn("org", "ana@example.com", noon.Add(time.Duration(i)*time.Hour))
	}
	w.export("org", "ben@example.com", "slug", noon.Add(3*time.Hour))
	w.operatorRead("org", noon.Add(4*time.Hour))
	w.signIn("other", "ana@example.com", noon.Add(5*time.Hour))
	q := applied(t, w)
	list := func(f access.VisitFilter, before eventstore.Position, most int) (found []string) {
		t.Helper()
		all, err := q.Visits(t.Context(), id("org"), f, before, most)
		runtest.Must(t, err)
		for _, v := range all {
			found = append(found, v.Event+" "+v.At.Format("15"))
		}
		return found
	}
	all := []string{
		"visit.operator-read.v1 16", "visit.exported.v1 15", "visit.signed-in.v1 14", "visit.signed-in.v1 13", "visit.signed-in.v1 12",
	}
	first, err := q.Visits(t.Context(), id("org"), access.VisitFilter{}, 0, 2)
	runtest.Must(t, err)
	if first[0].Person != uuid.Nil || first[1].Person != id("ben@example.com") || first[1].Project != id("slug") {
		t.Errorf("visits %+v", first)
	}
	for name, c := range map[string]struct {
		got, want []string
	}{
		"all":        {list(access.VisitFilter{}, 0, 10), all},
		"next":       {list(access.VisitFilter{}, first[1].Position, 2), all[2:4]},
		"of one":     {list(access.VisitFilter{Person: id("ana@example.com")}, 0, 10), all[2:]},
		"of project": {list(access.VisitFilter{Project: id("slug")}, 0, 10), all[1:2]},
		"of a kind":  {list(access.VisitFilter{Event: "visit.exported"}, 0, 10), all[1:2]},
		"of a part":  {list(access.VisitFilter{Event: "visit"}, 0, 10), nil},
		"within":     {list(access.VisitFilter{From: noon.Add(time.Hour), To: noon.Add(3 * time.Hour)}, 0, 10), all[2:4]},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	last, err := q.LastSignIns(t.Context(), id("org"))
	want := map[uuid.UUID]time.Time{id("ana@example.com"): noon.Add(2 * time.Hour)}
	if diff := cmp.Diff(want, last); diff != "" || err != nil {
		t.Errorf("last sign-ins: %v %s", err, diff)
	}
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
	all, err := q.Visits(t.Context(), id("org"), access.VisitFilter{Person: id("cy@example.com")}, 0, 10)
	if err != nil || len(all) != 1 || !all[0].At.Equal(noon.AddDate(0, 1, 0)) {
		t.Errorf("%v, visits of an ended stream: %+v", err, all)
	}
}
