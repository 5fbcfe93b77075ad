package authserver

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/tokens"
	"github.com/annals-project/annals/projections/access"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	callback = "https://app.example/cb"
	verifier = "dBjFtJeZ4CVP-mB92K27uhbUUP1mD2aLxMvE6J3qxYz"
)

var urls = auth.URLs{API: "https://api.example", Console: "https://memory.example", Auth: "https://memory.example"}

// scene is an authorization server with Ana, an Admin of Acme with two projects, and Ben, who reads the first of them.
type scene struct {
	*Service
	t     *testing.T
	at    string
	clock time.Time

	acme, ana, ben, tea, oil uuid.UUID

	mu     sync.Mutex
	people map[uuid.UUID]*access.Person
	log    *record
	second bool // sessions showed a second factor
}

// record is the commands: it decides as they do, and has the events.
type record struct {
	mu     sync.Mutex
	state  organization.State
	events []any
}

func (l *record) ApproveGrant(_ context.Context, _ engine.Call, e organization.GrantApproved) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.state.ApproveGrant(e)
	if err == nil {
		l.state.Evolve(&e)
		l.events = append(l.events, e)
	}
	return err
}

func (l *record) RevokeGrant(_ context.Context, _ engine.Call, e organization.GrantRevoked) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Evolve(&e)
	l.events = append(l.events, e)
	return nil
}

// grants are those of some that the log knows as ended, or as not.
func (l *record) grants(ids []uuid.UUID, ended bool) (list []uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if g, is := l.state.Grants[id]; is && g.Ended == ended {
			list = append(list, id)
		}
	}
	return list
}

func (s *scene) LiveGrants(_ context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	return s.log.grants(ids, false), nil
}

func (s *scene) EndedGrants(_ context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	return s.log.grants(ids, true), nil
}

// returns removes a person from Acme, and makes the same person a member again.
func (s *scene) returns(person uuid.UUID) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.log.state.Evolve(&organization.MemberRemoved{OrganizationID: s.acme, MemberID: person})
	s.log.state.Evolve(&organization.MemberAdded{OrganizationID: s.acme, MemberID: person, Role: organization.Admin})
}

func (l *record) all() []any {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

func newScene(t *testing.T, change ...func(*Config)) *scene {
	t.Helper()
	s := &scene{
		log: &record{}, t: t, clock: time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC),
		acme: uuid.New(), ana: uuid.New(), ben: uuid.New(), tea: uuid.New(), oil: uuid.New(),
	}
	s.people = map[uuid.UUID]*access.Person{
		s.ana: {ID: s.ana, Email: "ana@acme.example", Memberships: []access.Membership{
			{Organization: s.acme, Name: "Acme", Role: organization.Admin},
		}},
		s.ben: {ID: s.ben, Email: "ben@acme.example", Memberships: []access.Membership{
			{
				Organization: s.acme, Name: "Acme", Role: organization.Member,
				Access: map[uuid.UUID]organization.Access{s.tea: organization.ReadAccess},
			},
		}},
	}
	sealer, err := secret.NewSealer([]byte(strings.Repeat("k", secret.SealKeyBytes)))
	runtest.Must(t, err)
	now := func() time.Time { return s.clock }
	cfg := Config{
		DB: pgtest.Database(t), Sealer: sealer, URLs: urls, Access: s, Commands: s.log, Logger: runtest.Warnings(t), Now: now,
		Removed: func(_ context.Context, people []uuid.UUID) (gone []uuid.UUID, err error) {
			for _, id := range people {
				if s.people[id] == nil {
					gone = append(gone, id)
				}
			}
			return gone, nil
		},
	}
	for _, id := range []uuid.UUID{s.ana, s.ben} {
		s.log.state.Evolve(&organization.MemberAdded{OrganizationID: s.acme, MemberID: id})
	}
	cfg.Keys = tokens.New(tokens.Config{DB: cfg.DB, Sealer: sealer, Now: now})
	for _, c := range change {
		c(&cfg)
	}
	s.Service = New(cfg)
	site, err := web.New(web.Config{
		URL: cfg.URLs.Console, Sessions: s, Access: s, Cookies: web.NewCookies("http:", uuid.Nil),
		Admit: func() error { return nil }, Logger: runtest.Warnings(t), Now: now,
		Proxies: httpx.Proxies{netip.MustParsePrefix("127.0.0.0/8")},
	}, []web.Area{s.Area()})
	runtest.Must(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := site.Serve(w, r, &httpx.PageNote{}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	s.at = server.URL
	return s
}

// Session is that of the person whose id is the token.
func (s *scene) Session(_ context.Context, token string) (signin.Session, bool, error) {
	id, err := uuid.Parse(token)
	return signin.Session{Person: id, SecondFactor: s.second}, err == nil, nil
}

func (*scene) KnownBrowser(context.Context, string) (uuid.UUID, error) { return uuid.Nil, nil }

func (s *scene) Opens(signin.Session, string, uuid.UUID) bool { return true }

func (s *scene) Memberships(_ context.Context, id uuid.UUID) (access.Person, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.people[id]
	if p == nil {
		return access.Person{}, false, nil
	}
	found := *p
	found.Memberships = slices.Clone(p.Memberships)
	return found, true, nil
}

func (s *scene) Projects(_ context.Context, of uuid.UUID) ([]access.Project, error) {
	return []access.Project{s.project(of, s.tea, "tea"), s.project(of, s.oil, "oil")}, nil
}

func (s *scene) project(of, id uuid.UUID, slug string) access.Project {
	return access.Project{Project: auth.Project{ID: id, Slug: slug}, OrganizationID: of}
}

func (s *scene) ProjectByID(_ context.Context, id uuid.UUID) (access.Project, bool, error) {
	return s.project(s.acme, id, map[uuid.UUID]string{s.tea: "tea", s.oil: "oil"}[id]), true, nil
}

func (s *scene) ProjectNamed(context.Context, uuid.UUID, string) (auth.Named, bool, error) {
	return auth.Named{}, false, nil
}

// page is an answer to a browser or a program.
type page struct {
	status int
	header http.Header
	body   string
}

func (p page) json(t *testing.T) (fields map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(p.body), &fields); err != nil {
		t.Fatalf("%d %s: %v", p.status, p.body, err)
	}
	return fields
}

// send sends a request and follows no redirect. A person is who is signed in.
func (s *scene) send(method, path string, person uuid.UUID, body, kind string, header ...string) page {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.at+path, strings.NewReader(body))
	runtest.Must(s.t, err)
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if person != uuid.Nil {
		req.AddCookie(&http.Cookie{Name: "annals-00000000-session", Value: person.String()})
		req.Header.Set("Origin", urls.Console)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	runtest.Must(s.t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	runtest.Must(s.t, err)
	return page{res.StatusCode, res.Header, string(text)}
}

const formType = "application/x-www-form-urlencoded"

func (s *scene) post(path string, form url.Values) page {
	s.t.Helper()
	return s.send(http.MethodPost, path, uuid.Nil, form.Encode(), formType)
}

// registers registers a client with some redirect addresses.
func (s *scene) registers(redirects ...string) string {
	s.t.Helper()
	text, err := json.Marshal(map[string]any{"client_name": "App", "redirect_uris": redirects})
	runtest.Must(s.t, err)
	got := s.send(http.MethodPost, "/oauth2/register", uuid.Nil, string(text), "application/json")
	if got.status != http.StatusCreated {
		s.t.Fatalf("registered: %d %s", got.status, got.body)
	}
	return got.json(s.t)["client_id"].(string)
}

func challengeOf(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// asks are the parameters of a good request, with changes: a name and a value in turn, "" to leave it out.
func asks(client string, changes ...string) url.Values {
	q := url.Values{
		"response_type": {"code"}, "client_id": {client}, "redirect_uri": {callback}, "state": {"st"},
		"code_challenge": {challengeOf(verifier)}, "code_challenge_method": {"S256"}, "resource": {urls.Console + "/mcp"},
	}
	return changed(q, changes)
}

func changed(q url.Values, changes []string) url.Values {
	for i := 0; i < len(changes); i += 2 {
		q.Set(changes[i], changes[i+1])
		if changes[i+1] == "" {
			q.Del(changes[i])
		}
	}
	return q
}

// decides sends the decision of a person, and returns the parameters with which the browser comes back to the client.
func (s *scene) decides(person uuid.UUID, q url.Values, decision, place string) (page, url.Values) {
	s.t.Helper()
	form := url.Values{"decision": {decision}, "place": {place}}
	got := s.send(http.MethodPost, "/oauth2/consent?"+q.Encode(), person, form.Encode(), formType)
	return got, back(s.t, got)
}

func back(t *testing.T, got page) url.Values {
	t.Helper()
	to, err := url.Parse(got.header.Get("Location"))
	runtest.Must(t, err)
	return to.Query()
}

// code is that of a client that a person lets act everywhere.
func (s *scene) code(person uuid.UUID, client string, changes ...string) string {
	s.t.Helper()
	got, values := s.decides(person, asks(client, changes...), "approve", s.acme.String())
	if values.Get("code") == "" {
		s.t.Fatalf("no code: %d %s %s", got.status, got.header.Get("Location"), got.body)
	}
	return values.Get("code")
}

// redeems redeems a code, with changes of the form.
func (s *scene) redeems(client, code string, changes ...string) page {
	s.t.Helper()
	return s.post("/oauth2/token", changed(url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "client_id": {client}, "redirect_uri": {callback},
		"code_verifier": {verifier}, "resource": {urls.Console + "/mcp"},
	}, changes))
}

func (s *scene) refreshes(client, token string, changes ...string) page {
	s.t.Helper()
	return s.post("/oauth2/token", changed(url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {token}, "client_id": {client},
	}, changes))
}

// tokens are those of an answer.
func (s *scene) tokens(got page) TokenResponse {
	s.t.Helper()
	var out TokenResponse
	if got.status != http.StatusOK {
		s.t.Fatalf("no tokens: %d %s", got.status, got.body)
	}
	runtest.Must(s.t, json.Unmarshal([]byte(got.body), &out))
	return out
}

// connected is a client with tokens of a person.
func (s *scene) connected(person uuid.UUID) (client string, has TokenResponse) {
	s.t.Helper()
	client = s.registers(callback)
	return client, s.tokens(s.redeems(client, s.code(person, client)))
}

// lives reports whether an access token is valid.
func (s *scene) lives(access string) bool {
	s.t.Helper()
	_, err := s.Authenticate(s.t.Context(), access)
	if err != nil && err != ErrToken { //nolint:errorlint // exactly that
		s.t.Fatal(err)
	}
	return err == nil
}

// refused checks the refusal of an endpoint.
func refused(t *testing.T, name string, got page, status int, code string) {
	t.Helper()
	if got.status != status || got.json(t)["error"] != code || got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s: %d %s, want %d %s", name, got.status, got.body, status, code)
	}
}
