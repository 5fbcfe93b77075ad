package auth

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/tokens"
)

// Keys finds who a credential is of, in the state of the newest applied event.
type Keys interface {
	Agents
	// KeyByHash finds the live key of a kind by the SHA-256 of its clear value. ok is false for a
	// key that is unknown, expired or revoked.
	KeyByHash(ctx context.Context, kind Kind, hash [32]byte) (h Holder, ok bool, err error)
	// ProjectNamed finds the project of an organization that a slug names, also an archived one.
	ProjectNamed(ctx context.Context, organizationID uuid.UUID, slug string) (n Named, ok bool, err error)
}

// Holder is the owner of a key.
type Holder struct {
	Principal
	// Archived reports that the key's project is archived.
	Archived bool
	// Preparing reports that parts of the organization are still being created.
	Preparing bool
}

// Named is a project that a call names in addition to its key, with the caps of the project.
type Named struct {
	Project         Project
	IngestionCap    *int64
	CreditCapTenths *int64
	Archived        bool
}

// Authenticator applies the rules of authentication, from the header to the principal.
type Authenticator struct {
	keys   Keys
	agents AgentTokens
}

// NewAuthenticator makes an authenticator over keys. It refuses tokens of agents.
func NewAuthenticator(keys Keys) *Authenticator { return &Authenticator{keys: keys} }

// WithAgents makes an authenticator that also takes tokens of agents.
func (a *Authenticator) WithAgents(agents AgentTokens) *Authenticator {
	return &Authenticator{a.keys, agents}
}

// Authenticate returns the caller of a route, as Table.Find returned it.
//
// The fault is missing-api-key, malformed-api-key or unauthorized (401), organization-not-ready
// (503), project-archived (403), or service-unavailable (503) if the key could not be looked up; that of an agent
// token also one of the project or the scope. An open route gives a zero principal. The principal of a project that is
// known comes with the fault, for the request log.
func (a *Authenticator) Authenticate(ctx context.Context, route Route, header http.Header) (Principal, error) {
	if route.Open {
		return Principal{}, nil
	}
	value, err := bearer(header)
	if err != nil {
		return Principal{}, err
	}
	kind, ok := kindOf(value)
	switch {
	case !ok:
		return Principal{}, fault.New(fault.Unauthenticated, fault.CodeMalformedAPIKey,
			"the bearer value is not a recognized key: keys start with %s or %s", secret.ProjectKeyPrefix, secret.ManagementKeyPrefix)
	case kind == AgentToken && !route.Takes(AgentToken):
		return Principal{}, fault.New(fault.Unauthenticated, fault.CodeMalformedAPIKey,
			"the bearer value is an agent token, and this route accepts keys only")
	case kind == AgentToken:
		return a.agent(ctx, route, header, value)
	case !route.Takes(kind):
		return Principal{}, fault.New(fault.Unauthenticated, fault.CodeUnauthorized, "this route does not accept a %s", kind)
	}
	return a.lookup(ctx, kind, value)
}

// AuthenticateEvent returns the caller of a webhook, by the token in the URL. A wrong id and a wrong token
// are one not-found, each after one look-up by the hash of the token. It also returns the principal of an
// archived project.
//
// Its other faults are organization-not-ready and service-unavailable.
func (a *Authenticator) AuthenticateEvent(ctx context.Context, webhookID, token string) (Principal, error) {
	h, ok, err := a.keys.KeyByHash(ctx, WebhookToken, secret.Hash(token))
	switch {
	case err != nil:
		unavailable := fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the webhook could not be looked up; send the event again")
		return Principal{}, fmt.Errorf("%w: %w", unavailable, err)
	case !ok || subtle.ConstantTimeCompare([]byte(h.Webhook.ID), []byte(webhookID)) != 1:
		return Principal{}, fault.New(fault.NotFound, fault.CodeNotFound, "there is no webhook of this id and token")
	case h.Preparing:
		return Principal{}, fault.New(fault.Unavailable, fault.CodeOrganizationNotReady,
			"the organization of this webhook is still being prepared; send the event again")
	}
	return h.Principal, nil
}

func (a *Authenticator) lookup(ctx context.Context, kind Kind, value string) (Principal, error) {
	// Look up the key by its hash: the duration of a lookup then reveals nothing about a key with
	// a similar hash.
	h, ok, err := a.keys.KeyByHash(ctx, kind, secret.Hash(value))
	switch {
	case err != nil:
		unavailable := fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the key could not be looked up; send the request again")
		return Principal{}, fmt.Errorf("%w: %w", unavailable, err)
	case !ok:
		return Principal{}, fault.New(fault.Unauthenticated, fault.CodeUnauthorized, "the key is unknown, expired or revoked")
	case h.Preparing:
		return Principal{}, fault.New(fault.Unavailable, fault.CodeOrganizationNotReady,
			"the organization of this key is still being prepared; send the request again")
	case h.Archived:
		return h.Principal, fault.New(fault.Forbidden, fault.CodeProjectArchived, "the project of this key is archived")
	}
	return h.Principal, nil
}

// bearer reads the value of "Authorization: Bearer <value>"; the scheme is read without regard to
// case.
func bearer(header http.Header) (string, error) {
	values := header.Values("Authorization")
	if len(values) > 1 {
		return "", fault.New(fault.Unauthenticated, fault.CodeMalformedAPIKey, "there is more than one Authorization header")
	}
	var scheme, value string
	if len(values) == 1 {
		scheme, value, _ = strings.Cut(strings.Trim(values[0], " \t"), " ")
		value = strings.Trim(value, " \t")
	}
	switch {
	case scheme == "":
		return "", fault.New(fault.Unauthenticated, fault.CodeMissingAPIKey, "send the key as Authorization: Bearer <key>")
	case !strings.EqualFold(scheme, "Bearer"), strings.ContainsAny(value, " \t"):
		return "", fault.New(fault.Unauthenticated, fault.CodeMalformedAPIKey,
			"the Authorization header does not read Bearer <key>")
	case value == "":
		return "", fault.New(fault.Unauthenticated, fault.CodeMissingAPIKey,
			"the Authorization header is Bearer without a key")
	}
	return value, nil
}

// kindOf distinguishes credentials: keys by their prefix, agent tokens by their three parts. A
// well-formed key is any value with the prefix.
func kindOf(value string) (Kind, bool) {
	switch {
	case strings.HasPrefix(value, secret.ProjectKeyPrefix):
		return ProjectKey, true
	case strings.HasPrefix(value, secret.ManagementKeyPrefix):
		return ManagementKey, true
	case IsAgentToken(value):
		return AgentToken, true
	default:
		return "", false
	}
}

// IsAgentToken reports whether a bearer value has the form of an agent token: three parts of
// base64url with dots between.
func IsAgentToken(value string) bool {
	parts := strings.Split(value, ".")
	if len(parts) != 3 {
		return false
	}
	return !slices.ContainsFunc(parts, func(p string) bool {
		return p == "" || strings.Trim(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != ""
	})
}

// CarriesAgentToken reports whether the request's bearer value has the form of an agent token. If
// so, a 401 reports a bad token.
func CarriesAgentToken(header http.Header) bool {
	value, err := bearer(header)
	if err != nil {
		return false
	}
	kind, ok := kindOf(value)
	return ok && kind == AgentToken
}

// projectParam is the parameter of a query that names a project by its slug.
const projectParam = "project"

// SelectProject applies the rules of ?project= to a caller that Authenticate found. On every route,
// a project key may name only its own project, and an agent token that of its header. On a route that
// needs a project, a management key names it, and the principal gets that project and its caps. An
// empty value counts as none.
//
// The fault is project-mismatch, project-required or invalid-request (400), not-found (404),
// project-archived (403), or service-unavailable (503) if the project could not be looked up.
func (a *Authenticator) SelectProject(
	ctx context.Context, route Route, query url.Values, p Principal,
) (Principal, error) {
	if route.Unknown {
		return p, nil
	}
	var named []string
	for _, slug := range query[projectParam] {
		if slug != "" {
			named = append(named, slug)
		}
	}
	switch {
	case p.Kind == ProjectKey, p.Kind == AgentToken:
		for _, slug := range named {
			if slug != p.Project.Slug {
				return Principal{}, fault.New(fault.Invalid, fault.CodeProjectMismatch,
					"project names another project than that of the %s", p.Kind)
			}
		}
		return p, nil
	case p.Kind != ManagementKey || !route.ProjectQuery:
		return p, nil
	case len(named) == 0:
		return Principal{}, fault.New(fault.Invalid, fault.CodeProjectRequired,
			"with a management key this route needs ?project=<slug>")
	case len(named) > 1:
		return Principal{}, fault.New(fault.Invalid, fault.CodeInvalidRequest, "project is given more than once")
	}
	n, found, err := a.named(ctx, p, named[0])
	switch {
	case err != nil:
		unavailable := fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the project could not be looked up; send the request again")
		return Principal{}, fmt.Errorf("%w: %w", unavailable, err)
	case !found:
		return Principal{}, fault.New(fault.NotFound, fault.CodeNotFound, "the organization has no project of this slug")
	case n.Archived:
		return Principal{}, fault.New(fault.Forbidden, fault.CodeProjectArchived, "the project is archived")
	}
	p.Project, p.Limits.IngestionCap, p.Limits.CreditCapTenths = n.Project, n.IngestionCap, n.CreditCapTenths
	return p, nil
}

// named finds a project of the caller's organization. It does not look up a value that cannot be a
// slug: the database rejects U+0000.
func (a *Authenticator) named(ctx context.Context, p Principal, slug string) (Named, bool, error) {
	if strings.Trim(slug, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return Named{}, false, nil
	}
	return a.keys.ProjectNamed(ctx, p.OrganizationID, slug)
}

// HeaderProjectSlug names the project of a call with an agent token.
const HeaderProjectSlug = "X-Service-Project"

// AccessTokenType is the type of an agent's access token in its header (RFC 9068).
const AccessTokenType = "at+jwt"

// AgentClaims are the content of an agent token. The subject is the person, the client id the registration.
type AgentClaims struct {
	jwt.RegisteredClaims

	ClientID     string    `json:"client_id"`
	ClientName   string    `json:"client_name,omitempty"`
	Actor        Actor     `json:"act"`
	Organization uuid.UUID `json:"org"`
	Scope        string    `json:"scope"`
}

// Actor is who acts for the subject of a token.
type Actor struct {
	Subject string `json:"sub"`
}

const agentIDPrefix = "agent_reg_"

// AgentID is the id of a registration as clients see it.
func AgentID(id uuid.UUID) string { return agentIDPrefix + strings.ReplaceAll(id.String(), "-", "") }

// ParseAgentID is the inverse of AgentID.
func ParseAgentID(text string) (uuid.UUID, bool) {
	hex, is := strings.CutPrefix(text, agentIDPrefix)
	id, err := uuid.Parse(hex)
	return id, is && err == nil && AgentID(id) == text
}

// agentPrefixLength is how much of the id of a registration is shown as the prefix of its key.
const agentPrefixLength = 18

// TokenKeys verify tokens that the service signed: tokens.Keys. The error is tokens.ErrInvalid, or that of a look-up.
type TokenKeys interface {
	Verify(ctx context.Context, token, typ, issuer, audience string, claims jwt.Claims) error
}

// AgentTokens verifies tokens of agents. Without Keys, every one is invalid.
type AgentTokens struct {
	Keys TokenKeys
	URLs URLs
}

// agent returns the principal of an agent token, with its project. The fault is unauthorized (401),
// organization-not-ready or service-unavailable (503), insufficient-scope or project-archived (403), project-required
// or invalid-request (400), or project-not-found (404). With a fault of the project or later, the principal comes with
// what is known, for the request log.
func (a *Authenticator) agent(ctx context.Context, route Route, header http.Header, value string) (Principal, error) {
	h, claims, err := a.verify(ctx, value)
	if err != nil {
		return Principal{}, err
	}
	id := AgentID(h.ID)
	p := Principal{
		Kind: AgentToken, KeyID: h.ID, KeyName: "agent:" + id, KeyPrefix: id[:agentPrefixLength],
		OrganizationID: h.Organization, Limits: h.Limits,
	}
	if claims.ClientName != "" {
		p.KeyName = "agent:" + claims.ClientName
	}
	if route.Unknown {
		return p, nil
	}
	n, err := a.projectOf(ctx, h, header)
	if err != nil {
		return p, err
	}
	p.Project, p.Limits.IngestionCap, p.Limits.CreditCapTenths = n.Project, n.IngestionCap, n.CreditCapTenths
	allowed := Allowed(ParseScopes(claims.Scope), h.In(n.Project.ID))
	switch {
	case n.Archived:
		return p, fault.New(fault.Forbidden, fault.CodeProjectArchived, "the project is archived")
	case !slices.Contains(allowed, route.Agent):
		return p, fault.New(fault.Forbidden, fault.CodeInsufficientScope,
			"this route needs the scope %s, in a project in which the person who approved the agent may do that", route.Agent)
	}
	return p, nil
}

// verify returns the agent of a valid token.
func (a *Authenticator) verify(ctx context.Context, value string) (h AgentHolder, claims AgentClaims, err error) {
	invalid := fault.New(fault.Unauthenticated, fault.CodeUnauthorized, "the agent token is invalid or expired")
	if a.agents.Keys == nil {
		return h, claims, invalid
	}
	unavailable := fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
		"the agent token could not be checked; send the request again")
	err = a.agents.Keys.Verify(ctx, value, AccessTokenType, a.agents.URLs.Auth, a.agents.URLs.API+Prefix, &claims)
	if errors.Is(err, tokens.ErrInvalid) {
		return h, claims, invalid
	}
	if err != nil {
		return h, claims, fmt.Errorf("%w: %w", unavailable, err)
	}
	id, is := ParseAgentID(claims.ClientID)
	if !is || claims.Actor.Subject != claims.ClientID {
		return h, claims, invalid
	}
	h, ok, err := a.keys.Agent(ctx, id)
	if f, is := errors.AsType[*fault.Error](err); is {
		return h, claims, f
	}
	switch {
	case err != nil:
		return h, claims, fmt.Errorf("%w: %w", unavailable, err)
	case !ok, h.Stopped, h.Organization != claims.Organization, h.Person.String() != claims.Subject:
		return h, claims, invalid
	case h.Preparing:
		return h, claims, fault.New(fault.Unavailable, fault.CodeOrganizationNotReady,
			"the organization of this agent is still being prepared; send the request again")
	}
	return h, claims, nil
}

// projectOf finds the project of a call: the one that the header names, or the only live one that the agent may open.
func (a *Authenticator) projectOf(ctx context.Context, h AgentHolder, header http.Header) (n Named, err error) {
	slugs := slices.DeleteFunc(slices.Clone(header.Values(HeaderProjectSlug)), func(s string) bool { return s == "" })
	switch {
	case len(slugs) > 1:
		return n, fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"the header %s is given more than once", HeaderProjectSlug)
	case len(slugs) == 0 && len(h.Projects) == 1:
		return h.Projects[0], nil
	case len(slugs) == 0 && len(h.Projects) > 1:
		return n, fault.New(fault.Invalid, fault.CodeProjectRequired,
			"the agent may open several projects: name one with the header %s: <slug>", HeaderProjectSlug)
	}
	found := false
	if len(slugs) == 1 {
		n, found, err = a.named(ctx, Principal{OrganizationID: h.Organization}, slugs[0])
	}
	switch {
	case err != nil:
		unavailable := fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the project could not be looked up; send the request again")
		return Named{}, fmt.Errorf("%w: %w", unavailable, err)
	case !found || h.In(n.Project.ID) == "":
		return Named{}, fault.New(fault.NotFound, fault.CodeProjectNotFound,
			"there is no such project that the agent may open")
	}
	return n, nil
}
