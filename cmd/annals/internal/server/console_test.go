package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/commands/people"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/condition"
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

// newConsole is a furnished organization on the shared service. The race detector looks at the tests that open all
// pages.
func newConsole(t *testing.T) *consoleHarness {
	t.Helper()
	h := newStaff(t)
	h.furnish()
	return h
}

// newStaff is newConsole without texts.
func newStaff(t *testing.T) *consoleHarness {
	t.Helper()
	unraced(t)
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
		id, err := service.AddMember(t.Context(), call, first, people.NewMember{Email: h.mail(role), Role: as})
		runtest.Must(t, err)
		h.ids[role] = id
	}
	for role, access := range map[string]organization.Access{"read": organization.ReadAccess, "write": organization.WriteAccess} {
		runtest.Must(t, service.SetProjectAccess(t.Context(), call, first, h.ids[role], project, access))
	}
	other, err := service.CreateOrganization(t.Context(), call,
		tenancy.NewOrganization{Name: h.name("Other"), Plan: metering.Flex, OwnerEmail: "foreign@" + h.domain("other")})
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

// What an auditor asks is at most three clicks from the overview of a project: each line below is one. A word that is
// typed into the box on each page is one, too. At the end a projection stops.
func TestConsole_ThreeClicks(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := startStaff(t)
	key, _ := h.keys()
	rule := func(values ...string) point {
		return point{"kind": "rule", "rule": point{
			"match": "all", "conditions": []point{{"trait": "team", "operator": "is", "values": values}},
		}}
	}
	h.must(key, http.MethodPut, api+"/identities/ben", point{"traits": point{"team": "red"}}, nil)
	h.must(key, http.MethodPut, api+"/audiences/crew", rule("red"), nil)
	items := []point{{"id": "gone", "content": "Bo waters the plants."}, {"id": "plan", "content": "The plan.", "audience": "crew"}}
	for n := range 60 {
		items = append(items, point{"id": fmt.Sprint("note-", n), "content": fmt.Sprint("Note ", n)})
	}
	h.send(key, "/ingest/batch", "completed", point{"items": items})
	h.ahead.Add(int64(time.Hour))
	at := h.cfg.now().UTC().Format("2006-01-02T15:04:05Z")
	h.ahead.Add(int64(time.Hour))
	h.must(key, http.MethodPut, api+"/audiences/crew", rule("blue"), nil)
	h.submit("write", "/p/default/data/gone/delete").want(t, http.StatusSeeOther)
	h.submit("owner", "/p/default/reads/setting", "mode", "kept", "days", "365").want(t, http.StatusSeeOther)
	h.submit("read", "/p/default/recall", "query", "Who waters the plants?", "identity", "ana").
		want(t, http.StatusSeeOther)
	h.get("admin", "/p/default/data?format=csv").want(t, http.StatusOK, "note-59")

	reader := func() *webtest.Reader {
		r := h.as("auditor")
		r.Open("/p/default")
		return r
	}
	h.submit("owner", "/settings/organization/auditor-texts", "allowed", "yes").want(t, http.StatusSeeOther)

	who := reader() // deleted this text?
	who.Open("/p/default/search?q=gone")
	who.SeeLater(h.mail("write"))

	said := reader() // what did the rule say then?
	said.Follow("Audiences")
	said.Follow("crew")
	said.Submit("Show", map[string]string{"As of": at})
	said.See("It was a rule then")
	said.See("red")

	read := reader() // who read as ana?
	read.Follow("Reads")
	read.Submit("Filter", map[string]string{"As identity": "ana"})
	read.SeeLater(h.mail("read"))

	exported := reader()               // who exported, and what?
	exported.Open("/settings/history") // *History* of the organization
	exported.Submit("Show", map[string]string{"Kind": "visit.exported"})
	exported.SeeLater(h.mail("admin"))

	factor := reader() // has no second factor?
	factor.Follow("Members")
	factor.Submit("Show", map[string]string{"Show": "no-second-factor"})
	factor.See(h.mail("write"))

	could := reader() // Ben read it then?
	could.Follow("Who sees what")
	could.Submit("Explain", map[string]string{"Identity": "ben", "Id of the data point": "plan", "As of": at})
	could.See("could read plan")
	h.showsAStoppedProjection()
}

// Everybody sees the own projects and whether the service works, operators also what it consists of and the causes.
func TestConsole_Health(t *testing.T) {
	t.Parallel()
	h := seeConsole(t)
	for role, want := range map[string]struct{ has, hasNot []string }{
		"owner":   {[]string{"default", "old-pilot", "This deployment", "Request log", "Open work", "annals rebuild"}, []string{"theirs"}},
		"admin":   {[]string{"default", "old-pilot", "datapoints", "settled"}, []string{"This deployment", "theirs"}},
		"read":    {[]string{"default", "settled"}, []string{"old-pilot", "This deployment"}},
		"member":  {[]string{"There is no project that you may read"}, []string{"default", "This deployment"}},
		"foreign": {[]string{"theirs"}, []string{"default", "This deployment"}},
	} {
		r := h.as(role)
		r.Open("/health")
		r.Answered(http.StatusOK)
		r.SeeLater("ready")
		for _, text := range want.has {
			r.SeeLater(text)
		}
		main := r.At.Find("main").Text()
		for _, text := range want.hasNot {
			if strings.Contains(main, text) {
				t.Errorf("%s sees %q: %s", role, text, webtest.Plain(main))
			}
		}
	}
	var got struct {
		IsReady     bool                   `json:"isReady"`
		Projections []condition.Projection `json:"projections"`
		Operator    *condition.Details     `json:"operator"`
	}
	answer := h.as("owner").Ask(http.MethodGet, "/health?format=json", nil)
	if err := json.Unmarshal([]byte(answer.Body), &got); err != nil || !got.IsReady || len(got.Projections) < 7 ||
		got.Operator == nil || got.Operator.Open == nil || got.Operator.RequestLogBytes == nil {
		t.Errorf("%v %s", err, answer.Body)
	}
	h.get("admin", "/health?format=json").want(t, http.StatusOK).lacks(t, "operator")
}

// showsAStoppedProjection stops a projection: it is shown to everybody with the constant reason, and to operators with
// the cause.
func (h *consoleHarness) showsAStoppedProjection() {
	t := h.t
	t.Helper()
	h.exec(`alter table directory.identities rename to hidden`)
	key, _ := h.keys()
	h.call(key, http.MethodPut, api+"/identities/zoe", point{"traits": point{"team": "x"}})
	owner, read := h.as("owner"), h.as("read")
	owner.Open("/health")
	owner.SeeLater("not ready")
	owner.SeeLater("projection directory: ")
	owner.SeeLater("42P01")
	read.Open("/health")
	read.SeeLater("projection directory: ")
	if strings.Contains(read.At.Text(), "42P01") {
		t.Errorf("a member reads the cause: %s", read.At.Text())
	}
}

func TestConsole_Organizations(t *testing.T) {
	t.Parallel()
	h := seeConsole(t)
	for path, want := range map[string]struct{ has, hasNot string }{
		"/operator/organizations":                     {"foreign@other.example", "No organization"},
		"/operator/organizations?q=OTHER":             {"foreign@other.example", ">Annals</td>"},
		"/operator/organizations?q=zzz":               {"No organization has that", "foreign@"},
		"/operator/organizations?format=csv":          {",Other,flex,foreign@other.example,1,", "<"},
		"/operator/organizations?format=json&q=other": {`"ownerEmail": "foreign@other.example"`, "<"},
	} {
		h.get("owner", path).want(t, http.StatusOK, want.has).lacks(t, want.hasNot)
	}
}
