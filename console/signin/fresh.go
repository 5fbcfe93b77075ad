package signin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	// FreshLife is how long a proof is fresh.
	FreshLife = 10 * time.Minute
	// authTimeSlack is how far the clock of the provider may be off.
	authTimeSlack = time.Minute
)

// What may be wrong with a proof.
var (
	// ErrProof means that the session alone does not suffice.
	ErrProof = errors.New("confirm that it is you first")
	// ErrOtherAccount is for a proof with the account of somebody else, or with one that nobody linked.
	ErrOtherAccount = errors.New("this account at the provider is not linked to you: choose your own there")
)

// Fresh reports whether the person of a session proved to be that person in the last FreshLife: by signing in, or by
// Prove or StartProof since. What gives a new way to sign in needs it, so that a session that somebody left
// open does not suffice.
func (s *Service) Fresh(in Session) bool {
	return s.now().Sub(in.ProvedAt) < FreshLife
}

// Prove makes the proof of a session fresh, by a code of the second factor or, if code is "", by the password. It
// hashes in the slots of the organization that the session shows. Its errors are ErrRefused, ErrCode and
// *ThrottledError.
func (s *Service) Prove(ctx context.Context, in Session, organization uuid.UUID, password, code string) error {
	if code != "" {
		return s.withCode(ctx, in.Person, code, func(tx pgx.Tx) error { return s.prove(ctx, tx, in) })
	}
	return s.guardedPassword(ctx, in.Person, organization, func(h hasher) error {
		stored, err := s.passwordOf(ctx, in.Person)
		if err != nil {
			return err
		}
		matches, err := h.matches(ctx, password[:min(len(password), 4*MaxPassword)], stored.Hash)
		if err == nil && !matches {
			err = ErrRefused
		}
		if err != nil {
			return err
		}
		return s.prove(ctx, s.DB, in)
	})
}

// prove records that the person of a session proved to be that person now.
func (s *Service) prove(ctx context.Context, on querier, in Session) error {
	_, err := exec(ctx, on, `update ops.signin_sessions set proved_at = $3 where id = $1 and person_id = $2`,
		in.ID, in.Person, s.now())
	return err
}

// StartProof begins a proof of a session at the provider, which asks the person again. It returns what Start returns,
// and Finish ends it. Its error is ErrProvider.
func (s *Service) StartProof(ctx context.Context, in Session) (redirect, cookie string, err error) {
	return s.begun(ctx, attempt{Proof: in.ID})
}

// finishProof ends a proof at the provider. The session must be that of the attempt, the account one of its person, and
// the person must have signed in there since the attempt began.
func (s *Service) finishProof(ctx context.Context, a attempt, back Callback) (SignedIn, error) {
	c, err := s.exchange(ctx, a, back)
	if err != nil {
		return SignedIn{}, err
	}
	at := time.Unix(c.AuthTime, 0)
	if began := a.Until.Add(-AttemptLife); c.AuthTime == 0 || at.Before(began.Truncate(time.Second).Add(-authTimeSlack)) ||
		at.After(s.now().Add(authTimeSlack)) {
		return SignedIn{}, fmt.Errorf("%w: its auth_time %d is not within the attempt", ErrProvider, c.AuthTime)
	}
	in, found, err := s.Session(ctx, back.Former)
	if err != nil {
		return SignedIn{}, err
	}
	if !found || in.ID != a.Proof {
		return SignedIn{}, ErrAttempt
	}
	holder, linked, err := one(ctx, s.DB, pgx.RowTo[uuid.UUID], `select person_id from ops.signin_accounts
		where account = $1`, s.accountName(c.Subject))
	if err != nil {
		return SignedIn{}, err
	}
	if !linked || holder != in.Person {
		return SignedIn{}, ErrOtherAccount
	}
	return SignedIn{Person: in.Person, Proved: true}, s.prove(ctx, s.DB, in)
}
