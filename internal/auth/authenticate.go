package auth

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/secret"
)

// Keys finds who a key belongs to, in the state of the newest applied event.
type Keys interface {
	// KeyByHash finds the live key of a kind by the SHA-256 of its clear value. ok is false for a key that is unknown, expired or
	// revoked.
	KeyByHash(ctx context.Context, kind Kind, hash [32]byte) (h Holder, ok bool, err error)
	// ProjectNamed finds the project of an organization that a slug names, also an archived one.
	ProjectNamed(ctx context.Context, organizationID uuid.UUID, slug string) (n Named, ok bool, err error)
}

// Holder is who a key belongs to.
type Holder struct {
	Principal
	// Archived says that the key's project is archived.
	Archived bool
	// Preparing says that parts of the organization are still being made.
	Preparing bool
}

// Named is a project that a call names beside its key, with the caps of the project.
type Named struct {
	Project         Project
	IngestionCap    *int64
	CreditCapTenths *int64
	Archived        bool
}

// Authenticator applies the rules of authentication, from the header to the principal.
type Authenticator struct {
	keys  Keys
	table Table
}

// NewAuthenticator makes an authenticator over the table of every route.
func NewAuthenticator(keys Keys) *Authenticator {
	return &Authenticator{keys: keys, table: NewTable()}
}

// Authenticate says who calls a route, given by its method and template ("" for a path of no route).
//
// The fault is missing-api-key, malformed-api-key or unauthorized (401), organization-not-ready (503), project-archived (403), or
// service-unavailable (503) where the key could not be looked up. An open route gives a zero principal.
func (a *Authenticator) Authenticate(ctx context.Context, method, template string, header http.Header) (Principal, error) {
	route := a.table.Find(method, template)
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
		return Principal{}, fault.New(fault.Unauthenticated, fault.CodeUnauthorized, "the agent token is invalid or expired")
	case !route.Takes(kind):
		return Principal{}, fault.New(fault.Unauthenticated, fault.CodeUnauthorized, "this route does not accept a %s", kind)
	}
	return a.lookup(ctx, kind, value)
}

func (a *Authenticator) lookup(ctx context.Context, kind Kind, value string) (Principal, error) {
	// The key is found by its hash: what a lookup takes longer for tells nothing of a key that hashes to anything near.
	h, ok, err := a.keys.KeyByHash(ctx, kind, secret.Hash(value))
	switch {
	case err != nil:
		unavailable := fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "the key could not be looked up; send the request again")
		return Principal{}, fmt.Errorf("%w: %w", unavailable, err)
	case !ok:
		return Principal{}, fault.New(fault.Unauthenticated, fault.CodeUnauthorized, "the key is unknown, expired or revoked")
	case h.Preparing:
		return Principal{}, fault.New(fault.Unavailable, fault.CodeOrganizationNotReady, "the organization of this key is still being prepared; send the request again")
	case h.Archived:
		return Principal{}, fault.New(fault.Forbidden, fault.CodeProjectArchived, "the project of this key is archived")
	}
	return h.Principal, nil
}

// bearer reads the value of "Authorization: Bearer <value>"; the scheme is read without regard to case.
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
		return "", fault.New(fault.Unauthenticated, fault.CodeMalformedAPIKey, "the Authorization header does not read Bearer <key>")
	case value == "":
		return "", fault.New(fault.Unauthenticated, fault.CodeMissingAPIKey, "the Authorization header reads Bearer, with no key after it")
	}
	return value, nil
}

// kindOf tells credentials apart: keys by their prefix, agent tokens by their three parts. A well-formed key is any value with the prefix.
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

// IsAgentToken reports whether a bearer value has the form of an agent token: three parts of base64url with dots between.
func IsAgentToken(value string) bool {
	parts := strings.Split(value, ".")
	if len(parts) != 3 {
		return false
	}
	for _, p := range parts {
		if p == "" || strings.Trim(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			return false
		}
	}
	return true
}

// CarriesAgentToken reports whether the request's bearer value has the form of an agent token: a 401 then says that the token is bad.
func CarriesAgentToken(header http.Header) bool {
	value, err := bearer(header)
	if err != nil {
		return false
	}
	kind, ok := kindOf(value)
	return ok && kind == AgentToken
}
