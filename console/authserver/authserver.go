// Package authserver is the authorization server of the service's own people (OAuth 2.1): clients register, a person
// consents, and the client gets tokens for /mcp. It also dispatches what agents ask of the token endpoint.
//
// Its tokens are opaque, stored as hashes, and bound to a person, an organization, a client, a resource and scopes. The
// membership and the role of the person are read at each use. What a person decides is an event of the organization;
// the rest is rows of schema ops.
package authserver

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/lru"
	"github.com/annals-project/annals/internal/ratelimit"
	"github.com/annals-project/annals/internal/sealedtables"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/tokens"
	"github.com/annals-project/annals/projections/access"
)

// Config is what a Service needs. A limit of zero is the one that is named with it.
type Config struct {
	DB     *pgxpool.Pool
	Sealer *secret.Sealer
	// HashKey is the key of the hashes of network addresses.
	HashKey []byte
	URLs    auth.URLs
	Keys    *tokens.Keys
	Access  interface {
		Memberships(ctx context.Context, person uuid.UUID) (access.Person, bool, error)
		Projects(ctx context.Context, organization uuid.UUID) ([]access.Project, error)
		ProjectByID(ctx context.Context, id uuid.UUID) (access.Project, bool, error)
		LiveGrants(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error)
		EndedGrants(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error)
	}
	// Hold keeps the session in which a person consents until a transaction ends, as signin.Service.Hold; nil asks nobody.
	Hold     func(ctx context.Context, tx pgx.Tx, session uuid.UUID) (live bool, err error)
	Commands interface {
		ApproveGrant(context.Context, engine.Call, organization.GrantApproved) error
		RevokeGrant(context.Context, engine.Call, organization.GrantRevoked) error
	}
	// Removed returns those of some people who are certainly removed.
	Removed func(ctx context.Context, people []uuid.UUID) ([]uuid.UUID, error)
	// Exchange serves agents, nil for none.
	Exchange Exchange
	// Documents are the clients that are read from their address.
	Documents Documents
	// Fetch reads the documents of clients; nil reads public addresses alone.
	Fetch  http.RoundTripper
	Logger *slog.Logger
	Now    func() time.Time // nil: time.Now

	// Registrations of one network address in an hour (300), and its calls of the token endpoint in a minute (300).
	Registrations, Calls int
}

// Exchange is what the token endpoint has agents' registrations do.
type Exchange interface {
	// Exchange answers the grant type jwt-bearer. What the agent did wrong is an *Error.
	Exchange(ctx context.Context, assertion, resource, scope string) (TokenResponse, error)
	// Revoke revokes the registration that a token is of. known is false for a token that is none of its own.
	Revoke(ctx context.Context, token string) (known bool, err error)
}

// TokenResponse is the answer of the token endpoint.
type TokenResponse struct {
	AccessToken  string `json:"access_token"`
	TokenType    string `json:"token_type"`
	ExpiresIn    int64  `json:"expires_in"`
	RefreshToken string `json:"refresh_token,omitempty"`
	Scope        string `json:"scope"`
}

// Service is the authorization server.
type Service struct {
	Config

	registering, calling *ratelimit.Windows
	mu                   sync.Mutex
	fetched              *lru.Map[string, fetched]
}

// maxFetched is how many documents of clients are remembered.
const maxFetched = 1000

// New makes a service.
func New(c Config) *Service {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Fetch == nil {
		c.Fetch = publicTransport()
	}
	c.Registrations, c.Calls = cmp.Or(c.Registrations, 300), cmp.Or(c.Calls, 300)
	return &Service{
		Config: c, registering: ratelimit.New(registeringSpan, c.Now), calling: ratelimit.New(time.Minute, c.Now),
		fetched: lru.New[string, fetched](maxFetched),
	}
}

// now is the time at the precision of the tables.
func (s *Service) now() time.Time { return s.Now().UTC().Truncate(time.Microsecond) }

//go:embed *.html
var templates embed.FS

// Area returns the routes.
func (s *Service) Area() web.Area {
	routes := web.AnyOrigin(
		web.Route{Pattern: "GET /.well-known/oauth-authorization-server", Public: true, Serve: s.metadata},
		web.Route{Pattern: "GET /.well-known/jwks.json", Public: true, Serve: s.jwks},
		web.Route{Pattern: "GET /.well-known/{document...}", Public: true, Serve: noDocument},
		web.Route{Pattern: "POST /oauth2/register", Public: true, Refuse: s.refuse, Serve: s.endpoint(s.register)},
		web.Route{Pattern: "POST /oauth2/token", Public: true, Refuse: s.refuse, Serve: s.endpoint(s.token)},
		web.Route{Pattern: "POST /oauth2/revoke", Public: true, Refuse: s.refuse, Serve: s.endpoint(s.revoke)},
	)
	return web.Area{Templates: templates, Routes: append(routes,
		web.Route{Pattern: "GET /oauth2/authorize", Public: true, Serve: s.authorize},
		web.Route{Pattern: "GET /oauth2/consent", Needs: web.SignedIn, Leaves: true, Serve: s.consentPage},
		web.Route{Pattern: "POST /oauth2/consent", Needs: web.SignedIn, Leaves: true, Serve: s.consent},
	)}
}

// Tables are those that a backup holds. Codes and tokens are not among them: after a restore clients ask again.
func Tables() []sealedtables.Table {
	return []sealedtables.Table{
		{Key: "oauthClients", Name: "ops.oauth_clients"},
		{Key: "oauthGrants", Name: "ops.oauth_grants"},
		{Key: "oauthEndings", Name: "ops.oauth_endings"},
	}
}

// The grant types of the token endpoint.
const (
	grantCode    = "authorization_code"
	grantRefresh = "refresh_token"
	grantAgent   = "urn:ietf:params:oauth:grant-type:jwt-bearer"
)

// Metadata is the document of the authorization server (RFC 8414).
type Metadata struct {
	Issuer                string    `json:"issuer"`
	AuthorizationEndpoint string    `json:"authorization_endpoint"`
	TokenEndpoint         string    `json:"token_endpoint"`
	RegistrationEndpoint  string    `json:"registration_endpoint"`
	RevocationEndpoint    string    `json:"revocation_endpoint"`
	JWKSURI               string    `json:"jwks_uri"`
	Scopes                []string  `json:"scopes_supported"`
	ResponseTypes         []string  `json:"response_types_supported"`
	ResponseModes         []string  `json:"response_modes_supported"`
	GrantTypes            []string  `json:"grant_types_supported"`
	TokenAuthMethods      []string  `json:"token_endpoint_auth_methods_supported"`
	RevocationAuthMethods []string  `json:"revocation_endpoint_auth_methods_supported"`
	CodeChallengeMethods  []string  `json:"code_challenge_methods_supported"`
	ClientIDDocuments     bool      `json:"client_id_metadata_document_supported,omitempty"`
	AuthorizationIssuer   bool      `json:"authorization_response_iss_parameter_supported"`
	ServiceDocumentation  string    `json:"service_documentation"`
	AgentAuth             AgentAuth `json:"agent_auth"`
}

// AgentAuth is where agents register.
type AgentAuth struct {
	Skill              string   `json:"skill"`
	IdentityEndpoint   string   `json:"identity_endpoint"`
	ClaimEndpoint      string   `json:"claim_endpoint"`
	RevocationEndpoint string   `json:"revocation_endpoint"`
	IdentityTypes      []string `json:"identity_types_supported"`
}

// Metadata returns the document under the public addresses.
func (s *Service) Metadata() Metadata {
	at, none := s.URLs.Auth, []string{"none"}
	return Metadata{
		Issuer: at, AuthorizationEndpoint: at + "/oauth2/authorize", TokenEndpoint: at + "/oauth2/token",
		RegistrationEndpoint: at + "/oauth2/register", RevocationEndpoint: at + "/oauth2/revoke",
		JWKSURI: at + "/.well-known/jwks.json", Scopes: append(auth.Scopes(), offline),
		ResponseTypes: []string{"code"}, ResponseModes: []string{"query"},
		GrantTypes:       []string{grantCode, grantRefresh, grantAgent},
		TokenAuthMethods: none, RevocationAuthMethods: none, CodeChallengeMethods: []string{"S256"},
		ClientIDDocuments: s.Documents.On, AuthorizationIssuer: true, ServiceDocumentation: s.URLs.API + "/auth.md",
		AgentAuth: AgentAuth{
			Skill: s.URLs.API + "/auth.md", IdentityEndpoint: at + "/agent/identity",
			ClaimEndpoint: at + "/agent/identity/claim", RevocationEndpoint: at + "/oauth2/revoke",
			IdentityTypes: []string{"service_auth"},
		},
	}
}

func (s *Service) metadata(r *web.Request) error { return document(r, s.Metadata()) }

func (s *Service) jwks(r *web.Request) error {
	set, err := s.Keys.Set(r.Context())
	if err != nil {
		return err
	}
	return document(r, set)
}

func document(r *web.Request, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	h := r.Writer().Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "public, max-age=300")
	_, _ = r.Writer().Write(text) // a client that left reads no more
	return nil
}

// noDocument answers well-known paths that clients try: a page in HTML would confuse them.
func noDocument(r *web.Request) error {
	http.NotFound(r.Writer(), r.Request)
	return nil
}

// Error is a refusal as OAuth has it (RFC 6749, section 5.2).
type Error struct {
	Status      int    `json:"-"` // 0 is 400
	Code        string `json:"error"`
	Description string `json:"error_description"`
	// RetryAfter is in seconds, 0 for none.
	RetryAfter int `json:"retry_after,omitempty"`
}

// Error implements error.
func (e *Error) Error() string { return e.Code + ": " + e.Description }

// Codes of Error.
const (
	invalidRequest  = "invalid_request"
	invalidGrant    = "invalid_grant"
	invalidTarget   = "invalid_target"
	invalidScope    = "invalid_scope"
	invalidRedirect = "invalid_redirect_uri"
	invalidMetadata = "invalid_client_metadata"
	accessDenied    = "access_denied"
)

func refuse(code, format string, args ...any) *Error {
	return &Error{Code: code, Description: fmt.Sprintf(format, args...)}
}

// answer is what an endpoint answers: a status and a value, nil for an empty body.
type answer struct {
	status int
	value  any
}

// endpoint serves a program: its errors are JSON, and nothing is cached.
func (s *Service) endpoint(do func(*web.Request) (answer, error)) func(*web.Request) error {
	return func(r *web.Request) error {
		out, err := do(r)
		if err != nil {
			return s.refuse(r, err)
		}
		return out.write(r)
	}
}

// refuse answers a program that is refused.
func (s *Service) refuse(r *web.Request, err error) error { return s.refusal(r, err).write(r) }

func (out answer) write(r *web.Request) error {
	h := r.Writer().Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Pragma", "no-cache")
	if out.value == nil {
		r.Writer().WriteHeader(out.status)
		return nil
	}
	text, err := json.Marshal(out.value)
	if err != nil {
		return err
	}
	h.Set("Content-Type", "application/json")
	r.Writer().WriteHeader(out.status)
	_, _ = r.Writer().Write(text) // a client that left reads no more
	return nil
}

func (s *Service) refusal(r *web.Request, err error) answer {
	refused, is := errors.AsType[*Error](err)
	if !is {
		f := httpx.Fault(err)
		status := httpx.Status(f.Kind)
		refused = &Error{Status: status, Code: "server_error", Description: "nothing was decided: try again"}
		switch {
		case status == http.StatusServiceUnavailable:
			refused.Code, refused.RetryAfter = "temporarily_unavailable", 2
		case status < http.StatusInternalServerError: // of the body
			refused.Code, refused.Description = invalidRequest, f.Msg
		default:
			s.Logger.ErrorContext(r.Context(), "oauth failed", "requestId", r.ID(), "path", r.URL.Path, "err", err)
		}
	}
	if refused.RetryAfter > 0 {
		r.Writer().Header().Set("Retry-After", strconv.Itoa(refused.RetryAfter))
	}
	if refused.Status == 0 {
		refused.Status = http.StatusBadRequest
	}
	return answer{refused.Status, refused}
}

// limited counts a call of a network address.
func limited(r *web.Request, windows *ratelimit.Windows, limit int) error {
	var id uuid.UUID
	if caller := r.Caller(); caller.IsValid() {
		id = caller.As16()
	}
	if retry, ok := windows.Allow(id, limit); !ok {
		return tooMany("too many calls of this network address: wait", retry)
	}
	return nil
}

func tooMany(description string, retry time.Duration) *Error {
	return &Error{http.StatusTooManyRequests, "rate_limit_exceeded", description, int(retry/time.Second) + 1}
}

// parameters are those of a form or of a query. Each may be there once, and is text.
type parameters url.Values

func (p parameters) get(name string) string { return url.Values(p).Get(name) }

func (p parameters) has(name string) bool { return url.Values(p).Has(name) }

func (p parameters) check() error {
	for name, values := range p {
		if len(values) > 1 && name != "resource" {
			return refuse(invalidRequest, "%.40q is there more than once", name)
		}
		for _, value := range values {
			if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
				return refuse(invalidRequest, "%.40q is no text", name)
			}
		}
	}
	return nil
}

// formOf reads the form of a program: parameters of the URL do not count.
func formOf(r *web.Request) (parameters, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil ||
		kind != "application/x-www-form-urlencoded" {
		return nil, refuse(invalidRequest, "want a form: application/x-www-form-urlencoded")
	}
	if err := r.ParseForm(); err != nil {
		return nil, refuse(invalidRequest, "the form cannot be read")
	}
	form := parameters(r.PostForm)
	return form, form.check()
}
