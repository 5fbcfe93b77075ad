package signin

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/oidctest"
	"github.com/annals-project/annals/internal/runtest"
)

func withCompany(t *testing.T) (*scene, *oidctest.Company) {
	t.Helper()
	c := oidctest.NewCompany(t)
	s := newScene(t, func(cfg *Config) {
		cfg.OIDC = Provider{
			Issuer: c.URL, ClientID: "annals", ClientSecret: "client-secret",
			Redirect: "https://console.example/sign-in/oidc/callback",
		}
	})
	c.Now = func() time.Time { return s.clock }
	return s, c
}

// start begins a sign-in. The answer is the one that the provider gives.
func (s *scene) start(c *oidctest.Company, signUp bool) Callback {
	s.t.Helper()
	to, cookie, err := s.Start(s.t.Context(), signUp)
	runtest.Must(s.t, err)
	u, err := url.Parse(to)
	runtest.Must(s.t, err)
	c.Asked = u.Query()
	return Callback{State: c.Asked.Get("state"), Code: "the code", Cookie: cookie, Client: Client{Browser: "Firefox", Address: home}}
}

func (s *scene) finish(back Callback, want error) SignedIn {
	s.t.Helper()
	in, signUp, err := s.Finish(s.t.Context(), back)
	if !errors.Is(err, want) || err == nil && !in.Pending && s.find(in.Token) == nil || signUp != "" {
		s.t.Errorf("%+v, %q, %v, want %v", in, signUp, err, want)
	}
	return in
}

func TestOIDC_SignsAMemberIn(t *testing.T) {
	s, c := withCompany(t)
	back := s.start(c, false)
	if c.Asked.Get("redirect_uri") != s.OIDC.Redirect || c.Asked.Get("client_id") != "annals" ||
		len(c.Asked.Get("nonce")) != len(newToken()) || len(c.Asked.Get("state")) != len(newToken()) {
		t.Errorf("asked %v", c.Asked)
	}
	planted := s.session(uuid.New(), "")
	back.Former, back.Issuer = planted, c.URL
	in := s.finish(back, nil)
	states, err := s.States(t.Context(), s.ana)
	runtest.Must(t, err)
	got := states[s.ana]
	if in.Person != s.ana || s.find(planted) != nil || !s.Verified(got, anasMail) || got.Accounts != 1 {
		t.Errorf("%+v, state %+v", in, got)
	}
	// From now on the account is the link, whatever its address.
	c.Claims = map[string]any{"email": "other@acme.example", "email_verified": false}
	if in := s.finish(s.start(c, false), nil); in.Person != s.ana {
		t.Errorf("%+v", in)
	}
	// Who gets the address later does not get the person.
	c.Claims = map[string]any{"sub": "another"}
	s.finish(s.start(c, false), ErrLinked)
	c.Claims = nil
	s.guests[s.ana] = true
	s.finish(s.start(c, false), ErrUninvited)
}

func TestOIDC_Refuses(t *testing.T) {
	for name, r := range map[string]struct {
		claims map[string]any
		change func(*scene, *oidctest.Company, *Callback)
		want   error
	}{
		"a wrong state":          {nil, func(_ *scene, _ *oidctest.Company, b *Callback) { b.State = newToken() }, ErrAttempt},
		"no state":               {nil, func(_ *scene, _ *oidctest.Company, b *Callback) { b.State = "" }, ErrAttempt},
		"no cookie":              {nil, func(_ *scene, _ *oidctest.Company, b *Callback) { b.Cookie = "" }, ErrAttempt},
		"a damaged cookie":       {nil, func(_ *scene, _ *oidctest.Company, b *Callback) { b.Cookie += "AA" }, ErrAttempt},
		"another id":             {nil, func(_ *scene, _ *oidctest.Company, b *Callback) { b.Cookie = uuid.NewString() + b.Cookie[36:] }, ErrAttempt},
		"a late answer":          {nil, func(s *scene, _ *oidctest.Company, _ *Callback) { s.pass(AttemptLife) }, ErrAttempt},
		"another attempt's":      {nil, func(s *scene, c *oidctest.Company, b *Callback) { b.Cookie = s.start(c, false).Cookie }, ErrAttempt},
		"the verifier of others": {nil, func(s *scene, c *oidctest.Company, _ *Callback) { s.start(c, false) }, ErrProvider},
		"a wrong code":           {nil, func(_ *scene, _ *oidctest.Company, b *Callback) { b.Code = "x" }, ErrProvider},
		"an answer of others":    {nil, func(_ *scene, _ *oidctest.Company, b *Callback) { b.Issuer = "https://other.example" }, ErrProvider},
		"a provider that fails":  {nil, func(_ *scene, c *oidctest.Company, _ *Callback) { c.Down = true }, ErrProvider},
		"a wrong nonce":          {map[string]any{"nonce": newToken()}, nil, ErrProvider},
		"no nonce":               {map[string]any{"nonce": nil}, nil, ErrProvider},
		"a wrong issuer":         {map[string]any{"iss": "https://other.example"}, nil, ErrProvider},
		"a wrong audience":       {map[string]any{"aud": "other"}, nil, ErrProvider},
		"an expired token":       {map[string]any{"exp": 1}, nil, ErrProvider},
		"no subject":             {map[string]any{"sub": nil}, nil, ErrProvider},
		"an unverified address":  {map[string]any{"email_verified": false}, nil, ErrUnverified},
		"a silent provider":      {map[string]any{"email_verified": nil}, nil, ErrUnverified},
		"a strange answer":       {map[string]any{"email_verified": 1}, nil, ErrUnverified},
		"no address":             {map[string]any{"email": nil}, nil, ErrUnverified},
		"a stranger":             {map[string]any{"email": "bo@acme.example"}, nil, ErrUninvited},
		"who is no member":       {nil, func(s *scene, _ *oidctest.Company, _ *Callback) { s.guests[s.ana] = true }, ErrUninvited},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := withCompany(t)
			back := s.start(c, false)
			c.Claims = r.claims
			if r.change != nil {
				r.change(s, c, &back)
			}
			_ = s.finish(back, r.want)
		})
	}
}

// A token that another key signed is refused, though the provider hands it out.
func TestOIDC_ForeignKey(t *testing.T) {
	s, c := withCompany(t)
	s.finish(s.start(c, false), nil) // reads the keys
	signed := c.Key
	foreign, err := rsa.GenerateKey(rand.Reader, 2048)
	runtest.Must(t, err)
	c.Key = foreign
	c.Published = signed
	s.finish(s.start(c, false), ErrProvider)
}

func TestOIDC_AnswerThatIsSentAgain(t *testing.T) {
	s, c := withCompany(t)
	back := s.start(c, false)
	s.finish(back, nil)
	s.finish(back, ErrAttempt)
	s.pass(AttemptLife)
	runtest.Must(t, s.Tidy(t.Context()))
	s.finish(back, ErrAttempt)
}

func TestOIDC_ProviderThatVerifiesNothing(t *testing.T) {
	s, c := withCompany(t)
	s.OIDC.TrustEmail = true
	c.Claims = map[string]any{"email_verified": false}
	s.finish(s.start(c, false), ErrUnverified)
	c.Claims = map[string]any{"email_verified": nil}
	s.finish(s.start(c, false), nil)
	s, c = withCompany(t)
	c.Claims = map[string]any{"email_verified": "true"}
	s.finish(s.start(c, false), nil)
}

func TestOIDC_SecondFactor(t *testing.T) {
	s, c := withCompany(t)
	s.finish(s.start(c, false), nil)
	s.enrolledBy()
	for _, r := range []struct {
		methods []string
		pending bool
	}{{nil, true}, {[]string{"pwd"}, true}, {[]string{"otp"}, true}, {[]string{"pwd", "otp"}, false}, {[]string{"mfa"}, false}} {
		c.Claims = map[string]any{"amr": r.methods}
		in := s.finish(s.start(c, false), nil)
		if in.Pending != r.pending || !in.Pending && !s.find(in.Token).SecondFactor {
			t.Errorf("%v: %+v", r.methods, in)
		}
	}
}

// Somebody else may have used the link that an Admin sent for an address, and wait for its owner.
func TestOIDC_EndsWhatNobodyProved(t *testing.T) {
	s, c := withCompany(t)
	s.enrolled()
	s.unproved()
	thief := s.session(s.ana, "")
	in := s.finish(s.start(c, false), nil)
	if in.Pending || s.find(thief) != nil {
		t.Errorf("%+v, the session of another lives: %+v", in, s.find(thief))
	}
	s.enters(anasMail, anas, home, ErrRefused)
	// Who proved to own the address keeps the password.
	s, c = withCompany(t)
	_, err := s.SetPassword(t.Context(), s.linkFor(Owner), Attempt{Password: anas})
	runtest.Must(t, err)
	s.finish(s.start(c, false), nil)
	s.enters(anasMail, anas, home, nil)
}

func TestOIDC_SignsUp(t *testing.T) {
	s, c := withCompany(t)
	c.Claims = map[string]any{"email": "new@other.example", "sub": "new"}
	_, token, err := s.Finish(t.Context(), s.start(c, true))
	runtest.Must(t, err)
	if l, found, err := s.Link(t.Context(), token); !found || err != nil || l.Purpose != SignUp || l.Email != "new@other.example" {
		t.Errorf("link %+v, %v", l, err)
	}
	c.Claims = map[string]any{"email": "new@other.example", "sub": "new", "email_verified": false}
	s.finish(s.start(c, true), ErrUnverified)
	c.Claims = nil
	s.finish(s.start(c, true), nil) // a member is signed in
}

// Who has nothing but an offer comes in by a verified address, and may have an organization of the own as well.
func TestOIDC_OnlyAnOffer(t *testing.T) {
	s, c := withCompany(t)
	delete(s.people, anasMail)
	s.finish(s.start(c, false), ErrUninvited)
	s.offered[anasMail] = true
	c.Claims = map[string]any{"email_verified": false}
	s.finish(s.start(c, false), ErrUnverified)
	c.Claims = nil
	if _, token, err := s.Finish(t.Context(), s.start(c, true)); err != nil || token == "" {
		t.Errorf("an offer keeps somebody from an organization of the own: %v", err)
	}
	if in := s.finish(s.start(c, false), nil); in.Person != s.people[anasMail] {
		t.Errorf("%+v", in)
	}
}

func TestOIDC_ServiceStartsWithoutTheProvider(t *testing.T) {
	s, c := withCompany(t)
	c.Down = true
	if _, _, err := s.Start(t.Context(), false); !errors.Is(err, ErrProvider) {
		t.Errorf("%v, want that the provider failed", err)
	}
	c.Down = false
	s.finish(s.start(c, false), nil)
}

func TestOIDC_CookieHidesTheVerifier(t *testing.T) {
	s, c := withCompany(t)
	back := s.start(c, false)
	if raw, err := base64.RawURLEncoding.DecodeString(back.Cookie[36+17:]); err == nil && json.Valid(raw) {
		t.Errorf("the cookie is clear: %s", raw)
	}
	if len(back.Cookie) > 3000 {
		t.Error("the cookie is too long for browsers")
	}
}

// Any page can send its visitors to the address of the callback. Without the attempt of that browser nothing counts, so
// that nobody else of their network is kept out; what fails after a good attempt counts, and not for passwords.
func TestOIDC_CountsAfterAGoodAttempt(t *testing.T) {
	s, c := withCompany(t)
	s.AddressFailures = 2
	s.cheap().password().unproved()
	good := s.start(c, false)
	for range 3 {
		s.finish(Callback{State: "x", Code: "y", Client: good.Client}, ErrAttempt)
		s.finish(Callback{State: "x", Code: "y", Cookie: good.Cookie, Client: good.Client}, ErrAttempt)
	}
	s.finish(good, nil)
	for range 3 {
		s.finish(good, ErrAttempt) // was finished
	}
	late := s.start(c, false)
	s.pass(AttemptLife)
	for range 3 {
		s.finish(late, ErrAttempt)
	}
	for range 2 {
		bad := s.start(c, false)
		bad.Code = "x"
		s.finish(bad, ErrProvider)
	}
	good = s.start(c, false)
	if _, _, err := s.Finish(t.Context(), good); !errors.As(err, new(*ThrottledError)) {
		t.Errorf("%v, want to be throttled", err)
	}
	s.enters(anasMail, anas, home, ErrRefused) // the account ended the password: nobody had proved the address
	good.Client.Address = away
	own := s.finish(good, nil) // a throttled attempt is not spent
	good = s.start(c, false)
	good.Client.Known = own.Known
	s.finish(good, nil)
}

// queryOf is the query of an address.
func queryOf(t *testing.T, address string) url.Values {
	t.Helper()
	u, err := url.Parse(address)
	runtest.Must(t, err)
	return u.Query()
}
