package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

// postForm sends a form of the pages of members as somebody with a role. If 200 is wanted, it follows where the form
// leads.
func (h *consoleHarness) postForm(role, path string, form url.Values, want int) webtest.Answer {
	h.t.Helper()
	by := h.as(role)
	send := func() webtest.Answer { return by.Ask(http.MethodPost, path, form) }
	if want == http.StatusOK {
		send = func() webtest.Answer { return by.Post(path, form) }
	}
	got := send()
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

// lives reports whether a link can be used.
func (h *consoleHarness) lives(token string) (signin.Link, bool) {
	h.t.Helper()
	link, ok, err := h.signin.Link(h.t.Context(), token)
	runtest.Must(h.t, err)
	return link, ok
}

func TestConsole_Members(t *testing.T) {
	h := newStaff(t)
	const members = "/settings/members"
	project := h.projectID("default")
	ids := func(role string) string { return h.ids[role].String() }

	t.Log("an admin offers a membership to somebody new")
	invited := url.Values{
		"email": {h.mail("new")}, "role": {"member"}, "project": {project.String()}, "access": {"read"},
	}
	first := h.linkOf(h.postForm("admin", members, invited, 200).Body)
	link, ok := h.lives(first)
	if !ok || link.Purpose != signin.Invite || link.Email != h.mail("new") || link.Person != uuid.Nil {
		t.Fatalf("the link is %+v, %t", link, ok)
	}
	second := h.linkOf(h.postForm("admin", members, invited, 200).Body)
	h.get("nobody", "/link/"+first).want(t, 404)
	h.get("nobody", "/link/"+second).want(t, 200)
	h.submit("nobody", "/link/"+second, "password", "correct horse battery").want(t, 303)
	var err error
	h.ids["new"], _, err = h.write.service.FindPerson(t.Context(), h.mail("new"))
	runtest.Must(t, err)
	h.get("new", "/p/default").want(t, 200)
	admin := h.as("admin")
	admin.Open(members + "/" + ids("new"))
	admin.See(" gave "+h.mail("new")+" read in ", "access: read", h.mail("new")+" accepted an offer")
	h.postForm("admin", members, invited, 409)

	t.Log("an offer that is withdrawn has no link any more, and a member of another organization is not reset")
	theirs := url.Values{"email": {"foreign@" + h.domain("other")}, "role": {"member"}}
	withdrawn := h.linkOf(h.postForm("admin", members, theirs, 200).Body)
	action := admin.Open(members).Find(`form[action^="/settings/offers/"]`).AttrOr("action", "none")
	h.postForm("foreign", action, nil, 404)
	h.postForm("admin", action, nil, 303)
	h.postForm("admin", action, nil, 404)
	h.get("nobody", "/link/"+withdrawn).want(t, 404)
	accept := func(offer url.Values) (token string) {
		token = h.linkOf(h.postForm("admin", members, offer, 200).Body)
		link, _ = h.lives(token)
		_, call := h.people()
		_, err = h.write.service.AcceptOffer(t.Context(), call, link.Organization, link.Offer, link.Email)
		runtest.Must(t, err)
		return token
	}
	accept(theirs)
	for _, do := range []string{"password", "second-factor"} {
		h.postForm("owner", members+"/"+ids("foreign"), url.Values{"do": {do}, "sure": {"yes"}}, 409)
	}
	h.postForm("owner", members+"/"+ids("foreign"), url.Values{"do": {"remove"}, "sure": {"yes"}}, 303)

	t.Log("a use of a link that failed after the acceptance is repeated")
	late := accept(url.Values{"email": {h.mail("late")}, "role": {"member"}})
	h.submit("nobody", "/link/"+late, "password", "correct horse battery").want(t, 303)

	t.Log("only an owner makes owners and changes one")
	h.postForm("admin", members, url.Values{"email": {h.mail("boss")}, "role": {"owner"}}, 403)
	h.postForm("admin", members+"/"+ids("admin"), url.Values{"do": {"role"}, "role": {"owner"}}, 403)
	for _, do := range []string{"role", "access", "remove", "password", "second-factor"} {
		h.postForm("admin", members+"/"+ids("owner"), url.Values{"do": {do}, "role": {"admin"}}, 403)
	}

	t.Log("the owner of another organization reaches nobody")
	for _, do := range []string{"role", "access", "remove", "password", "second-factor"} {
		h.postForm("foreign", members+"/"+ids("read"), url.Values{"do": {do}, "role": {"admin"}}, 404)
	}
	h.postForm("admin", members+"/"+ids("member"), url.Values{"do": {"promote"}}, 400)
	h.postForm("admin", members+"/"+uuid.NewString(), url.Values{"do": {"remove"}, "sure": {"yes"}}, 404)

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
	h.get("read", "/p/default").want(t, 404)
	h.postForm("owner", members+"/"+ids("read"), url.Values{"do": {"role"}, "role": {"admin"}}, 303)
	h.postForm("owner", members+"/"+ids("read"), access("read"), 409)

	t.Log("sign-in")
	reset := h.linkOf(h.postForm("admin", members+"/"+ids("write"), url.Values{"do": {"password"}, "sure": {"yes"}}, 200).Body)
	if link, ok := h.lives(reset); !ok || link.Purpose != signin.Reset || link.Person != h.ids["write"] {
		t.Errorf("the link is %+v, %t", link, ok)
	}
	h.postForm("admin", members+"/"+ids("write"), url.Values{"do": {"second-factor"}, "sure": {"yes"}}, 303)
	owner := h.as("owner")
	owner.Open("/settings/history")
	owner.See("reset the password of "+h.mail("write"), "reset the second factor of "+h.mail("write"))

	t.Log("a member is removed")
	writer := h.as("write")
	_, err = h.signin.GeneratePassword(t.Context(), h.ids["write"], h.mail("write"), "correct horse battery")
	runtest.Must(t, err)
	in, err := h.signIn(h.mail("write"), "correct horse battery")
	runtest.Must(t, err)
	h.postForm("admin", members+"/"+ids("write"), url.Values{"do": {"remove"}, "sure": {"yes"}}, 303)
	if got := writer.Ask(http.MethodGet, "/", nil); got.Status != 303 || got.Location != "/offers" {
		t.Errorf("after the removal, the projects are %d at %q", got.Status, got.Location)
	}
	if _, live, err := h.signin.Session(t.Context(), in.Token); live || err != nil {
		t.Errorf("the session lives: %t, %v", live, err)
	}
	if states, err := h.signin.States(t.Context(), h.ids["write"]); len(states) > 0 || err != nil {
		t.Errorf("after the removal, the person signs in by %+v, %v", states, err)
	}
	h.checkMemberList(members)
	h.checkVisits(h.ids["new"], "visit.link-used.v1", "visit.signed-in.v1")
	h.postForm("owner", members, url.Values{"email": {h.mail("a")}, "role": {"boss"}}, 400)
	h.postForm("owner", members, url.Values{"email": {`"><zebra-x>`}, "role": {"member"}}, 400)
}

// checkMemberList checks what the list of members shows of people and of offers, and that it can be had as CSV.
func (h *consoleHarness) checkMemberList(path string) {
	h.t.Helper()
	h.postForm("admin", path, url.Values{"email": {h.mail("open")}, "role": {"auditor"}}, 200)
	row := func(query, email string) string {
		list := h.as("auditor").Ask(http.MethodGet, path+"?format=csv"+query, nil)
		for line := range strings.Lines(list.Body) {
			if strings.HasPrefix(line, email+",") {
				return strings.TrimSpace(line)
			}
		}
		return ""
	}
	_, err := h.storage.db.Exec(h.t.Context(), `update ops.signin_people set totp = 'x' where person_id = $1`, h.ids["new"])
	runtest.Must(h.t, err)
	for email, want := range map[string]string{
		h.mail("new"): h.mail("new") + ",member,active,true,password,", h.mail("open"): h.mail("open") + ",auditor,offered,false,,",
		h.mail("admin"): h.mail("admin") + ",admin,active,false,,,writes in all,", h.mail("auditor"): h.mail("auditor") + ",auditor,active,false,,,sees all,",
	} {
		if got := row("", email); !strings.HasPrefix(got, want) {
			h.t.Errorf("the list has %q, want %q", got, want)
		}
	}
	if got := row("", h.mail("new")); !strings.Contains(got, "default: read,") {
		h.t.Errorf("the list has no access of a member: %q", got)
	}
	const without = "&filter=no-second-factor"
	if row(without, h.mail("admin")) == "" || row(without, h.mail("new")) != "" || row(without, h.mail("open")) != "" {
		h.t.Error("the list of who has no second factor is wrong")
	}
	page := h.as("auditor").Open(path)
	if !strings.Contains(page.Text(), h.mail("open")) || page.Find("form[method=post]").Length() > 1 {
		h.t.Errorf("the page of an auditor has forms, or lacks an offer: %.900s", page.Text())
	}
}

// checkVisits waits until the log has events of what a person did with the first organization, in order.
func (h *consoleHarness) checkVisits(person uuid.UUID, want ...string) {
	h.t.Helper()
	name := stream.VisitsName(h.home(), person, h.cfg.now().UTC().Format("2006-01"))
	runtest.Await(h.t, "the visits of a person are in the log", func() bool {
		list, err := h.journal.ReadFrom(h.t.Context(), name, 0)
		runtest.Must(h.t, err)
		var names []string
		for _, e := range list {
			names = append(names, e.Type)
		}
		return slices.Equal(names, want)
	})
}
