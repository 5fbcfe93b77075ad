// Package agents is how agents register, and how people let them in.
//
// An agent registers for an address and gets a claim token and a link. The person of the address opens the link, signed
// in, and approves: that is an event of the organization, and shows a code. The agent that knows claim token and code
// gets an assertion and a refresh token, and exchanges the assertion for access tokens of the API (auth.AgentClaims).
// Until a person decides, a registration is rows of schema ops that end.
package agents

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/console/authserver"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/ratelimit"
	"github.com/annals-project/annals/internal/sealedtables"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/projections/access"
)

const (
	claimLife     = 24 * time.Hour
	attemptLife   = 10 * time.Minute
	assertionLife = time.Hour
	refreshLife   = 30 * 24 * time.Hour
	tokenLife     = 15 * time.Minute
	// repeatable is how long a spent refresh token is answered with its successor.
	repeatable = 2 * time.Minute

	maxAttempts = 3
	maxWrong    = 5
	codePause   = 2 * time.Second
	maxName     = 80
	// claimsAtOnce is how many codes are checked at once.
	claimsAtOnce = 4

	assertionType = "oauth-id-jag+jwt"
	claimPrefix   = "clm_"
	linkPrefix    = "cvt_"
	refreshPrefix = "art_"
)

// Config is what a Service needs.
type Config struct {
	DB      *pgxpool.Pool
	Sealer  *secret.Sealer
	HashKey []byte
	URLs    auth.URLs
	Keys    interface {
		auth.TokenKeys
		Sign(ctx context.Context, typ string, claims jwt.Claims) (string, error)
	}
	Access interface {
		auth.Agents
		Memberships(ctx context.Context, person uuid.UUID) (access.Person, bool, error)
		Projects(ctx context.Context, organization uuid.UUID) ([]access.Project, error)
		Agents(ctx context.Context, organization, member uuid.UUID) ([]access.Agent, error)
		EndedAgents(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error)
	}
	Commands interface {
		ApproveAgent(ctx context.Context, call engine.Call, a organization.AgentApproved) error
		DenyAgent(ctx context.Context, call engine.Call, organization, agent uuid.UUID) error
		RevokeAgent(ctx context.Context, call engine.Call, organization, agent, of uuid.UUID) error
		StopAgent(ctx context.Context, call engine.Call, organization, agent uuid.UUID) error
	}
	// Connections are what people let programs do by OAuth.
	Connections interface {
		Grants(ctx context.Context, person uuid.UUID) ([]authserver.Approved, error)
		RevokeGrant(ctx context.Context, call engine.Call, person, id uuid.UUID) (found bool, err error)
	}
	// Hold keeps the session in which a person decides until a transaction ends, as signin.Service.Hold; nil asks nobody.
	Hold func(ctx context.Context, tx pgx.Tx, session uuid.UUID) (live bool, err error)
	// Verified reports whether an address is known to be that of a person.
	Verified func(ctx context.Context, person uuid.UUID, email string) (bool, error)
	Logger   *slog.Logger
	Now      func() time.Time
}

// Service registers agents. Use New.
type Service struct {
	Config

	registering *ratelimit.Windows
	claims      *semaphore.Weighted
}

// New makes a service.
func New(c Config) *Service {
	return &Service{
		Config: c, registering: ratelimit.New(registeringSpan, c.Now), claims: semaphore.NewWeighted(claimsAtOnce),
	}
}

// Tables are those that a backup holds.
func Tables() []sealedtables.Table {
	return []sealedtables.Table{
		{Key: "agentRegistrations", Name: "ops.agent_registrations"},
		{Key: "agentRefreshTokens", Name: "ops.agent_refresh_tokens"},
		{Key: "agentEndings", Name: "ops.agent_endings"},
	}
}

// now is the time at the precision of the tables.
func (s *Service) now() time.Time { return s.Now().UTC().Truncate(time.Microsecond) }

// hintOf is the keyed hash of an address, under which a registration is found to be for a person.
func (s *Service) hintOf(email string) []byte {
	return s.keyed("agent registration", person.NormalEmail(email))
}

// keyed is the keyed hash of a value of a kind.
func (s *Service) keyed(kind, value string) []byte {
	mac := hmac.New(sha256.New, s.HashKey)
	mac.Write([]byte(kind + "\x00" + value))
	return mac.Sum(nil)
}

// draw draws a token with a prefix.
func draw(prefix string) (token string, hash []byte) {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	token = prefix + base64.RawURLEncoding.EncodeToString(random)
	return token, hashOf(token)
}

func hashOf(token string) []byte {
	hash := secret.Hash(token)
	return hash[:]
}

// callOf is the call of a command by an agent itself.
func (s *Service) callOf(agent uuid.UUID) engine.Call {
	return engine.Call{Principal: auth.Principal{Kind: auth.AgentToken, KeyID: agent}, ReceivedAt: s.now()}
}

// Error is what an agent reads of a refusal.
type Error = authserver.Error

func refuse(status int, code, description string) *Error {
	return &Error{Status: status, Code: code, Description: description}
}

func invalidRequest(description string) *Error {
	return refuse(http.StatusBadRequest, "invalid_request", description)
}

// request is the body of every endpoint.
type request struct {
	Type         string `json:"type"`
	LoginHint    string `json:"login_hint"`
	ClientName   string `json:"client_name"`
	Scope        string `json:"scope"`
	RefreshToken string `json:"refresh_token"`
	ClaimToken   string `json:"claim_token"`
	UserCode     string `json:"user_code"`
}

// endpoint serves JSON to a program.
func (s *Service) endpoint(do func(*web.Request, request) (any, error)) func(*web.Request) error {
	return func(r *web.Request) error {
		var in request
		var out any
		err := json.NewDecoder(r.Body).Decode(&in)
		if err != nil {
			err = invalidRequest("the body is no JSON object of at most 64 KiB with texts as values")
		} else {
			out, err = do(r, in)
		}
		if err != nil {
			return s.refuse(r, err)
		}
		return write(r, http.StatusOK, out)
	}
}

// refuse answers an agent that is refused.
func (s *Service) refuse(r *web.Request, err error) error {
	refused := s.refusal(r, err)
	return write(r, refused.Status, refused)
}

func write(r *web.Request, status int, out any) error {
	body, err := json.Marshal(out)
	if err != nil {
		return err
	}
	h := r.Writer().Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "application/json")
	r.Writer().WriteHeader(status)
	_, _ = r.Writer().Write(append(body, '\n')) // a client that left reads no more
	return nil
}

func (s *Service) refusal(r *web.Request, err error) *Error {
	refused, is := errors.AsType[*Error](err)
	if !is {
		f := httpx.Fault(err)
		refused = refuse(httpx.Status(f.Kind), "server_error", "the request failed: quote its X-Request-Id to support")
		switch {
		case f.Kind == fault.Unavailable || f.Kind == fault.Timeout:
			refused.Code, refused.Description, refused.RetryAfter = "temporarily_unavailable", "send the request again", 2
		case refused.Status < http.StatusInternalServerError: // of the body
			refused.Code, refused.Description = "invalid_request", f.Msg
		default:
			s.Logger.ErrorContext(r.Context(), "registration of an agent failed", "requestId", r.ID(), "err", err)
		}
	}
	if refused.RetryAfter > 0 {
		r.Writer().Header().Set("Retry-After", strconv.Itoa(refused.RetryAfter))
	}
	return refused
}
