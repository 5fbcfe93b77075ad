package account_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/pquerna/otp/totp"

	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/oidctest"
	"github.com/annals-project/annals/internal/runtest"
)

func TestSignIn_GoesOnToThePage(t *testing.T) {
	s := newScene(t, nil, false)
	_, err := s.GeneratePassword(t.Context(), s.ana, anasMail, anas)
	runtest.Must(t, err)
	p := s.get("/usage")
	s.wants(p, 200, "/sign-in?next=%2Fusage", "Sign in")
	if strings.Contains(p.header.Get("Content-Security-Policy"), "form-action") {
		t.Error("the policy forbids the redirect to a provider")
	}
	s.wants(s.post("/sign-in", "email", anasMail, "password", "a wrong password", "next", field(t, p, "next")), 401, "/sign-in",
		"the address or the password is wrong", anasMail, `value="/usage"`)
	s.wants(s.post("/sign-in", "email", "bo@acme.example", "password", anas), 401, "/sign-in",
		"the address or the password is wrong")
	s.wants(s.post("/sign-in", "email", anasMail, "password", anas, "next", "/usage"), 200, "/usage", "Home", anasMail)
	s.wants(s.get("/sign-in"), 200, "/") // who is signed in has nothing to do there
	s.wants(s.post("/sign-out"), 200, "/sign-in")
	s.wants(s.get("/usage"), 200, "/sign-in?next=%2Fusage")
}

func TestSignIn_DoesNotGoElsewhere(t *testing.T) {
	s := newScene(t, nil, false)
	s.enter()
	for _, next := range []string{
		"https://evil.example", "//evil.example", `/\evil.example`, `\\evil.example`, "javascript:alert(1)", "", "evil.example",
		"/%zz", "/" + strings.Repeat("x", 2000),
	} {
		s.wants(s.post("/sign-in", "email", anasMail, "password", anas, "next", next), 200, "/")
	}
}

func TestSignIn_CannotBeFixed(t *testing.T) {
	s := newScene(t, nil, false)
	s.enter()
	planted := s.token()
	s.wants(s.post("/sign-in", "email", anasMail, "password", anas), 200, "/")
	if _, live, err := s.Session(t.Context(), planted); live || err != nil || s.token() == planted {
		t.Errorf("the session from before lives: %v, %v", live, err)
	}
	// A session that somebody made up is none.
	s.browser = newBrowser(t)
	made := strings.Repeat("A", len(planted))
	u, err := url.Parse(s.url)
	runtest.Must(t, err)
	rec := &http.Response{Header: http.Header{}}
	s.cookies.Set(headers{rec.Header}, web.SessionCookie, made, time.Hour)
	s.browser.Jar.SetCookies(u, rec.Cookies())
	s.wants(s.post("/sign-in", "email", anasMail, "password", anas), 200, "/")
	if s.token() == made {
		t.Error("the session has the token that somebody made up")
	}
}

// headers is a response of headers alone.
type headers struct{ header http.Header }

func (h headers) Header() http.Header         { return h.header }
func (h headers) Write(b []byte) (int, error) { return len(b), nil }
func (h headers) WriteHeader(int)             {}

// Another site could sign a browser in as somebody else, or out.
func TestForms_FromElsewhere(t *testing.T) {
	s := newScene(t, nil, true)
	s.enter()
	_, err := s.States(t.Context(), s.ana)
	runtest.Must(t, err)
	for path, form := range map[string]url.Values{
		"/sign-in": {"email": {anasMail}, "password": {anas}}, "/sign-out": {}, "/sign-up": {"email": {"x@y.example"}},
		"/account/password": {"current": {anas}, "password": {"another password"}}, "/account/sessions": {},
		s.link(signin.Reset): {"password": {"another password"}}, "/account/second-factor": {}, "/organization": {},
	} {
		for name, change := range map[string]func(*http.Request){
			"without an origin": func(r *http.Request) { r.Header.Del("Origin") },
			"of another site":   func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
			"of a private page": func(r *http.Request) { r.Header.Set("Origin", "null") },
			"of a cross-site form": func(r *http.Request) {
				r.Header.Del("Origin")
				r.Header.Set("Sec-Fetch-Site", "cross-site")
			},
		} {
			if p := s.do(http.MethodPost, path, form, change); p.status != http.StatusForbidden {
				t.Errorf("%s %s: %d", path, name, p.status)
			}
		}
	}
	s.wants(s.get("/usage"), 200, "/usage", "Home")
	if len(s.mails) != 0 {
		t.Errorf("mails %v", s.mails)
	}
}

func TestSignIn_Throttled(t *testing.T) {
	s := newScene(t, nil, false)
	_, err := s.GeneratePassword(t.Context(), s.ana, anasMail, anas)
	runtest.Must(t, err)
	for range 3 {
		s.post("/sign-in", "email", anasMail, "password", "a wrong password")
	}
	p := s.post("/sign-in", "email", anasMail, "password", anas)
	s.wants(p, 429, "/sign-in", "too many attempts: try again in 15 minutes")
	if p.header.Get("Retry-After") != "900" {
		t.Errorf("Retry-After %q", p.header.Get("Retry-After"))
	}
	s.clock = s.clock.Add(15 * time.Minute)
	s.wants(s.post("/sign-in", "email", anasMail, "password", anas), 200, "/")
}

// Through a proxy, who fails must not keep everybody else out.
func TestSignIn_ThrottledBehindAProxy(t *testing.T) {
	s := newScene(t, nil, false)
	_, err := s.GeneratePassword(t.Context(), s.ana, anasMail, anas)
	runtest.Must(t, err)
	from := func(address, password string) page {
		return s.do(http.MethodPost, "/sign-in", url.Values{"email": {anasMail}, "password": {password}},
			func(r *http.Request) { r.Header.Set("X-Forwarded-For", "203.0.113.9, "+address) })
	}
	for range 4 {
		from("192.0.2.1", "a wrong password")
	}
	s.wants(from("192.0.2.1", anas), 429, "/sign-in", "too many attempts")
	s.wants(from("192.0.2.2", anas), 200, "/")
	s.wants(s.get("/account"), 200, "/account", "192.0.2.2")
}

func TestSecondFactor_IsAsked(t *testing.T) {
	s := newScene(t, nil, false)
	s.enter()
	key, codes := s.enrol()
	s.post("/sign-out")
	p := s.post("/sign-in", "email", anasMail, "password", anas, "next", "/usage")
	s.wants(p, 200, "/sign-in/second-factor?next=%2Fusage", "Code")
	waiting := s.token()
	s.wants(s.get("/usage"), 200, "/sign-in?next=%2Fusage") // the password alone opens nothing
	s.wants(s.post("/sign-in/second-factor", "code", "000000", "next", "/usage"), 400, "/sign-in/second-factor",
		"the code is wrong", `value="/usage"`)
	code := s.code(key)
	s.wants(s.post("/sign-in/second-factor", "code", code, "next", "/usage"), 200, "/usage", "Home")
	if s.token() == waiting {
		t.Error("the session keeps its token")
	}
	s.post("/sign-out")
	s.post("/sign-in", "email", anasMail, "password", anas)
	s.wants(s.post("/sign-in/second-factor", "code", code), 400, "/sign-in/second-factor", "was used before")
	s.wants(s.post("/sign-in/second-factor", "code", codes[3]), 200, "/", "Home")
	s.wants(s.get("/account"), 200, "/account", "9 recovery codes are left")
}

func TestSecondFactor_RequiredByTheOrganization(t *testing.T) {
	s := newScene(t, nil, false)
	s.people[s.ana].Memberships[0].SecondFactor = true
	_, err := s.GeneratePassword(t.Context(), s.ana, anasMail, anas)
	runtest.Must(t, err)
	s.wants(s.post("/sign-in", "email", anasMail, "password", anas, "next", "/usage"), 200, "/account/second-factor",
		"Acme requires a second factor")
	s.wants(s.get("/account"), 200, "/account/second-factor")
	s.enrol()
	s.wants(s.get("/usage"), 200, "/usage", "Home")
	// Another organization asks for none.
	s.wants(s.post("/organization", "organization", s.people[s.ana].Memberships[1].Organization.String()), 200, "/", "Other")
	s.wants(s.post("/organization", "organization", s.ana.String()), 404, "/organization")
}

func TestProvider_SignsIn(t *testing.T) {
	company := oidctest.NewCompany(t)
	s := newScene(t, company, true)
	s.wants(s.get("/sign-in"), 200, "/sign-in", "your company's account")
	start := func(fields ...string) url.Values {
		t.Helper()
		p := s.post("/sign-in/oidc", fields...)
		to, err := url.Parse(p.redirectsTo)
		runtest.Must(t, err)
		if p.status != 303 || !strings.HasPrefix(p.redirectsTo, company.URL+"/authorize?") ||
			strings.Contains(p.header.Get("Content-Security-Policy"), "form-action") {
			t.Fatalf("%d %s", p.status, p.redirectsTo)
		}
		company.Asked = to.Query()
		return url.Values{"state": {company.Asked.Get("state")}, "code": {"the code"}}
	}
	const callback = "/sign-in/oidc/callback?"
	back := start("next", "/usage")
	s.wants(s.get(callback+back.Encode()), 200, "/usage", "Home")
	s.wants(s.get(callback+back.Encode()), 400, callback+back.Encode(), "not begun here") // the cookie is gone

	s.browser = newBrowser(t)
	back = start()
	other := newBrowser(t)
	other, s.browser = s.browser, other
	s.wants(s.get(callback+back.Encode()), 400, callback+back.Encode(), "not begun here") // another browser
	s.browser = other
	company.Claims = map[string]any{"email": "new@other.example", "sub": "new"}
	s.wants(s.get(callback+back.Encode()), 403, callback+back.Encode(), "ask for an invitation")

	back = start("sign-up", "1")
	p := s.get(callback + back.Encode())
	if p.status != 200 || !strings.HasPrefix(p.path, "/link/") || !strings.Contains(p.text, "new@other.example") {
		t.Fatalf("%d %s", p.status, p.path)
	}
	s.wants(s.post(p.path, "organization", "New", "password", anas), 200, "/", "New")

	company.Down = true
	s.browser = newBrowser(t)
	if p := s.get(callback + "error=access_denied&state=x"); p.status != 400 {
		t.Errorf("a person who declines: %d", p.status)
	}
}

// An image on any page may name the callback: it counts nothing, and does not end the attempt of the browser.
func TestOIDC_CallbackOfAnotherPage(t *testing.T) {
	company := oidctest.NewCompany(t)
	s := newScene(t, company, false)
	_, err := s.GeneratePassword(t.Context(), s.ana, anasMail, anas)
	runtest.Must(t, err)
	begun := s.post("/sign-in/oidc", "next", "/usage")
	to, err := url.Parse(begun.redirectsTo)
	runtest.Must(t, err)
	company.Asked = to.Query()
	mine := s.browser
	for n := range s.AddressFailures + 1 {
		if s.browser = mine; n%2 == 0 {
			s.browser = newBrowser(t)
		}
		p := s.do(http.MethodGet, "/sign-in/oidc/callback?state=x&code=y", nil, func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		})
		if p.status != http.StatusBadRequest {
			t.Fatalf("callback %d: %d %s", n, p.status, p.text)
		}
	}
	s.browser = newBrowser(t)
	s.wants(s.post("/sign-in", "email", anasMail, "password", anas), 200, "/")
	s.browser = mine
	s.wants(s.get("/sign-in/oidc/callback?code=the+code&state="+url.QueryEscape(to.Query().Get("state"))), 200, "/usage")
}

// A browser stays known after a sign-out, whatever others of its network do meanwhile.
func TestSignIn_KnownBrowser(t *testing.T) {
	s := newScene(t, nil, false)
	s.enter()
	s.wants(s.post("/sign-out"), 200, "/sign-in")
	known, mine := s.cookie("known"), s.browser
	if known == "" || s.token() != "" {
		t.Fatalf("cookies %q and %q", known, s.token())
	}
	s.browser = newBrowser(t)
	for range 4 {
		s.post("/sign-in", "email", anasMail, "password", "a wrong password")
	}
	s.wants(s.post("/sign-in", "email", anasMail, "password", anas), 429, "/sign-in", "too many attempts")
	s.browser = mine
	p := s.post("/sign-in", "email", anasMail, "password", anas)
	s.wants(p, 200, "/")
	if again := s.cookie("known"); again == known || again == "" {
		t.Errorf("the cookie is %q again", again)
	}
	s.wants(s.post("/account/sessions"), 200, "/sign-in")
	s.wants(s.post("/sign-in", "email", anasMail, "password", anas), 429, "/sign-in", "too many attempts")
}

// While strangers have all places of visitors, a person signs in from a known browser, and nobody from another one.
func TestSignIn_PlaceOfAKnownBrowser(t *testing.T) {
	s := newScene(t, nil, false)
	s.enter()
	s.wants(s.post("/sign-out"), 200, "/sign-in")
	shared := s.site.Shared()
	at := slices.IndexFunc(shared, func(of web.Shared) bool { return of.Class == "visitors" })
	for range admission.Visitors.Total {
		hold := shared[at].Open(allowance.Owner{Organization: uuid.New()})
		runtest.Must(t, hold.Reserve(t.Context(), 1))
		defer hold.Release()
	}
	s.wants(s.post("/sign-in", "email", anasMail, "password", anas), http.StatusOK, "/")
	s.browser = newBrowser(t)
	s.wants(s.get("/sign-in"), http.StatusServiceUnavailable, "/sign-in", "too many people are signing in")
}

const confirmAccount = "/account/confirm?next=%2Faccount"

// A session that is older than ten minutes changes nothing by which people sign in, until its person confirms.
func TestConfirm_ByPassword(t *testing.T) {
	s := newScene(t, nil, false)
	s.enter()
	s.clock = s.clock.Add(signin.FreshLife)
	p := s.get("/account")
	s.wants(p, 200, "/account", `href="/account/confirm?next=/account"`)
	if strings.Contains(p.text, `action="/account/address"`) {
		t.Error("the form to change the address is shown")
	}
	s.wants(s.post("/account/address", "email", "eve@evil.example"), 200, confirmAccount, "Confirm that it is you")
	if len(s.mails) != 0 {
		t.Errorf("mailed %v", s.mails)
	}
	const second = "/account/confirm?next=%2Faccount%2Fsecond-factor"
	s.wants(s.get("/account/second-factor"), 200, second)
	s.wants(s.post("/account/second-factor", "code", "1", "sealed", "x"), 200, second)
	s.wants(s.post("/account/confirm", "next", "/account", "password", "wrong"), 401, "/account/confirm",
		signin.ErrRefused.Error(), `name="next" value="/account"`)
	s.wants(s.get("/account/second-factor"), 200, second)
	s.wants(s.post("/account/confirm", "next", "//evil.example", "password", anas), 200, "/", "Home")
	s.wants(s.get("/account"), 200, "/account", `action="/account/address"`)
	s.wants(s.post("/account/address", "email", "new@acme.example"), 200, "/account?done=sent", "Sent.")
	s.enrol()
	states, err := s.States(t.Context(), s.ana)
	runtest.Must(t, err)
	if len(s.mails) != 1 || !states[s.ana].SecondFactor {
		t.Errorf("mails %v, %+v", s.mails, states[s.ana])
	}
}

// Who must set up a second factor confirms first.
func TestConfirm_BeforeRequiredFactor(t *testing.T) {
	s := newScene(t, nil, false)
	s.enter()
	for i := range s.people[s.ana].Memberships {
		s.people[s.ana].Memberships[i].SecondFactor = true
	}
	s.wants(s.get("/usage"), 200, "/account/second-factor", `<svg width="240"`)
	s.clock = s.clock.Add(signin.FreshLife)
	s.wants(s.get("/usage"), 200, "/account/confirm?next=%2Faccount%2Fsecond-factor")
	s.wants(s.post("/account/confirm", "next", "/account/second-factor", "password", anas), 200, "/account/second-factor",
		`<svg width="240"`)
}

func TestConfirm_ByCode(t *testing.T) {
	s := newScene(t, nil, false)
	s.enter()
	key, _ := s.enrol()
	s.clock = s.clock.Add(signin.FreshLife)
	s.wants(s.post("/account/address", "email", "new@acme.example"), 200, confirmAccount, "code of your app")
	s.wants(s.post("/account/confirm", "next", "/account", "code", "000000"), 400, "/account/confirm", "the code is wrong")
	code, err := totp.GenerateCode(key, s.clock)
	runtest.Must(t, err)
	s.wants(s.post("/account/confirm", "next", "/account", "code", code), 200, "/account", `action="/account/address"`)
	s.clock = s.clock.Add(signin.FreshLife)
	// To remove the second factor its code is the proof.
	s.wants(s.post("/account/second-factor/remove", "code", s.code(key)), 200, "/account?done=deleted", "Set it up")
}

// Who has no password sets the first one after the provider asked again.
func TestConfirm_AtTheProvider(t *testing.T) {
	company := oidctest.NewCompany(t)
	s := newScene(t, company, false)
	back := func(to page) page {
		u, err := url.Parse(to.redirectsTo)
		runtest.Must(t, err)
		company.Asked = u.Query()
		return s.get("/sign-in/oidc/callback?code=the+code&state=" + url.QueryEscape(company.Asked.Get("state")))
	}
	s.wants(back(s.post("/sign-in/oidc")), 200, "/", "Home")
	s.clock = s.clock.Add(signin.FreshLife)
	const password = "another long password"
	p := s.post("/account/password", "password", password)
	s.wants(p, 200, confirmAccount, `action="/account/confirm/oidc"`)
	if strings.Contains(p.text, `name="password"`) {
		t.Error("asks for a password that there is not")
	}
	s.wants(s.get("/account"), 200, "/account", `to set one`)
	for _, wrong := range []map[string]any{{"auth_time": s.clock.Unix() - 3600}, {"auth_time": s.clock.Unix(), "sub": "eve"}} {
		company.Claims = wrong
		got := back(s.post("/account/confirm/oidc", "next", "/account"))
		if got.status != 403 || !strings.Contains(got.text, "Confirm that it is you") {
			t.Errorf("%v: %d %s", wrong, got.status, got.text)
		}
		s.wants(s.post("/account/password", "password", password), 200, confirmAccount)
	}
	company.Claims = map[string]any{"auth_time": s.clock.Unix()}
	s.wants(back(s.post("/account/confirm/oidc", "next", "/account")), 200, "/account", "Set a password")
	if company.Asked.Get("prompt") != "login" || company.Asked.Get("max_age") != "0" {
		t.Errorf("asked %v", company.Asked)
	}
	s.wants(s.post("/account/password", "password", password), 200, "/account?done=saved", "Saved.")
}

func TestLeave(t *testing.T) {
	s := newScene(t, nil, false)
	s.enter()
	all := slices.Clone(s.people[s.ana].Memberships)
	acme, other := all[0].Organization.String(), all[1].Organization.String()
	s.wants(s.get("/account"), 200, "/account", "Leave Acme", "Leave Other", "your account is erased")
	s.wants(s.post("/account/leave", "organization", other), 400, "/account/leave", "tick the box to leave Other")
	s.wants(s.post("/account/leave", "organization", "x", "sure", "yes"), 404, "/account/leave", "not a member")
	s.wants(s.post("/account/leave", "organization", other, "sure", "yes"), 200, "/account?done=left", "You left the organization.")
	if len(s.people[s.ana].Memberships) != 1 {
		t.Errorf("%+v", s.people[s.ana])
	}
	s.people[s.ana].Memberships[0].Role = organization.Owner
	s.wants(s.post("/account/leave", "organization", acme, "sure", "yes"), 409, "/account/leave", "the last owner")
	s.people[s.ana].Memberships[0].Role = organization.Admin
	s.wants(s.post("/account/leave", "organization", acme, "sure", "yes"), 200, "/sign-in")
	states, err := s.States(t.Context(), s.ana)
	runtest.Must(t, err)
	if len(states) != 0 || s.token() != "" {
		t.Errorf("is still known: %v", states)
	}
}
