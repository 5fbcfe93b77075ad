package auth

import (
	"context"
	"crypto/subtle"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/secret"
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
