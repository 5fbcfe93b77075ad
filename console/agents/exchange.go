package agents

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/console/authserver"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/statement"
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
	if err := s.RecordEndings(ctx, uuid.Nil); err != nil {
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
	const page = `select id from ops.agent_registrations where claimed_at is not null and id > $1 order by id limit $2`
	return statement.EachPage(ctx, s.DB, tidied, page, func(ids []uuid.UUID) error {
		gone, err := s.Access.EndedAgents(ctx, ids)
		if err == nil {
			_, err = s.DB.Exec(ctx, `delete from ops.agent_registrations where id = any($1)`, gone)
		}
		return err
	})
}

type issued struct {
	ID       string   `json:"id"`
	Type     string   `json:"type,omitempty"`
	Status   string   `json:"status,omitempty"`
	Identity identity `json:"identity"`
}

type identity struct {
	Assertion    string    `json:"assertion"`
	ExpiresAt    time.Time `json:"expires_at"`
	RefreshToken struct {
		Value     string    `json:"value"`
		ExpiresAt time.Time `json:"expires_at"`
	} `json:"refresh_token"`
}

// assertionClaims are the content of an assertion. The subject is the registration.
type assertionClaims struct {
	jwt.RegisteredClaims

	Email         string `json:"email"`
	EmailVerified bool   `json:"email_verified"`
}

// complete gives an agent its first assertion for the code that its person read to it. A refusal is stored too: it
// counts the wrong codes.
func (s *Service) complete(r *web.Request, in request) (any, error) {
	if in.ClaimToken == "" || in.UserCode == "" {
		return nil, invalidRequest("want a claim_token and a user_code")
	}
	ctx, now := r.Context(), s.now()
	// Its transaction reads with a second connection, so that too many at once could wait for each other.
	if err := s.claims.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer s.claims.Release(1)
	var out issued
	var refused *Error
	err := pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		reg, err := s.claimed(ctx, tx, in.ClaimToken)
		if err != nil {
			return err
		}
		if reg.TriedAt != nil && now.Sub(*reg.TriedAt) < codePause {
			return tooFast(codePause-now.Sub(*reg.TriedAt), "send a code at most every two seconds")
		}
		if _, err := tx.Exec(ctx, `update ops.agent_registrations set tried_at = $2 where id = $1`, reg.ID, now); err != nil {
			return err
		}
		err = s.checkCode(ctx, tx, reg, strings.TrimSpace(in.UserCode), now)
		if is := errors.As(err, &refused); is || err != nil {
			if is {
				return nil
			}
			return err
		}
		if _, err := tx.Exec(ctx, `delete from ops.agent_attempts where registration_id = $1`, reg.ID); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `update ops.agent_registrations set claimed_at = $2, address = '' where id = $1`,
			reg.ID, now); err != nil {
			return err
		}
		token, expires, err := s.newRefreshToken(ctx, tx, reg.ID, now)
		if err != nil {
			return err
		}
		out = issued{ID: auth.AgentID(reg.ID), Status: "claimed"}
		out.Identity.RefreshToken.Value, out.Identity.RefreshToken.ExpiresAt = token, expires
		return s.sign(ctx, reg.ID, &out.Identity)
	})
	if err == nil && refused != nil {
		err = refused
	}
	return out, err
}

// checkCode compares a code with those of the open links, and counts it if it is wrong.
func (s *Service) checkCode(ctx context.Context, tx pgx.Tx, reg registration, code string, now time.Time) error {
	type link struct {
		Hash    []byte
		SealKey *string
		Code    []byte
	}
	open, err := statement.All(ctx, tx, pgx.RowToStructByPos[link], `select hash, seal_key, code from ops.agent_attempts
		where registration_id = $1 and ends_at > $2 and wrong < $3`, reg.ID, now, maxWrong)
	if err != nil {
		return err
	}
	approved, right := false, false
	for _, l := range open {
		if l.SealKey == nil {
			continue
		}
		clear, err := s.Sealer.Open(reg.ID, secret.Sealed{Key: *l.SealKey, Data: l.Code})
		if err != nil {
			return err
		}
		approved = true
		right = subtle.ConstantTimeCompare([]byte(clear), []byte(code)) == 1 || right
	}
	switch {
	case len(open) == 0:
		return refuse(http.StatusGone, "user_code_expired", "no link is open: make another one at the claim endpoint")
	case !approved:
		return refuse(http.StatusConflict, "claim_not_confirmed", "the person has not approved yet: wait for the code")
	case !right:
		if _, err := tx.Exec(ctx, `update ops.agent_attempts set wrong = wrong + 1
			where registration_id = $1 and code is not null`, reg.ID); err != nil {
			return err
		}
		return refuse(http.StatusUnauthorized, "invalid_user_code", "the code is wrong: read it again")
	}
	h, ok, err := s.Access.Agent(ctx, reg.ID)
	if err == nil && (!ok || h.Revoked) {
		err = refuse(http.StatusGone, "claim_revoked", "the agent is revoked: register again")
	}
	return err
}

func (s *Service) newRefreshToken(
	ctx context.Context, tx pgx.Tx, id uuid.UUID, now time.Time,
) (token string, expires time.Time, err error) {
	token, hash := draw(refreshPrefix)
	expires = now.Add(refreshLife)
	_, err = tx.Exec(ctx, `insert into ops.agent_refresh_tokens (hash, registration_id, ends_at) values ($1, $2, $3)`,
		hash, id, expires)
	return token, expires, err
}

// sign adds an assertion to what an agent gets, if its person is a member.
func (s *Service) sign(ctx context.Context, id uuid.UUID, i *identity) error {
	h, ok, err := s.Access.Agent(ctx, id)
	if err != nil {
		return err
	}
	person, known, err := s.Access.Memberships(ctx, h.Person)
	if err != nil {
		return err
	}
	if !ok || !known || h.Revoked {
		return refuse(http.StatusUnauthorized, "invalid_refresh_token", "the agent is revoked: register again")
	}
	now := s.now()
	i.ExpiresAt = now.Add(assertionLife)
	i.Assertion, err = s.Keys.Sign(ctx, assertionType, assertionClaims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: s.URLs.Auth, Audience: jwt.ClaimStrings{s.URLs.Auth}, Subject: auth.AgentID(id), ID: uuid.NewString(),
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(i.ExpiresAt),
		},
		Email: person.Email, EmailVerified: true,
	})
	return err
}

var errFamily = errors.New("a spent refresh token came back")

// refresh gives an agent another assertion and refresh token for one that it has. The spent one is answered with its
// successor for a while, since an answer can be lost. After that it ends the registration: somebody has a copy.
func (s *Service) refresh(ctx context.Context, token string) (out issued, err error) {
	invalid := refuse(http.StatusUnauthorized, "invalid_refresh_token", "there is no such refresh token: register again")
	now := s.now()
	var id uuid.UUID
	// Before the token is spent, so that it works again once the organization requires no second factor.
	err = s.DB.QueryRow(ctx, `select registration_id from ops.agent_refresh_tokens where hash = $1`, hashOf(token)).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return out, invalid
	}
	if err != nil {
		return out, err
	}
	if is, err := s.allowed(ctx, id); err != nil || !is {
		return out, cmp.Or(err, error(invalid))
	}
	err = pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		var ends time.Time
		var spent *time.Time
		var sealKey *string
		var successor []byte
		err := tx.QueryRow(ctx, `select registration_id, ends_at, spent_at, seal_key, successor from ops.agent_refresh_tokens
			where hash = $1 for update`, hashOf(token)).Scan(&id, &ends, &spent, &sealKey, &successor)
		switch {
		case errors.Is(err, pgx.ErrNoRows), err == nil && !now.Before(ends):
			return invalid
		case err != nil:
			return err
		case spent != nil && now.Sub(*spent) >= repeatable:
			return errFamily
		}
		next, expires := "", ends
		if spent != nil {
			if next, err = s.Sealer.Open(id, secret.Sealed{Key: *sealKey, Data: successor}); err == nil {
				err = tx.QueryRow(ctx, `select ends_at from ops.agent_refresh_tokens where hash = $1`, hashOf(next)).Scan(&expires)
			}
		} else if next, expires, err = s.newRefreshToken(ctx, tx, id, now); err == nil {
			var sealed secret.Sealed
			if sealed, err = s.Sealer.Seal(id, next); err == nil {
				_, err = tx.Exec(ctx, `update ops.agent_refresh_tokens set spent_at = $2, seal_key = $3, successor = $4
					where hash = $1`, hashOf(token), now, sealed.Key, sealed.Data)
			}
		}
		if err != nil {
			return err
		}
		out = issued{ID: auth.AgentID(id), Type: "refresh"}
		out.Identity.RefreshToken.Value, out.Identity.RefreshToken.ExpiresAt = next, expires
		return nil
	})
	switch {
	case errors.Is(err, errFamily):
		if err = s.end(ctx, id); err == nil {
			err = invalid
		}
	case err == nil:
		// If this fails, the agent repeats its call, and is answered with the same refresh token.
		err = s.sign(ctx, id, &out.Identity)
	}
	return out, err
}

// end revokes a registration and deletes its refresh tokens.
func (s *Service) end(ctx context.Context, id uuid.UUID) error {
	h, ok, err := s.Access.Agent(ctx, id)
	if err == nil && ok {
		err = s.Commands.RevokeAgent(ctx, s.callOf(id), h.Organization, id, uuid.Nil)
	}
	if f, is := errors.AsType[*fault.Error](err); is && f.Kind == fault.NotFound {
		err = nil
	}
	if err == nil {
		_, err = s.DB.Exec(ctx, `delete from ops.agent_refresh_tokens where registration_id = $1`, id)
	}
	return err
}

// EndAll ends all agents of a person in a transaction: what is open of their claims, and their refresh tokens. An
// access token works on until it expires. RecordEndings writes that to the log.
func (s *Service) EndAll(ctx context.Context, tx pgx.Tx, person uuid.UUID) error {
	_, err := tx.Exec(ctx, `with ended as (delete from ops.agent_registrations where person_id = $1 and not denied
			returning id, person_id, organization_id)
		insert into ops.agent_endings (id, person_id, organization_id) select id, person_id, organization_id from ended
		on conflict do nothing`, person)
	if err != nil {
		return fmt.Errorf("end the agents of a person: %w", err)
	}
	return nil
}

// RecordEndings writes the ends of the agents of a person to the log, of all people for uuid.Nil. It may be repeated.
func (s *Service) RecordEndings(ctx context.Context, person uuid.UUID) error {
	return authserver.EachEnding(ctx, s.DB, "ops.agent_endings", person, func(e authserver.Ending) error {
		return s.Commands.RevokeAgent(ctx, s.callOf(e.ID), e.Organization, e.ID, uuid.Nil)
	})
}

// allowed reports whether an agent may get another token: it has not ended with all of its person and, if the
// organization requires a second factor, it was approved with one.
func (s *Service) allowed(ctx context.Context, id uuid.UUID) (bool, error) {
	var ended, second bool
	err := s.DB.QueryRow(ctx, `select exists (select from ops.agent_endings where id = $1),
		exists (select from ops.agent_registrations where id = $1 and second_factor)`, id).Scan(&ended, &second)
	if err != nil || ended || second {
		return !ended, err
	}
	h, ok, err := s.Access.Agent(ctx, id)
	if err != nil || !ok {
		return false, err
	}
	p, _, err := s.Access.Memberships(ctx, h.Person)
	return !authserver.RequiresFactor(p, h.Organization), err
}
