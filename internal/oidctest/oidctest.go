// Package oidctest is an OpenID Connect provider for tests.
package oidctest

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/runtest"
)

// The client of the provider, and the address of the person there.
const (
	ClientID     = "annals"
	ClientSecret = "client-secret"
	Email        = "ana@acme.example"
)

// Company is an OpenID Connect provider, with a person who is signed in there.
type Company struct {
	*httptest.Server
	// Key signs, Published is the one that it publishes.
	Key, Published *rsa.PrivateKey
	// Down makes all calls fail.
	Down bool
	// Claims are in the place of the usual ones; nil leaves one out.
	Claims map[string]any
	// Asked is the last request for a code.
	Asked url.Values
	Now   func() time.Time
}

// newKey makes a key once: that takes a while.
var newKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// NewCompany starts a provider.
func NewCompany(t *testing.T) *Company {
	t.Helper()
	key, err := newKey()
	runtest.Must(t, err)
	c := &Company{Key: key, Published: key, Now: time.Now, Claims: map[string]any{}}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(c.Close)
	return c
}

func (c *Company) serve(w http.ResponseWriter, r *http.Request) {
	answer := map[string]any{}
	switch {
	case c.Down:
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.URL.Path == "/.well-known/openid-configuration":
		answer = map[string]any{
			"issuer": c.URL, "authorization_endpoint": c.URL + "/authorize", "token_endpoint": c.URL + "/token",
			"jwks_uri": c.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256"},
		}
	case r.URL.Path == "/keys":
		answer["keys"] = []any{map[string]any{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "one", "n": text64(c.Published.N.Bytes()),
			"e": text64(binary.BigEndian.AppendUint32(nil, uint32(c.Published.E))),
		}}
	case r.URL.Path == "/token":
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		id, password, _ := r.BasicAuth()
		if text64(sum[:]) != c.Asked.Get("code_challenge") || c.Asked.Get("code_challenge_method") != "S256" ||
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
func (c *Company) token() string {
	all := map[string]any{
		"iss": c.URL, "aud": "annals", "sub": "ana", "exp": c.Now().Add(time.Hour).Unix(), "iat": c.Now().Unix(),
		"nonce": c.Asked.Get("nonce"), "email": Email, "email_verified": true,
	}
	maps.Copy(all, c.Claims)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	payload, _ := json.Marshal(all)
	signed := text64([]byte(`{"alg":"RS256","kid":"one"}`)) + "." + text64(payload)
	sum := sha256.Sum256([]byte(signed))
	signature, _ := rsa.SignPKCS1v15(rand.Reader, c.Key, crypto.SHA256, sum[:])
	return signed + "." + text64(signature)
}
