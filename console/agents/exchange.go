package agents

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/console/authserver"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/tokens"
)

// Exchange makes an access token of the API for an assertion, which may be used again until it expires. The token has
// the scopes that were approved and asked for, and that the person's best role allows. What the agent did wrong is an
// *Error: invalid_grant, invalid_target or invalid_scope.
func (s *Service) Exchange(
	ctx context.Context, assertion, resource, scope string,
) (out authserver.TokenResponse, err error) {
	id, err := s.asserted(ctx, assertion)
	if err != nil {
		return out, err
	}
	base := strings.TrimSuffix(resource, "/")
	if api := s.URLs.API + auth.Prefix; resource != "" && base != api && base != s.URLs.API {
		return out, refuse(http.StatusBadRequest, "invalid_target", "the resource is "+api)
	}
	if is, err := s.allowed(ctx, id); err != nil || !is {
		return out, cmp.Or(err, invalidGrant())
	}
	h, ok, err := s.Access.Agent(ctx, id)
	if err != nil {
		return out, err
	}
	if !ok || h.Revoked {
		return out, invalidGrant()
	}
	scopes := h.Scopes
	if asked := auth.ParseScopes(scope); strings.TrimSpace(scope) != "" {
		scopes = slices.DeleteFunc(slices.Clone(scopes), func(a auth.Scope) bool { return !slices.Contains(asked, a) })
	}
	if scopes = auth.Allowed(scopes, h.Best()); len(scopes) == 0 {
		return out, refuse(http.StatusBadRequest, "invalid_scope", "the person who approved the agent may do none of this")
	}
	now := s.now()
	claims := auth.AgentClaims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: s.URLs.Auth, Audience: jwt.ClaimStrings{s.URLs.API + auth.Prefix}, Subject: h.Person.String(),
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(tokenLife)), ID: uuid.NewString(),
		},
		ClientID: auth.AgentID(id), Actor: auth.Actor{Subject: auth.AgentID(id)}, Organization: h.Organization,
		Scope: auth.JoinScopes(scopes),
	}
	// After a restore of an older backup the row may be missing. Its name is for people alone.
	err = s.DB.QueryRow(ctx, `update ops.agent_registrations set used_at = $2 where id = $1 returning client_name`, id, now).
		Scan(&claims.ClientName)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return out, err
	}
	out = authserver.TokenResponse{TokenType: "Bearer", ExpiresIn: int64(tokenLife.Seconds()), Scope: claims.Scope}
	out.AccessToken, err = s.Keys.Sign(ctx, auth.AccessTokenType, claims)
	return out, err
}

func invalidGrant() error {
	return refuse(http.StatusBadRequest, "invalid_grant", "the assertion is invalid, expired or revoked: refresh it")
}

// asserted returns the agent of a valid assertion.
func (s *Service) asserted(ctx context.Context, assertion string) (uuid.UUID, error) {
	var claims assertionClaims
	err := s.Keys.Verify(ctx, assertion, assertionType, s.URLs.Auth, s.URLs.Auth, &claims)
	id, is := auth.ParseAgentID(claims.Subject)
	if errors.Is(err, tokens.ErrInvalid) || err == nil && !is {
		return uuid.Nil, invalidGrant()
	}
	return id, err
}

// Revoke ends the registration of a refresh token, an assertion or an access token. An access token works on until it
// expires. known is false for a token that is none of an agent.
func (s *Service) Revoke(ctx context.Context, token string) (known bool, err error) {
	var id uuid.UUID
	if strings.HasPrefix(token, refreshPrefix) {
		err = s.DB.QueryRow(ctx, `select registration_id from ops.agent_refresh_tokens where hash = $1`, hashOf(token)).
			Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
	} else {
		var access auth.AgentClaims
		var assertion assertionClaims
		subject := ""
		if err = s.Keys.Verify(ctx, token, assertionType, s.URLs.Auth, s.URLs.Auth, &assertion); err == nil {
			subject = assertion.Subject
		} else if errors.Is(err, tokens.ErrInvalid) {
			err = s.Keys.Verify(ctx, token, auth.AccessTokenType, s.URLs.Auth, s.URLs.API+auth.Prefix, &access)
			subject = access.ClientID
		}
		var is bool
		id, is = auth.ParseAgentID(subject)
		if errors.Is(err, tokens.ErrInvalid) || err == nil && !is {
			return false, nil
		}
	}
	if err != nil {
		return false, err
	}
	return true, s.end(ctx, id)
}

// tidied is how many registrations are looked at in one statement.
const tidied = 1000

// Tidy deletes registrations that nobody claimed in time, refresh tokens that have expired, and what is left of agents
// that are revoked.
func (s *Service) Tidy(ctx context.Context) error {
	if err := s.recordEndings(ctx); err != nil {
		return err
	}
	now := s.now()
	for _, statement := range []string{
		`delete from ops.agent_registrations where claimed_at is null and ends_at <= $1`,
		`delete from ops.agent_refresh_tokens where ends_at <= $1`,
	} {
		if _, err := s.DB.Exec(ctx, statement, now); err != nil {
			return err
		}
	}
	for after := uuid.Nil; ; {
		rows, err := s.DB.Query(ctx, `select id from ops.agent_registrations where claimed_at is not null and id > $1
			order by id limit $2`, after, tidied)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil || len(ids) == 0 {
			return err
		}
		after = ids[len(ids)-1]
		gone, err := s.Access.EndedAgents(ctx, ids)
		if err != nil {
			return err
		}
		if _, err := s.DB.Exec(ctx, `delete from ops.agent_registrations where id = any($1)`, gone); err != nil {
			return err
		}
	}
}
