package server

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

// postForm sends a form of the pages of members as somebody with a role.
func (h *consoleHarness) postForm(role, path string, form url.Values, want int) webtest.Answer {
	h.t.Helper()
	got := h.as(role).Ask(http.MethodPost, path, form)
	if got.Status != want {
		h.t.Errorf("%s sends %s %v: %d, want %d: %.600s", role, path, form, got.Status, want, got.Body)
	}
	return got
}

// linkOf is the token of the link that a page shows, "" for none.
func (h *consoleHarness) linkOf(body string) string {
	_, token, _ := strings.Cut(body, h.urls.Console+"/link/")
	token, _, _ = strings.Cut(token, "<")
	return token
}

// projectID is the id of a project.
func (h *consoleHarness) projectID(slug string) (id uuid.UUID) {
	h.t.Helper()
	runtest.Must(h.t, h.storage.db.QueryRow(h.t.Context(), "select id from access.projects where slug = $1", slug).Scan(&id))
	return id
}

// lives reports whether a link can be used.
func (h *consoleHarness) lives(token string) (signin.Link, bool) {
	h.t.Helper()
	link, ok, err := h.signin.Link(h.t.Context(), token)
	runtest.Must(h.t, err)
	return link, ok
}

func TestConsole_Members(t *testing.T) {
	t.Parallel()
	h := newConsole(t)
	const members = "/settings/members"
	project := h.projectID("default")
	ids := func(role string) string { return h.ids[role].String() }

	t.Log("an admin invites somebody new")
	invited := url.Values{
		"email": {"new@acme.example"}, "role": {"member"}, "project": {project.String()}, "access": {"read"},
	}
	first := h.linkOf(h.postForm("admin", members, invited, 200).Body)
	link, ok := h.lives(first)
	if !ok || link.Purpose != signin.Invite || link.Email != "new@acme.example" {
		t.Fatalf("the link is %+v, %t", link, ok)
	}
	h.ids["new"] = link.Person
	if got := h.as("new").Ask(http.MethodGet, "/p/default", nil); got.Status != 200 {
		t.Errorf("the new member opens the project: %d", got.Status)
	}
	page := h.as("admin").Open(members + "/" + ids("new"))
	for _, text := range []string{"organization.project-access-set", "access: read", "admin@acme.example"} {
		if !strings.Contains(page.Text(), text) {
			t.Errorf("the page of the new member lacks %q: %.900s", text, page.Text())
		}
	}
	second := h.linkOf(h.postForm("admin", members, invited, 200).Body)
	if _, ok := h.lives(first); ok || second == "" {
		t.Errorf("the first link still works: %t; the second is %q", ok, second)
	}

	t.Log("somebody who can sign in gets no link, and keeps those of another organization")
	foreign := h.ids["foreign"]
	elsewhere, _, err := h.read.access.Memberships(t.Context(), foreign)
	runtest.Must(t, err)
	theirs, _, err := memberLinks{h.signin, ""}.Invite(t.Context(), elsewhere.Memberships[0].Organization, foreign, "foreign@other.example")
	runtest.Must(t, err)
	known := url.Values{"email": {"foreign@other.example"}, "role": {"member"}}
	mine := h.linkOf(h.postForm("admin", members, known, 200).Body)
	again := h.linkOf(h.postForm("owner", members+"/"+ids("foreign"), url.Values{"do": {"password"}}, 200).Body)
	for token, want := range map[string]bool{strings.TrimPrefix(theirs, "/link/"): true, mine: false, again: true} {
		if link, ok := h.lives(token); ok != want || ok && link.Purpose != signin.Invite {
			t.Errorf("a link is %+v, %t", link, ok)
		}
	}
	_, err = h.signin.GeneratePassword(t.Context(), foreign, "foreign@other.example", "correct horse battery")
	runtest.Must(t, err)
	if made := h.linkOf(h.postForm("admin", members, known, 200).Body); made != "" {
		t.Errorf("the page has the link %q", made)
	}
	h.postForm("owner", members+"/"+ids("foreign"), url.Values{"do": {"password"}}, 409)
	h.postForm("owner", members+"/"+ids("foreign"), url.Values{"do": {"second-factor"}}, 409)
	h.postForm("owner", members+"/"+ids("foreign"), url.Values{"do": {"remove"}}, 303)
	if _, ok := h.lives(strings.TrimPrefix(theirs, "/link/")); !ok {
		t.Error("the removal from one organization ends the link of another")
	}
	if _, ok := h.lives(again); ok {
		t.Error("a link outlives the membership")
	}

	t.Log("only an owner makes owners and changes one")
	h.postForm("admin", members, url.Values{"email": {"boss@acme.example"}, "role": {"owner"}}, 403)
	h.postForm("admin", members+"/"+ids("admin"), url.Values{"do": {"role"}, "role": {"owner"}}, 403)
	for _, do := range []string{"role", "access", "remove", "password", "second-factor"} {
		h.postForm("admin", members+"/"+ids("owner"), url.Values{"do": {do}, "role": {"admin"}}, 403)
	}

	t.Log("the owner of another organization reaches nobody")
	for _, do := range []string{"role", "access", "remove", "password", "second-factor"} {
		h.postForm("foreign", members+"/"+ids("read"), url.Values{"do": {do}, "role": {"admin"}}, 404)
	}
	h.postForm("admin", members+"/"+ids("member"), url.Values{"do": {"promote"}}, 400)
	h.postForm("admin", members+"/"+uuid.NewString(), url.Values{"do": {"remove"}}, 404)

	t.Log("access")
	access := func(to string) url.Values {
		return url.Values{"do": {"access"}, "project": {project.String()}, "access": {to}}
	}
	h.postForm("owner", members+"/"+ids("read"), access("write"), 303)
	h.postForm("owner", members+"/"+ids("read"), access("all"), 400)
	p, _, err := h.read.access.Memberships(t.Context(), h.ids["read"])
	if err != nil || p.Memberships[0].Access[project] != organization.WriteAccess {
		t.Errorf("the member is %+v, %v", p, err)
	}
	h.postForm("owner", members+"/"+ids("read"), access(""), 303)
	if got := h.as("read").Ask(http.MethodGet, "/p/default", nil); got.Status != 404 {
		t.Errorf("without access, the project is %d", got.Status)
	}
	h.postForm("owner", members+"/"+ids("read"), url.Values{"do": {"role"}, "role": {"admin"}}, 303)
	h.postForm("owner", members+"/"+ids("read"), access("read"), 409)

	t.Log("sign-in")
	reset := h.linkOf(h.postForm("admin", members+"/"+ids("write"), url.Values{"do": {"password"}}, 200).Body)
	if link, ok := h.lives(reset); !ok || link.Purpose != signin.Reset || link.Person != h.ids["write"] {
		t.Errorf("the link is %+v, %t", link, ok)
	}
	h.postForm("admin", members+"/"+ids("write"), url.Values{"do": {"second-factor"}}, 303)
	events := h.as("owner").Open("/settings/events").Text()
	for _, text := range []string{"organization.sign-in-reset", "reset: password", "reset: second-factor", "write@acme.example"} {
		if !strings.Contains(events, text) {
			t.Errorf("the events lack %q: %.900s", text, events)
		}
	}

	t.Log("a member is removed")
	writer := h.as("write")
	_, err = h.signin.GeneratePassword(t.Context(), h.ids["write"], "write@acme.example", "correct horse battery")
	runtest.Must(t, err)
	in, err := h.signIn("write@acme.example", "correct horse battery")
	runtest.Must(t, err)
	h.postForm("admin", members+"/"+ids("write"), url.Values{"do": {"remove"}}, 303)
	if got := writer.Ask(http.MethodGet, "/", nil); got.Status != 303 || !strings.HasPrefix(got.Location, "/sign-in") {
		t.Errorf("after the removal, the projects are %d at %q", got.Status, got.Location)
	}
	if _, live, err := h.signin.Session(t.Context(), in.Token); live || err != nil {
		t.Errorf("the session lives: %t, %v", live, err)
	}
	if states, err := h.signin.States(t.Context(), h.ids["write"]); len(states) > 0 || err != nil {
		t.Errorf("after the removal, the person signs in by %+v, %v", states, err)
	}
	h.postForm("owner", members, url.Values{"email": {"a@acme.example"}, "role": {"boss"}}, 400)
	h.postForm("owner", members, url.Values{"email": {`"><zebra-x>`}, "role": {"member"}}, 400)
}
