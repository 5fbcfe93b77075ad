package account_test

import (
	"context"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/pquerna/otp/totp"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/console/forms"
	"github.com/annals-project/annals/console/pages/account"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/oidctest"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/access"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	anasMail = oidctest.Email
	anas     = "correct horse battery"
)

// scene is a console with its sign-in, and Ana, an admin of Acme. A test is her browser.
type scene struct {
	*signin.Service
	t      *testing.T
	url    string
	clock  time.Time
	ana    uuid.UUID
	people map[uuid.UUID]*access.Person
	mails  []string
	// offers are by address.
	offers  map[string][]access.Offer
	browser *http.Client
	cookies web.Cookies
	site    *web.Site
}

func newScene(t *testing.T, company *oidctest.Company, signUp bool) *scene {
	t.Helper()
	sealer, err := secret.NewSealer([]byte(strings.Repeat("k", secret.SealKeyBytes)))
	runtest.Must(t, err)
	s := &scene{
		t: t, clock: time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC), ana: uuid.New(), browser: newBrowser(t),
		offers: map[string][]access.Offer{},
	}
	s.people = map[uuid.UUID]*access.Person{s.ana: {ID: s.ana, Email: anasMail, Memberships: []access.Membership{
		{Organization: uuid.New(), Name: "Acme", Role: organization.Admin, Given: anasMail},
		{Organization: uuid.New(), Name: "Other", Role: organization.Member, Given: anasMail},
	}}}
	server := httptest.NewUnstartedServer(nil)
	s.url = "http://" + server.Listener.Addr().String()
	s.cookies = web.NewCookies(s.url, uuid.Nil)
	cfg := signin.Config{
		DB: pgtest.Database(t), People: s, Sealer: sealer, HashKey: []byte("key"), Now: s.now, PairFailures: 3,
		FailureTime: time.Nanosecond,
		IsMember: func(_ context.Context, id uuid.UUID) (bool, error) {
			return s.people[id] != nil && len(s.people[id].Memberships) > 0, nil
		},
		MemberElsewhere: func(_ context.Context, id, organization uuid.UUID) (bool, error) {
			p := s.people[id]
			return p != nil && slices.ContainsFunc(p.Memberships, func(m access.Membership) bool {
				return m.Organization != organization
			}), nil
		},
		Offered: func(_ context.Context, email string) (bool, error) { return len(s.offers[email]) > 0, nil },
	}
	if company != nil {
		company.Now = s.now
		cfg.OIDC = signin.Provider{
			Issuer: company.URL, ClientID: oidctest.ClientID, ClientSecret: oidctest.ClientSecret,
			Redirect: s.url + "/sign-in/oidc/callback",
		}
	}
	s.Service = signin.New(cfg)
	home := func(r *web.Request) error { return r.Render("home.html", nil) }
	site, err := web.New(web.Config{
		Forms: forms.Store{DB: cfg.DB, Sealer: sealer, Now: s.now},
		URL:   s.url, Sessions: s.Service, Access: s, Cookies: s.cookies, Admit: func() error { return nil },
		Logger: runtest.Warnings(t), Now: s.now, Proxies: httpx.Proxies{netip.MustParsePrefix("127.0.0.0/8")},
	}, []web.Area{account.Area(account.Deps{
		SignIn: s.Service, Commands: s, OffersTo: s.offersTo, Mail: s, URL: s.url, SignUp: signUp, Logger: slog.New(slog.DiscardHandler),
	}), {Templates: homeTemplate, Routes: []web.Route{
		{Pattern: "GET /{$}", Needs: web.Member, Serve: home}, {Pattern: "GET /usage", Needs: web.Member, Serve: home},
	}}})
	runtest.Must(t, err)
	s.site = site
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := site.Serve(w, r, &httpx.PageNote{}); err != nil {
			t.Error(err)
		}
	})
	server.Start()
	t.Cleanup(server.Close)
	return s
}

func newBrowser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	runtest.Must(t, err)
	return &http.Client{Jar: jar}
}

func (s *scene) now() time.Time { return s.clock }

func (s *scene) FindPerson(_ context.Context, email string) (uuid.UUID, bool, error) {
	for id, p := range s.people {
		if p.Email == person.NormalEmail(email) {
			return id, true, nil
		}
	}
	return uuid.Nil, false, nil
}

// Register registers a person who is a member of nothing.
func (s *scene) Register(ctx context.Context, email string) (uuid.UUID, error) {
	id, found, err := s.FindPerson(ctx, email)
	if !found {
		id = uuid.New()
		s.people[id] = &access.Person{ID: id, Email: email}
	}
	return id, err
}

func (s *scene) RegisterPerson(ctx context.Context, _ engine.Call, email string) (uuid.UUID, error) {
	return s.Register(ctx, email)
}

func (s *scene) AddressOf(_ context.Context, id uuid.UUID) (string, bool, error) {
	p := s.people[id]
	if p == nil {
		return "", false, nil
	}
	return p.Email, true, nil
}

func (s *scene) offersTo(_ context.Context, email string) ([]access.Offer, error) {
	return s.offers[email], nil
}

// AcceptOffer makes the person of an address a member, as by the offer.
func (s *scene) AcceptOffer(
	ctx context.Context, _ engine.Call, of, offer uuid.UUID, email string,
) (uuid.UUID, error) {
	for i, o := range s.offers[email] {
		if o.ID == offer && o.Organization == of {
			s.offers[email] = slices.Delete(s.offers[email], i, i+1)
			id, err := s.Register(ctx, email)
			s.people[id].Memberships = append(s.people[id].Memberships,
				access.Membership{Organization: of, Name: o.Name, Role: o.Role, Given: email})
			return id, err
		}
	}
	return uuid.Nil, organization.NoOffer()
}

func (s *scene) EndOffer(
	_ context.Context, _ engine.Call, _, offer uuid.UUID, _ organization.OfferEnd,
) error {
	for email := range s.offers {
		s.offers[email] = slices.DeleteFunc(s.offers[email], func(o access.Offer) bool { return o.ID == offer })
	}
	return nil
}

func (s *scene) Memberships(_ context.Context, id uuid.UUID) (access.Person, bool, error) {
	p := s.people[id]
	if p == nil {
		return access.Person{}, false, nil
	}
	found := *p
	found.Memberships = slices.Clone(p.Memberships)
	return found, true, nil
}

func (s *scene) ProjectNamed(context.Context, uuid.UUID, string) (auth.Named, bool, error) {
	return auth.Named{}, false, nil
}

func (s *scene) CreateOrganization(
	_ context.Context, _ engine.Call, in tenancy.NewOrganization,
) (tenants.Organization, error) {
	if in.Name == "Acme" {
		return tenants.Organization{}, fault.New(fault.Conflict, fault.CodeConflict, "there is an organization Acme")
	}
	id := uuid.New()
	s.people[id] = &access.Person{ID: id, Email: in.OwnerEmail, Memberships: []access.Membership{
		{Organization: uuid.New(), Name: in.Name, Role: organization.Owner, Plan: in.Plan, Given: in.OwnerEmail},
	}}
	return tenants.Organization{Name: in.Name}, nil
}

func (s *scene) ChangeAddress(_ context.Context, _ engine.Call, id uuid.UUID, email string) error {
	s.people[id].Email = email
	return nil
}

// RemoveMember ends a membership, unless it is that of an Owner.
func (s *scene) RemoveMember(_ context.Context, call engine.Call, of, member uuid.UUID) error {
	if call.Principal.Kind != auth.Person || call.Principal.KeyID != member {
		return fmt.Errorf("%s leaves as %+v", member, call.Principal)
	}
	p := s.people[member]
	n := slices.IndexFunc(p.Memberships, func(m access.Membership) bool { return m.Organization == of })
	if p.Memberships[n].Role == organization.Owner {
		return fault.New(fault.Conflict, fault.CodeConflict, "the last owner of an organization stays")
	}
	if p.Memberships = slices.Delete(p.Memberships, n, n+1); len(p.Memberships) == 0 {
		delete(s.people, member)
	}
	return nil
}

func (s *scene) Set() bool { return true }

func (s *scene) Send(_ context.Context, to, _, text string) error {
	s.mails = append(s.mails, to+": "+text)
	return nil
}

// page is an answer: the page after all redirects to this console.
type page struct {
	status      int
	path, text  string
	header      http.Header
	redirectsTo string // elsewhere
}

func (s *scene) do(method, path string, form url.Values, change ...func(*http.Request)) page {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(form.Encode()))
	runtest.Must(s.t, err)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", s.url)
	}
	for _, f := range change {
		f(req)
	}
	s.browser.CheckRedirect = func(next *http.Request, _ []*http.Request) error {
		if !strings.HasPrefix(next.URL.String(), s.url) {
			return http.ErrUseLastResponse
		}
		return nil
	}
	res, err := s.browser.Do(req)
	runtest.Must(s.t, err)
	body, err := io.ReadAll(res.Body)
	runtest.Must(s.t, err)
	runtest.Must(s.t, res.Body.Close())
	return page{
		res.StatusCode, res.Request.URL.RequestURI(), html.UnescapeString(string(body)), res.Header,
		res.Header.Get("Location"),
	}
}

func (s *scene) get(path string) page { return s.do(http.MethodGet, path, nil) }

func (s *scene) post(path string, fields ...string) page {
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	return s.do(http.MethodPost, path, form)
}

// wants fails unless a page is at a path with a status and holds texts.
func (s *scene) wants(p page, status int, path string, texts ...string) {
	s.t.Helper()
	at, _, _ := strings.Cut(p.path, "?shown=")
	if form, _, mailed := strings.Cut(at, "/sent?email="); mailed {
		at = form + "/sent"
	}
	if p.status != status || at != path {
		s.t.Errorf("%d %s, want %d %s: %s", p.status, p.path, status, path, p.text)
	}
	for _, text := range texts {
		if !strings.Contains(p.text, text) {
			s.t.Errorf("%s lacks %q: %s", p.path, text, p.text)
		}
	}
}

// token is that of the browser's session.
func (s *scene) token() string { return s.cookie(web.SessionCookie) }

// cookie is one of the browser.
func (s *scene) cookie(name string) string {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url, http.NoBody)
	runtest.Must(s.t, err)
	for _, c := range s.browser.Jar.Cookies(req.URL) {
		req.AddCookie(c)
	}
	return s.cookies.Value(req, name)
}

func (s *scene) link(purpose signin.Purpose) string {
	s.t.Helper()
	link := signin.Link{Purpose: purpose, Person: s.ana, Email: anasMail}
	if purpose != signin.Owner {
		link.Organization = s.people[s.ana].Memberships[0].Organization
	}
	if purpose == signin.Invite {
		link.Person, link.Offer = uuid.Nil, uuid.New()
		s.offers[anasMail] = append(s.offers[anasMail],
			access.Offer{ID: link.Offer, Organization: link.Organization, Name: "Acme", Role: organization.Admin})
	}
	token, err := s.NewLink(s.t.Context(), link)
	runtest.Must(s.t, err)
	return "/link/" + token
}

// enter gives Ana a password and signs her in.
func (s *scene) enter() {
	s.t.Helper()
	_, err := s.GeneratePassword(s.t.Context(), s.ana, anasMail, anas)
	runtest.Must(s.t, err)
	s.wants(s.post("/sign-in", "email", anasMail, "password", anas), 200, "/", "Home")
}

// enterInvited signs Ana in by the link of an Admin of Acme.
func (s *scene) enterInvited() {
	s.t.Helper()
	path, before := s.invited()
	s.wants(s.post(path, "password", anas), 200, "/", "Home")
	s.people[s.ana].Memberships = before
}

// invited makes Ana a member of nothing, with a link by which Acme lets her in. It returns the memberships of before.
func (s *scene) invited() (path string, before []access.Membership) {
	s.t.Helper()
	path, before = s.link(signin.Invite), s.people[s.ana].Memberships
	s.people[s.ana].Memberships = nil
	return path, before
}

var secretOf = regexp.MustCompile(`<code>([A-Z2-7]{32})</code>`)

// field is the value of a hidden field of a page.
func field(t *testing.T, p page, name string) string {
	t.Helper()
	found := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(p.text)
	if found == nil {
		t.Fatalf("%s has no field %s: %s", p.path, name, p.text)
	}
	return found[1]
}

// enrol sets up a second factor and returns its key and the recovery codes.
func (s *scene) enrol() (key string, codes []string) {
	s.t.Helper()
	p := s.get("/account/second-factor")
	s.wants(p, 200, "/account/second-factor", `<svg width="240"`)
	key = secretOf.FindStringSubmatch(p.text)[1]
	s.wants(s.get("/account/second-factor"), 200, "/account/second-factor", key)
	s.wants(s.post("/account/second-factor", "code", "000000", "sealed", field(s.t, p, "sealed")), 400,
		"/account/second-factor", "the code is wrong", key)
	p = s.post("/account/second-factor", "code", s.code(key), "sealed", field(s.t, p, "sealed"))
	s.wants(p, 200, "/account/recovery-codes", "Recovery codes")
	s.clock = s.clock.Add(30 * time.Second)
	return key, regexp.MustCompile(`[A-Z2-7]{4}(-[A-Z2-7]{4}){3}`).FindAllString(p.text, -1)
}

func (s *scene) code(key string) string {
	s.t.Helper()
	code, err := totp.GenerateCode(key, s.clock)
	runtest.Must(s.t, err)
	return fmt.Sprint(code)
}

var homeTemplate = fstest.MapFS{
	"home.html": {Data: []byte(`{{define "title"}}Home{{end}}{{define "main"}}<h1>Home</h1>{{end}}`)},
}
