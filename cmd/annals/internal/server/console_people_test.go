package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/internal/webtest"
)

// markup ends what customers named in the first organization: nobody of another one may see it, and as markup it would
// become an element.
const markup = `"'><zebra-x zebra=1></textarea></title></script><script>zebra()</script>`

// consoleHarness is a service whose console has people of every role.
type consoleHarness struct {
	*harness
	// ids are the people by their role, see roles. theirs is the organization of foreign.
	ids    map[string]uuid.UUID
	theirs uuid.UUID
	// hook is a webhook of the first project, and hookEvent an event that it received.
	hook      tenants.Webhook
	hookEvent received
}

// roles are who opens pages: the first owner is the operator of the deployment, foreign owns another organization.
var roles = []string{"nobody", "foreign", "member", "read", "write", "admin", "owner"}

// newConsole is a furnished organization on the shared service. The race detector looks at the tests that open all pages.
func newConsole(t *testing.T) *consoleHarness {
	t.Helper()
	h := newStaff(t)
	h.furnish()
	return h
}

// newStaff is newConsole without texts.
func newStaff(t *testing.T) *consoleHarness {
	t.Helper()
	if testing.Short() {
		t.Skip("the race detector looks at the tests that open all pages")
	}
	return staffed(newTenant(t))
}

// startConsole is newConsole on a service of its own, whose owner operates it.
func startConsole(t *testing.T) *consoleHarness {
	t.Helper()
	h := startStaff(t)
	h.furnish()
	return h
}

// startStaff is startConsole without texts.
func startStaff(t *testing.T) *consoleHarness {
	t.Helper()
	h := newHarness(t)
	h.arrange = letPeopleIn
	h.start()
	return staffed(h)
}

// theConsole is startConsole for the tests that change nothing.
var theConsole = sync.OnceValue(func() *consoleHarness {
	h := staffed(newLasting(func(*Config) {}))
	h.furnish()
	return h
})

// seeConsole is theConsole for a test.
func seeConsole(t *testing.T) *consoleHarness {
	t.Helper()
	c := theConsole()
	return &consoleHarness{
		harness: &harness{Server: c.Server, t: t, dir: c.dir, postgres: c.postgres, sends: map[string][]string{}},
		ids:     c.ids, theirs: c.theirs, hook: c.hook, hookEvent: c.hookEvent,
	}
}

// staffed makes a person of each role.
func staffed(of *harness) *consoleHarness {
	t := of.t
	t.Helper()
	h := &consoleHarness{harness: of, ids: map[string]uuid.UUID{}}
	service, call := h.people()
	first, project := h.home(), h.projectID("default")
	call.Principal.OrganizationID = first
	for role, as := range map[string]organization.Role{
		"member": organization.Member, "read": organization.Member, "write": organization.Member,
		"admin": organization.Admin, "owner": organization.Owner, "auditor": organization.Auditor,
	} {
		id, err := service.AddMember(t.Context(), call, first, commands.NewMember{Email: h.mail(role), Role: as})
		runtest.Must(t, err)
		h.ids[role] = id
	}
	for role, access := range map[string]organization.Access{"read": organization.ReadAccess, "write": organization.WriteAccess} {
		runtest.Must(t, service.SetProjectAccess(t.Context(), call, first, h.ids[role], project, access))
	}
	other, err := service.CreateOrganization(t.Context(), call,
		commands.NewOrganization{Name: h.name("Other"), Plan: metering.Flex, OwnerEmail: "foreign@" + h.domain("other")})
	runtest.Must(t, err)
	found, _, err := service.FindPerson(t.Context(), "foreign@"+h.domain("other"))
	runtest.Must(t, err)
	h.ids["foreign"], h.theirs = found, other.ID
	call.Principal.OrganizationID = other.ID
	_, err = service.CreateProject(t.Context(), call, "Theirs")
	runtest.Must(t, err)
	return h
}

// furnish fills the first project with texts that hold markup.
func (h *consoleHarness) furnish() {
	h.t.Helper()
	project, management := h.keys()
	clients := map[string]*client.Client{}
	for _, key := range []string{project, management} {
		c, err := client.New(h.urls.API, key)
		runtest.Must(h.t, err)
		clients[key] = c
	}
	webtest.Furnish(h.t, clients[project], clients[management], markup)
	h.furnishWebhook(project)
	_, err := clients[project].PutIdentity(h.t.Context(), client.IdentityRow{
		Identity: "plain", Traits: map[string]string{"note": markup},
	})
	runtest.Must(h.t, err)
}

// letPeopleIn lets a person act by the own id: in the console without a password, as an agent without a consent.
func letPeopleIn(s *Server) {
	s.site.Sessions = sessionsByID{s.signin}
	s.authServer.Hold, s.agents.Hold = nil, nil // there are no rows of these sessions
	s.tools.Tokens = tokensByID(s, s.tools.Tokens)
	s.agents.Verified = func(_ context.Context, _ uuid.UUID, email string) (bool, error) {
		return !strings.HasPrefix(email, "write@"), nil // nobody proved an address
	}
}

// sessionsByID finds the session whose token is the id of a person, and those that are there.
type sessionsByID struct{ *signin.Service }

// Opens implements web.Config.Sessions.
func (s sessionsByID) Opens(session signin.Session, given string, organization uuid.UUID) bool {
	return session.ID == session.Person || s.Service.Opens(session, given, organization)
}

// Session implements web.Config.Sessions.
func (s sessionsByID) Session(ctx context.Context, token string) (signin.Session, bool, error) {
	id, err := uuid.Parse(token)
	if err != nil {
		return s.Service.Session(ctx, token)
	}
	return signin.Session{ID: id, Person: id, CreatedAt: time.Now(), ProvedAt: time.Now()}, true, nil
}

// as is the browser of somebody with a role.
func (h *consoleHarness) as(role string) *webtest.Reader {
	h.t.Helper()
	r := webtest.NewReader(h.t, h.urls.Console)
	if role == "nobody" {
		return r
	}
	id, ok := h.ids[role]
	if !ok {
		h.t.Fatalf("nobody is %s", role)
	}
	set := httptest.NewRecorder()
	h.site.Cookies.Set(set, web.SessionCookie, id.String(), time.Hour)
	at, err := url.Parse(h.urls.Console)
	runtest.Must(h.t, err)
	r.HTTP.Jar.SetCookies(at, (&http.Response{Header: set.Header()}).Cookies())
	return r
}
