package web_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/internal/visits"
)

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
