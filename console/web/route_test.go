package web_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/visits"
	"github.com/annals-project/annals/projections/access"
)

// A program is offered what the person may open now, and only what is offered can be chosen.
func TestOffers(t *testing.T) {
	acme, guarded, readable, hidden, archived := uuid.UUID{1}, uuid.UUID{2}, uuid.UUID{3}, uuid.UUID{4}, uuid.UUID{5}
	projects := func(_ context.Context, of uuid.UUID) ([]access.Project, error) {
		if of != acme {
			return nil, nil
		}
		return []access.Project{
			{Project: auth.Project{ID: readable, Slug: "readable"}},
			{Project: auth.Project{ID: hidden, Slug: "hidden"}},
			{Project: auth.Project{ID: archived, Slug: "archived"}, Archived: true},
		}, nil
	}
	person := access.Person{Memberships: []access.Membership{
		{Organization: acme, Name: "Acme", Role: organization.Member, Access: map[uuid.UUID]organization.Access{
			readable: organization.ReadAccess, archived: organization.WriteAccess,
		}},
		{Organization: guarded, Name: "Guarded", Role: organization.Owner, SecondFactor: true},
	}}
	for name, c := range map[string]struct {
		second bool
		want   []string
		chosen map[string]uuid.UUID
	}{
		"without a second factor": {false, []string{
			"Acme: all my projects [memory:read memory:write]", "Acme: readable [memory:read]",
		}, map[string]uuid.UUID{acme.String() + "/" + readable.String(): readable, acme.String(): {}}},
		"with one": {true, []string{
			"Acme: all my projects [memory:read memory:write]", "Acme: readable [memory:read]",
			"Guarded: all my projects [memory:read memory:write memory:operate]",
		}, map[string]uuid.UUID{guarded.String(): {}}},
	} {
		form := func(place string) *web.Request {
			sent := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/",
				strings.NewReader(url.Values{"place": {place}}.Encode()))
			sent.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			return &web.Request{Request: sent, Person: person, Session: signin.Session{SecondFactor: c.second}}
		}
		offers, err := form("").Offers(projects)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range offers {
			for _, p := range o.Places {
				got = append(got, fmt.Sprintf("%s: %s %v", o.Name, p.Label, p.Scopes))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: offered %q", name, got)
		}
		for value, project := range c.chosen {
			p, ok := form(value).Chosen(offers)
			if !ok || p.Project != project || !strings.HasPrefix(value, p.Organization.String()) {
				t.Errorf("%s: %q is %+v, %t", name, value, p, ok)
			}
		}
		for _, value := range []string{"", acme.String() + "/" + hidden.String(), readable.String(), uuid.NewString()} {
			if p, ok := form(value).Chosen(offers); ok {
				t.Errorf("%s: %q is %+v", name, value, p)
			}
		}
		if _, ok := form(guarded.String()).Chosen(offers); ok != c.second {
			t.Errorf("%s: what requires a second factor can be chosen: %t", name, ok)
		}
	}
	failed := errors.New("failed")
	r := &web.Request{Request: httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), Person: person}
	_, err := r.Offers(func(context.Context, uuid.UUID) ([]access.Project, error) { return nil, failed })
	if !errors.Is(err, failed) {
		t.Errorf("projects that cannot be read: %v", err)
	}
}

// An auditor opens what is for auditors, of each project, what has texts only if the organization allows it, and
// changes nothing.
func TestSite_WhatAnAuditorOpens(t *testing.T) {
	const ok, no, missing = http.StatusOK, http.StatusForbidden, http.StatusNotFound
	for path, want := range map[string][2]int{ // without and with texts
		"/nothing": {ok, ok}, "/signed-in": {ok, ok}, "/member": {no, no}, "/p/mine/read": {no, no},
		"/p/mine/write": {no, no}, "/p/mine/manage": {no, no}, "/admin": {no, no}, "/owner": {no, no}, "/operator": {no, no},
		"/audited": {ok, ok}, "/p/mine/audited": {ok, ok}, "/p/hidden/audited": {ok, ok}, "/p/mine/texts": {no, ok},
		"/p/theirs/audited": {missing, missing}, "/operator/audited": {no, no},
	} {
		for i, texts := range []bool{false, true} {
			s := newScene(t, organization.Auditor, "")
			s.person.Memberships[0].AuditorTexts, s.person.Memberships[0].First = texts, true
			if res, body := s.do(t, http.MethodGet, path, nil); res.StatusCode != want[i] {
				t.Errorf("an auditor opens %s, with texts %t: %d %s, want %d", path, texts, res.StatusCode, body, want[i])
			}
			form := func(r *http.Request) { r.Header.Set("Origin", console) }
			if res, _ := s.do(t, http.MethodPost, "/change", form); res.StatusCode != no {
				t.Errorf("an auditor changes something: %d", res.StatusCode)
			}
		}
	}
	m := newScene(t, organization.Auditor, organization.WriteAccess).person.Memberships[0]
	for _, needs := range []web.Needs{web.Read, web.Write, web.Admin} {
		if web.Allows(m, mine, needs) {
			t.Errorf("a program may %s for an auditor", needs)
		}
	}
}

// A file of more than a page needs the right of an export and is recorded before it is sent. Others get the page.
func TestList_WhoExports(t *testing.T) {
	for _, c := range []struct {
		role  organization.Role
		items int
		path  string
		// lines are those of the CSV, without its header.
		lines     int
		exports   bool
		firstLine string
	}{
		{organization.Member, 120, "/list", 50, false, "1,"},
		{organization.Member, 120, "/list?after=50", 50, false, "51,"},
		{organization.Auditor, 120, "/list", 120, true, "1,"},
		{organization.Admin, 120, "/list?after=50", 120, true, "1,"},
		{organization.Owner, 50, "/list", 50, false, "1,"},
		{organization.Owner, 51, "/list", 51, true, "1,"},
	} {
		s := newScene(t, c.role, organization.WriteAccess)
		s.items = c.items
		var recorded []visits.Entry
		s.site.Visited = func(_ context.Context, e visits.Entry) error {
			recorded = append(recorded, e)
			return nil
		}
		for _, format := range []string{"csv", "json"} {
			recorded = nil
			sign := map[bool]string{true: "&", false: "?"}[strings.Contains(c.path, "?")]
			res, body := s.do(t, http.MethodGet, c.path+sign+"format="+format, func(r *http.Request) {
				r.Header.Set("User-Agent", "Firefox")
			})
			if res.StatusCode != http.StatusOK {
				t.Fatalf("%s %s: %d %s", c.role, c.path, res.StatusCode, body)
			}
			if format == "csv" {
				rows := strings.Split(strings.TrimSpace(body), "\n")[1:]
				if len(rows) != c.lines || !strings.HasPrefix(rows[0], c.firstLine) {
					t.Errorf("%s %s: %d rows from %s, want %d from %s", c.role, c.path, len(rows), rows[0], c.lines, c.firstLine)
				}
			} else if more := strings.Contains(body, `"more":true`); more != (c.lines < c.items) {
				t.Errorf("%s %s: more is %t", c.role, c.path, more)
			}
			var want []visits.Entry
			if c.exports {
				want = []visits.Entry{{Person: ana, Organization: acme, At: noon, Event: &visit.Exported{
					Visit: visit.Visit{Network: "192.0.2.1", Browser: "Firefox"}, What: "numbers", Format: format,
				}}}
			}
			if diff := cmp.Diff(want, recorded); diff != "" {
				t.Errorf("%s %s %s: %s", c.role, c.path, format, diff)
			}
		}
		s.site.Visited = func(context.Context, visits.Entry) error { return errors.New("away") }
		res, _ := s.do(t, http.MethodGet, "/list?format=csv", nil)
		if res.StatusCode != map[bool]int{true: http.StatusInternalServerError, false: http.StatusOK}[c.exports] {
			t.Errorf("%s: an export that is not recorded is answered %d", c.role, res.StatusCode)
		}
	}
}
