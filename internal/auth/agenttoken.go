package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/tokens"
)

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
