package signin

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/runtest"
)

// company is an OpenID Connect provider, with a person who is signed in there.
type company struct {
	*httptest.Server
	// key signs, published is the one that it publishes.
	key, published *rsa.PrivateKey
	down           bool
	claims         map[string]any // in the place of the usual ones; nil leaves one out
	asked          url.Values     // the last request for a code
	now            func() time.Time
}

func newCompany(t *testing.T) *company {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	runtest.Must(t, err)
	c := &company{key: key, published: key, claims: map[string]any{}}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(c.Close)
	return c
}

func (c *company) serve(w http.ResponseWriter, r *http.Request) {
	answer := map[string]any{}
	switch {
	case c.down:
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.URL.Path == "/.well-known/openid-configuration":
		answer = map[string]any{
			"issuer": c.URL, "authorization_endpoint": c.URL + "/authorize", "token_endpoint": c.URL + "/token",
			"jwks_uri": c.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256"},
		}
	case r.URL.Path == "/keys":
		answer["keys"] = []any{map[string]any{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "one", "n": text64(c.published.N.Bytes()),
			"e": text64(binary.BigEndian.AppendUint32(nil, uint32(c.published.E))),
		}}
	case r.URL.Path == "/token":
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		id, password, _ := r.BasicAuth()
		if text64(sum[:]) != c.asked.Get("code_challenge") || c.asked.Get("code_challenge_method") != "S256" ||
			r.FormValue("code") != "the code" || id != "annals" || password != "client-secret" {
			w.WriteHeader(http.StatusBadRequest)
			answer["error"] = "invalid_grant"
			break
		}
		answer = map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": c.token()}
	default:
		w.WriteHeader(http.StatusNotFound)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func text64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// token is an ID token of Ana.
func (c *company) token() string {
	all := map[string]any{
		"iss": c.URL, "aud": "annals", "sub": "ana", "exp": c.now().Add(time.Hour).Unix(), "iat": c.now().Unix(),
		"nonce": c.asked.Get("nonce"), "email": anasMail, "email_verified": true,
	}
	maps.Copy(all, c.claims)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	payload, _ := json.Marshal(all)
	signed := text64([]byte(`{"alg":"RS256","kid":"one"}`)) + "." + text64(payload)
	sum := sha256.Sum256([]byte(signed))
	signature, _ := rsa.SignPKCS1v15(rand.Reader, c.key, crypto.SHA256, sum[:])
	return signed + "." + text64(signature)
}

func withCompany(t *testing.T) (*scene, *company) {
	t.Helper()
	c := newCompany(t)
	s := newScene(t, func(cfg *Config) {
		cfg.OIDC = Provider{
			Issuer: c.URL, ClientID: "annals", ClientSecret: "client-secret",
			Redirect: "https://console.example/sign-in/oidc/callback",
		}
	})
	c.now = func() time.Time { return s.clock }
	return s, c
}

// start begins a sign-in. The answer is the one that the provider gives.
func (s *scene) start(c *company, signUp bool) Callback {
	s.t.Helper()
	to, cookie, err := s.Start(s.t.Context(), signUp)
	runtest.Must(s.t, err)
	u, err := url.Parse(to)
	runtest.Must(s.t, err)
	c.asked = u.Query()
	return Callback{State: c.asked.Get("state"), Code: "the code", Cookie: cookie, Client: Client{"Firefox", home}}
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
	if c.asked.Get("redirect_uri") != s.OIDC.Redirect || c.asked.Get("client_id") != "annals" ||
		len(c.asked.Get("nonce")) != tokenLength || len(c.asked.Get("state")) != tokenLength {
		t.Errorf("asked %v", c.asked)
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
	c.claims = map[string]any{"email": "other@acme.example", "email_verified": false}
	if in := s.finish(s.start(c, false), nil); in.Person != s.ana {
		t.Errorf("%+v", in)
	}
	// Who gets the address later does not get the person: the first account keeps it, and this is a second one of hers.
	s.guests[s.ana] = true
	s.finish(s.start(c, false), ErrUninvited)
}

func TestOIDC_Refuses(t *testing.T) {
	for name, r := range map[string]struct {
		claims map[string]any
		change func(*scene, *company, *Callback)
		want   error
	}{
		"a wrong state":          {nil, func(_ *scene, _ *company, b *Callback) { b.State = newToken() }, ErrAttempt},
		"no state":               {nil, func(_ *scene, _ *company, b *Callback) { b.State = "" }, ErrAttempt},
		"no cookie":              {nil, func(_ *scene, _ *company, b *Callback) { b.Cookie = "" }, ErrAttempt},
		"a damaged cookie":       {nil, func(_ *scene, _ *company, b *Callback) { b.Cookie += "AA" }, ErrAttempt},
		"another id":             {nil, func(_ *scene, _ *company, b *Callback) { b.Cookie = uuid.NewString() + b.Cookie[36:] }, ErrAttempt},
		"a late answer":          {nil, func(s *scene, _ *company, _ *Callback) { s.pass(attemptLife) }, ErrAttempt},
		"another attempt's":      {nil, func(s *scene, c *company, b *Callback) { b.Cookie = s.start(c, false).Cookie }, ErrAttempt},
		"the verifier of others": {nil, func(s *scene, c *company, _ *Callback) { s.start(c, false) }, ErrProvider},
		"a wrong code":           {nil, func(_ *scene, _ *company, b *Callback) { b.Code = "x" }, ErrProvider},
		"an answer of others":    {nil, func(_ *scene, _ *company, b *Callback) { b.Issuer = "https://other.example" }, ErrProvider},
		"a provider that fails":  {nil, func(_ *scene, c *company, _ *Callback) { c.down = true }, ErrProvider},
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
		"who is no member":       {nil, func(s *scene, _ *company, _ *Callback) { s.guests[s.ana] = true }, ErrUninvited},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := withCompany(t)
			back := s.start(c, false)
			c.claims = r.claims
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
	signed := c.key
	foreign, err := rsa.GenerateKey(rand.Reader, 2048)
	runtest.Must(t, err)
	c.key = foreign
	c.published = signed
	s.finish(s.start(c, false), ErrProvider)
}

func TestOIDC_AnswerThatIsSentAgain(t *testing.T) {
	s, c := withCompany(t)
	back := s.start(c, false)
	s.finish(back, nil)
	s.finish(back, ErrAttempt)
	s.pass(attemptLife)
	runtest.Must(t, s.Tidy(t.Context()))
	s.finish(back, ErrAttempt)
}

func TestOIDC_ProviderThatVerifiesNothing(t *testing.T) {
	s, c := withCompany(t)
	s.OIDC.TrustEmail = true
	c.claims = map[string]any{"email_verified": false}
	s.finish(s.start(c, false), ErrUnverified)
	c.claims = map[string]any{"email_verified": nil}
	s.finish(s.start(c, false), nil)
	s, c = withCompany(t)
	c.claims = map[string]any{"email_verified": "true"}
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
		c.claims = map[string]any{"amr": r.methods}
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
	c.claims = map[string]any{"email": "new@other.example", "sub": "new"}
	_, token, err := s.Finish(t.Context(), s.start(c, true))
	runtest.Must(t, err)
	if l, found, err := s.Link(t.Context(), token); !found || err != nil || l.Purpose != SignUp || l.Email != "new@other.example" {
		t.Errorf("link %+v, %v", l, err)
	}
	c.claims = map[string]any{"email": "new@other.example", "sub": "new", "email_verified": false}
	s.finish(s.start(c, true), ErrUnverified)
	c.claims = nil
	s.finish(s.start(c, true), nil) // a member is signed in
}

func TestOIDC_ServiceStartsWithoutTheProvider(t *testing.T) {
	s, c := withCompany(t)
	c.down = true
	if _, _, err := s.Start(t.Context(), false); !errors.Is(err, ErrProvider) {
		t.Errorf("%v, want that the provider failed", err)
	}
	c.down = false
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
