package agents

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/ratelimit"
)

const serviceAuth = "service_auth"

type attempt struct {
	VerificationURI string    `json:"verification_uri"`
	ExpiresAt       time.Time `json:"expires_at"`
}

type registered struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Scopes struct {
		PostClaim []auth.Scope `json:"post_claim"`
	} `json:"scopes"`
	Claim struct {
		Token     string    `json:"token"`
		ExpiresAt time.Time `json:"expires_at"`
		URL       string    `json:"url"`
		Attempt   attempt   `json:"attempt"`
	} `json:"claim"`
}

// identity registers an agent, or refreshes its assertion. For an address that nobody has, the answer is the same.
func (s *Service) identity(r *web.Request, in request) (any, error) {
	switch in.Type {
	case serviceAuth:
	case "refresh":
		return s.refresh(r.Context(), in.RefreshToken)
	case "anonymous":
		return nil, refuse(http.StatusForbidden, "anonymous_registration_disabled",
			"a person has to approve the agent: register with the type service_auth")
	case "identity_assertion":
		return nil, refuse(http.StatusBadRequest, "unsupported_identity_type", "register with the type service_auth")
	default:
		return nil, invalidRequest("type is service_auth or refresh")
	}
	if !person.ValidEmail(in.LoginHint) {
		return nil, refuse(http.StatusBadRequest, "invalid_login_hint", "login_hint is no e-mail address")
	}
	scopes := []auth.Scope{auth.Read, auth.Write}
	if strings.TrimSpace(in.Scope) != "" {
		scopes = auth.ParseScopes(in.Scope)
	}
	if len(scopes) == 0 || !validName(in.ClientName) {
		return nil, invalidRequest(
			"scope is memory:read, memory:write or both; client_name has at most 80 characters, all printable")
	}
	hint := s.hintOf(in.LoginHint)
	address := r.Caller().String()
	if err := s.limit(r.Context(), s.networkOf(address), hint); err != nil {
		return nil, err
	}
	return s.register(r.Context(), in.ClientName, scopes, hint, address)
}

// validName refuses what a page does not show as it is: controls, and marks that hide text or turn its direction.
func validName(name string) bool {
	hidden := func(c rune) bool { return !unicode.IsPrint(c) }
	return utf8.RuneCountInString(name) <= maxName && !strings.ContainsFunc(name, hidden)
}

func tooFast(retry time.Duration, description string) *Error {
	limited := refuse(http.StatusTooManyRequests, "rate_limit_exceeded", description)
	limited.RetryAfter = max(1, int(math.Ceil(retry.Seconds())))
	return limited
}

func (s *Service) register(
	ctx context.Context, name string, scopes []auth.Scope, hint []byte, address string,
) (out registered, err error) {
	id, now := uuid.New(), s.now()
	token, hash := draw(claimPrefix)
	out.ID, out.Type, out.Scopes.PostClaim = auth.AgentID(id), serviceAuth, scopes
	out.Claim.Token, out.Claim.ExpiresAt, out.Claim.URL = token, now.Add(claimLife), s.URLs.Auth+"/agent/identity/claim"
	err = pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `insert into ops.agent_registrations
				(id, claim_hash, hint, client_name, scopes, address, created_at, ends_at, network)
				values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			id, hash, hint, name, auth.JoinScopes(scopes), address, now, out.Claim.ExpiresAt, s.networkOf(address)); err != nil {
			return err
		}
		out.Claim.Attempt, err = s.newAttempt(ctx, tx, id, now)
		return err
	})
	return out, err
}

func (s *Service) newAttempt(ctx context.Context, tx pgx.Tx, id uuid.UUID, now time.Time) (a attempt, err error) {
	token, hash := draw(linkPrefix)
	a = attempt{s.URLs.Console + "/agents/claim?token=" + token, now.Add(attemptLife)}
	_, err = tx.Exec(ctx, `insert into ops.agent_attempts (hash, registration_id, ends_at) values ($1, $2, $3)`,
		hash, id, a.ExpiresAt)
	return a, err
}

// registration is a row of an agent that registered.
type registration struct {
	ID           uuid.UUID
	Hint         []byte
	ClientName   string
	Scopes       string
	Address      string
	CreatedAt    time.Time
	EndsAt       time.Time
	Organization *uuid.UUID
	Person       *uuid.UUID
	Project      *uuid.UUID
	Denied       bool
	TriedAt      *time.Time
	ClaimedAt    *time.Time
}

const selectRegistrations = `select r.id, r.hint, r.client_name, r.scopes, r.address, r.created_at, r.ends_at,
	r.organization_id, r.person_id, r.project_id, r.denied, r.tried_at, r.claimed_at from ops.agent_registrations r `

// claimed finds the registration of a claim token, and locks it. It refuses one that can be claimed no more.
func (s *Service) claimed(ctx context.Context, tx pgx.Tx, token string) (reg registration, err error) {
	rows, err := tx.Query(ctx, selectRegistrations+`where r.claim_hash = $1 for update`, hashOf(token))
	if err == nil {
		reg, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[registration])
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		err = refuse(http.StatusUnauthorized, "invalid_claim_token", "there is no such claim: register again")
	case err != nil:
	case reg.ClaimedAt != nil:
		err = refuse(http.StatusConflict, "already_claimed", "the claim is complete")
	case reg.Denied:
		err = refuse(http.StatusForbidden, "claim_denied", "the person denied the agent")
	case !s.now().Before(reg.EndsAt):
		err = refuse(http.StatusGone, "claim_expired", "the claim has expired: register again")
	}
	return reg, err
}

type reattempted struct {
	ID      string  `json:"id"`
	Type    string  `json:"type"`
	Attempt attempt `json:"attempt"`
}

// attempt makes another link for a registration.
func (s *Service) attempt(r *web.Request, in request) (out any, err error) {
	if in.Type != serviceAuth || in.ClaimToken == "" {
		return nil, invalidRequest("want the type service_auth and a claim_token")
	}
	ctx, now := r.Context(), s.now()
	err = pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		reg, err := s.claimed(ctx, tx, in.ClaimToken)
		if err != nil {
			return err
		}
		if !hmac.Equal(reg.Hint, s.hintOf(in.LoginHint)) {
			return refuse(http.StatusBadRequest, "invalid_login_hint", "login_hint is not that of the registration")
		}
		if _, err := tx.Exec(ctx, `delete from ops.agent_attempts where registration_id = $1 and (ends_at <= $2 or wrong >= $3)`,
			reg.ID, now, maxWrong); err != nil {
			return err
		}
		var live int
		var first *time.Time
		if err := tx.QueryRow(ctx, `select count(*), min(ends_at) from ops.agent_attempts where registration_id = $1`, reg.ID).
			Scan(&live, &first); err != nil {
			return err
		}
		if live >= maxAttempts {
			limited := tooFast(first.Sub(now), "three links are open: use one of them")
			limited.Code = "too_many_attempts"
			return limited
		}
		a, err := s.newAttempt(ctx, tx, reg.ID, now)
		out = reattempted{auth.AgentID(reg.ID), serviceAuth, a}
		return err
	})
	return out, err
}

const (
	// Registrations of one network address and for one address of mail, in an hour.
	registrationsOfCaller = 20
	registrationsOfHint   = 10
	// registrationsOfAll are those of all network addresses in an hour, since one attacker may have many. A part of it,
	// and of those for an address of mail, is kept for network addresses that registered before (ratelimit.Standing).
	registrationsOfAll = 1000
	// registeringSpan is the time in which registrations are counted.
	registeringSpan = time.Hour
	// rememberedAgents is how many registrations of a network address show its standing: the newest.
	rememberedAgents = 200
)

// networkOf is the keyed hash of a network address.
func (s *Service) networkOf(address string) []byte { return s.keyed("network of an agent", address) }

// limit bounds the registrations of a network address, for an address of mail, and of all of them together.
func (s *Service) limit(ctx context.Context, network, hint []byte) error {
	return s.limitBy(ctx, network, hint, func(ctx context.Context) ([]ratelimit.Standing, error) {
		return s.standings(ctx, network, hint)
	})
}

func (s *Service) limitBy(
	ctx context.Context, network, hint []byte, standings func(context.Context) ([]ratelimit.Standing, error),
) error {
	retry, ok, err := s.registering.AllowAll(ctx, []ratelimit.Cap{
		{ID: uuid.UUID(network[:16]), Limit: registrationsOfCaller},
		{ID: uuid.UUID(hint[:16]), Limit: registrationsOfHint, Reserved: true},
		{ID: uuid.Max, Limit: registrationsOfAll, Reserved: true},
	}, standings)
	if err == nil && !ok {
		err = tooFast(retry, "too many registrations")
	}
	return err
}

// standings returns what is known of the agents of a network address at each cap: for its own, of those for an address
// of mail, and of all of them.
func (s *Service) standings(ctx context.Context, network, hint []byte) ([]ratelimit.Standing, error) {
	own, mine, all := ratelimit.Newcomer, ratelimit.Newcomer, ratelimit.Newcomer
	err := s.DB.QueryRow(ctx, `with registered as (select hint, case when claimed_at is not null then $4::int
				when created_at <= $3 then $5::int else $6::int end as standing
			from ops.agent_registrations where network = $1 order by created_at desc limit $7)
		select coalesce(max(standing) filter (where hint = $2), $6), coalesce(max(standing), $6) from registered`,
		network, hint, s.now().Add(-registeringSpan), int(ratelimit.Trusted), int(ratelimit.Returning),
		int(ratelimit.Newcomer), rememberedAgents).Scan(&mine, &all)
	if err != nil {
		return nil, fmt.Errorf("find the standing of a network address: %w", err)
	}
	return []ratelimit.Standing{own, mine, all}, nil
}
