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
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
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
		ApproveGrant(context.Context, commands.Call, organization.GrantApproved) error
		RevokeGrant(context.Context, commands.Call, organization.GrantRevoked) error
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
