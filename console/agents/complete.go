package agents

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/secret"
)

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
	rows, err := tx.Query(ctx, `select hash, seal_key, code from ops.agent_attempts
		where registration_id = $1 and ends_at > $2 and wrong < $3`, reg.ID, now, maxWrong)
	if err != nil {
		return err
	}
	open, err := pgx.CollectRows(rows, pgx.RowToStructByPos[link])
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
