package server

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

// What a form is answered: leads is a redirect, again the form with what it would do, and refused a fault.
const (
	leads   = http.StatusSeeOther
	again   = http.StatusOK
	refused = 0
)

// sentForms are forms of all routes of the console, in an order in which they can be sent.
var sentForms = []struct {
	pattern, fields string
	answer          int
}{
	{"POST /{$}", "name=Another", leads},
	{"POST /account/zone", "zone=Europe/Vienna", leads},
	{"POST /account/password", "password=correct+horse+battery", leads},
	{"POST /account/address", "email=ana@acme.example", refused},
	{"POST /account/sessions", "session=6a1b8b26-7a8e-4b8e-9f60-5b1f7a3f1c11", leads},
	{"POST /account/confirm", "password=wrong", refused},
	{"POST /account/leave", "organization=none", refused},
	{"POST /account/second-factor", "sealed=none&code=123456", refused},
	{"POST /account/second-factor/remove", "code=123456", refused},
	{"POST /account/recovery-codes", "code=123456", refused},
	{"POST /organization", "organization=none", refused},
	{"POST /offers/{offer}", "do=accept", refused},
	{"POST /link/{token}", "password=correct+horse+battery", refused},
	{"POST /agents/claim", "token=none&decision=approve", refused},
	{"POST /settings/agents/revoke", "agent=none", refused},
	{"POST /settings/agents/stop", "agent=none", refused},
	{"POST /settings/connections/revoke", "connection=none", refused},
	{"POST /oauth2/consent", "decision=approve", refused},
	{"POST /settings/organization/spend-cap", "spendCap=100000", leads},
	{"POST /settings/organization/second-factor", "", leads},
	{"POST /settings/organization/visits", "days=90", leads},
	{"POST /settings/organization/visits", "days=29", refused},
	{"POST /settings/organization/auditor-texts", "allowed=yes", leads},
	{"POST /settings/audit/verify", "", leads},
	{"POST /settings/organization/management-key", "sure=yes", leads},
	{"POST /settings/members", "email=new@acme.example&role=member", leads},
	{"POST /settings/offers/{offer}", "", refused},
	{"POST /settings/members/{member}", "do=password&sure=yes", leads},
	{"POST /p/{project}", "name=Default", leads},
	{"POST /p/{project}/reads/setting", "mode=kept&days=90", leads},
	{"POST /p/{project}/reads/setting", "mode=kept&days=none", refused},
	{"POST /p/{project}/caps", "ingestionCap=100000", leads},
	{"POST /p/{project}/keys", "name=made+once", leads},
	{"POST /p/{project}/keys/{key}/reveal", "", leads},
	{"POST /p/{project}/identity", "new=1&identity=fresh&key=team&value=x", leads},
	{"POST /p/{project}/import-identities", "text=identity,team%0Ax1,y&do=preview", again},
	{"POST /p/{project}/import-identities", "text=identity,team%0Ax1,y&do=import", leads},
	{"POST /p/{project}/new-audience", "kind=rule&new=1&slug=fresh&trait=team&operator=is&values=x&do=preview", again},
	{"POST /p/{project}/new-audience", "kind=rule&new=1&slug=fresh&match=all&trait=team&operator=is&values=x&do=save", leads},
	{"POST /p/{project}/audiences/{slug}/recompute", "", leads},
	{"POST /p/{project}/webhooks/{webhook}", "do=try&contentPath=$", again},
	{"POST /p/{project}/webhooks/{webhook}", "do=rotate", leads},
	{"POST /p/{project}/replay-dropped", "identity=nobody", leads},
	{"POST /p/{project}/webhooks/{webhook}/events/{request}/replay", "", leads},
	{"POST /p/{project}/ingest", "content=A+text", again},
	{"POST /p/{project}/recall", "query=Who+likes+tea%3F&identity=gil", leads},
	{"POST /p/{project}/data/{id}/correct", "revision=1&content=", refused},
	{"POST /p/{project}/failed/{send}", "", refused},
	{"POST /p/{project}/import", "", refused},
	{"POST /p/{project}/keys/{key}/revoke", "sure=yes", leads},
	{"POST /p/{project}/erasures", "identity=nobody&again=nobody", leads},
	{"POST /p/{project}/data/{id}/delete", "", leads},
	{"POST /p/{project}/audiences/{slug}/delete", "sure=yes", leads},
	{"POST /p/{project}/identity/delete", "identity=fresh&sure=yes", leads},
	{"POST /p/{project}/archived", "archived=true&sure=yes", leads},
	{"POST /sign-in", "email=none@acme.example&password=wrong", refused},
	{"POST /sign-in/second-factor", "code=123456", refused},
	{"POST /sign-out", "", leads},
}

// No form is answered with anything but a redirect, a fault, or the form again. What it makes is shown once, by the
// page after it. Sent again it does nothing. From the table of routes.
func TestConsole_FormsLeadToAPage(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newConsole(t)
	values, owner := h.parameters(), h.as("owner")
	known := map[string]bool{}
	for _, f := range sentForms {
		known[f.pattern] = true
		_, path := h.address(f.pattern, values)
		form, err := url.ParseQuery(f.fields)
		runtest.Must(t, err)
		form.Set("form", uuid.NewString())
		first := owner.Ask(http.MethodPost, path, form)
		if f.answer == refused && first.Status < 400 || f.answer != refused && first.Status != f.answer {
			t.Errorf("%s with %s: %d, want %d: %.900s", f.pattern, f.fields, first.Status, f.answer, problemOf(first.Body))
			continue
		}
		if secrets := (webtest.Document{Body: first.Body}).Secrets(); len(secrets) > 0 || strings.Contains(first.Location, "svc_") {
			t.Errorf("%s answers with a secret", f.pattern)
		}
		if f.answer == again && !strings.Contains(first.Body, `method="post"`) {
			t.Errorf("%s with %s is answered with a page without its form", f.pattern, f.fields)
		}
		if f.answer != leads || f.pattern == "POST /sign-out" {
			continue
		}
		if second := owner.Ask(http.MethodPost, path, form); second.Status != leads || second.Location != first.Location {
			t.Errorf("%s sent again: %d to %q, want %q", f.pattern, second.Status, second.Location, first.Location)
		}
		page := owner.Ask(http.MethodGet, first.Location, nil)
		if page.Status != http.StatusOK {
			t.Errorf("%s leads to %s: %d", f.pattern, first.Location, page.Status)
		}
		if !strings.Contains(first.Location, "?shown=") {
			continue
		}
		if later := owner.Ask(http.MethodGet, first.Location, nil); !strings.Contains(later.Body, "was shown once") ||
			strings.Contains(page.Body, "was shown once") {
			t.Errorf("%s is shown twice, or never", first.Location)
		}
	}
	for _, route := range h.site.Routes() {
		if method, _, _ := strings.Cut(route.Pattern, " "); method == http.MethodPost && !route.Public && !known[route.Pattern] {
			t.Errorf("the test sends no form of %s", route.Pattern)
		}
	}
	var n int
	runtest.Must(t, h.storage.db.QueryRow(t.Context(), `select count(*) from access.keys where name = 'made once' and project_id = $1`,
		h.projectID("default")).Scan(&n))
	if n != 1 {
		t.Errorf("one form made %d keys", n)
	}
}
