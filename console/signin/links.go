package signin

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/secret"
)

// Purpose is what a one-time link is for.
type Purpose string

// The purposes. An owner link is the operator's: it verifies the address and ends the second factor, since nobody else
// may be able to. Invites and resets are an Admin's, who verifies no address. An invite works for who has no other way
// in, since an Admin of one organization must not take over the account of a member of another. A reset, as the
// owner's, also ends accounts at the provider. Verifications and sign-ups are mailed to the address that they verify; a
// sign-up has no person yet.
const (
	Owner        Purpose = "owner"
	Invite       Purpose = "invite"
	Reset        Purpose = "reset"
	Verification Purpose = "verification"
	SignUp       Purpose = "sign-up"
)

// Link is a one-time link.
type Link struct {
	Purpose Purpose
	// Person is zero for a sign-up.
	Person uuid.UUID
	// Email is the address that the link was made for.
	Email string
	// Organization is that of the Admin who made an invite or a reset, zero for others.
	Organization uuid.UUID
	ExpiresAt    time.Time
	// verified names the address that the use of the link verifies.
	verified []byte
}

// setsPassword reports whether the use of a link sets the password of its person.
func (l Link) setsPassword() bool {
	return l.Purpose == Owner || l.Purpose == Invite || l.Purpose == Reset
}

// NewLink makes a link and returns its token. The link of the same person and purpose before it works no more.
func (s *Service) NewLink(ctx context.Context, l Link) (token string, err error) {
	token = newToken()
	hash := hashToken(token)
	payload, err := s.Sealer.Seal(uuid.UUID(hash[:16]), l.Email)
	if err != nil {
		return "", err
	}
	if l.Purpose == Owner || l.Purpose == Verification {
		l.verified = s.addressName(l.Email)
	}
	life := s.LinkLife
	if l.Purpose == Invite {
		life = s.InviteLife
	}
	_, err = exec(ctx, s.DB, `insert into ops.signin_links
		(token, purpose, person_id, verified, payload_key, payload, expires_at, vouched)
		values ($1, $2, $3, $4, $5, $6, $7, $8)
		on conflict (person_id, purpose) do update set token = $1, verified = $4,
			payload_key = $5, payload = $6, expires_at = $7, vouched = $8`, hash, string(l.Purpose),
		known(l.Person), l.verified, payload.Key, payload.Data, s.now().Add(life), known(l.Organization))
	return token, err
}

// known is an id that is null if it is zero.
func known(id uuid.UUID) uuid.NullUUID { return uuid.NullUUID{UUID: id, Valid: id != uuid.Nil} }

// Link returns the link of a token and does not spend it.
func (s *Service) Link(ctx context.Context, token string) (Link, bool, error) {
	return s.link(ctx, s.DB, token, `select purpose, person_id, verified, payload_key, payload, expires_at, vouched
		from ops.signin_links where token = $1 and expires_at > $2`)
}

// spendLink returns the link of a token, which works no more.
func (s *Service) spendLink(ctx context.Context, tx pgx.Tx, token string) (Link, error) {
	l, found, err := s.link(ctx, tx, token, `delete from ops.signin_links where token = $1 and expires_at > $2
		returning purpose, person_id, verified, payload_key, payload, expires_at, vouched`)
	if err == nil && !found {
		err = ErrLink
	}
	return l, err
}

func (s *Service) link(ctx context.Context, on querier, token, sql string) (Link, bool, error) {
	hash := hashToken(token)
	return one(ctx, on, func(row pgx.CollectableRow) (l Link, err error) {
		var id, vouched uuid.NullUUID
		var email secret.Sealed
		err = row.Scan(&l.Purpose, &id, &l.verified, &email.Key, &email.Data, &l.ExpiresAt, &vouched)
		l.Person, l.Organization, l.ExpiresAt = id.UUID, vouched.UUID, l.ExpiresAt.UTC()
		if err == nil {
			l.Email, err = s.Sealer.Open(uuid.UUID(hash[:16]), email)
		}
		return l, err
	}, sql, hash, s.now())
}

// SetPassword spends the link of an owner, of an invitation or of a reset: it sets the password of the person, ends all
// sessions of the person, and begins one. Its errors are ErrLink, ErrPassword and *ThrottledError.
func (s *Service) SetPassword(ctx context.Context, token string, a Attempt) (in SignedIn, err error) {
	err = s.guardedFrom(ctx, ofNetwork, a.Client, func(h hasher) error {
		if link, _, err := s.Link(ctx, token); err != nil || !link.setsPassword() {
			return errors.Join(err, ErrLink)
		}
		hash, err := h.hash(ctx, a.Password)
		if err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
			link, err := s.spendLink(ctx, tx, token)
			if err == nil {
				err = s.prepare(ctx, tx, link)
			}
			if err == nil {
				in, err = s.enter(ctx, tx, link, hash, a)
			}
			return err
		})
	})
	if err == nil {
		s.Grants.Record(ctx, in.Person)
	}
	return in, err
}

// prepare ends what a link replaces besides the password.
func (s *Service) prepare(ctx context.Context, tx pgx.Tx, l Link) error {
	if l.Purpose == Invite {
		has, _, err := one(ctx, tx, pgx.RowTo[bool], `select exists (select from ops.signin_people where person_id = $1
			and password is not null) or exists (select from ops.signin_accounts where person_id = $1)`, l.Person)
		if err == nil && has {
			err = ErrLink
		}
		return err
	}
	err := forget(ctx, tx, l.Person, "ops.signin_accounts")
	if l.Purpose == Owner && err == nil {
		err = dropSecondFactor(ctx, tx, l.Person)
	}
	return err
}

// enter sets the password of the person of a link, and the address that is verified with it, if any. Who holds a link
// that an Admin made may be somebody else than who verified the address. Sessions and other links that set the password
// end, and a session begins.
func (s *Service) enter(ctx context.Context, tx pgx.Tx, l Link, hash string, a Attempt) (in SignedIn, err error) {
	in.Person = l.Person
	in.Pending, _, err = one(ctx, tx, pgx.RowTo[bool], `insert into ops.signin_people (person_id, password, verified, vouched)
		values ($1, $2, $3, $4) on conflict (person_id) do update set
			password = $2, generated = false, verified = $3, vouched = $4
		returning totp is not null`, l.Person, hash, l.verified, known(l.Organization))
	if err == nil {
		err = forget(ctx, tx, l.Person, "ops.signin_sessions", "ops.signin_browsers")
	}
	if err == nil {
		err = s.Grants.End(ctx, tx, l.Person)
	}
	if err == nil {
		_, err = exec(ctx, tx, `delete from ops.signin_links where person_id = $1 and purpose = any($2)`, l.Person,
			[]string{string(Owner), string(Invite), string(Reset)})
	}
	if err != nil {
		return SignedIn{}, err
	}
	return s.begin(ctx, tx, a.Client, a.Former, in, false)
}

// Verify spends a verification: the address that it was mailed to is verified. Its error is ErrLink.
func (s *Service) Verify(ctx context.Context, token string) (l Link, err error) {
	err = pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		if l, err = s.spendLink(ctx, tx, token); err == nil && l.Purpose != Verification {
			err = ErrLink
		}
		if err == nil {
			_, err = exec(ctx, tx, `insert into ops.signin_people (person_id, verified) values ($1, $2)
				on conflict (person_id) do update set verified = excluded.verified`, l.Person, l.verified)
		}
		return err
	})
	return l, err
}

// SignUp spends a sign-up: create registers the person of the address, which is verified then.
// Somebody who can sign in already is not let in by it. Its errors are ErrLink, ErrPassword, ErrKnown, and those of
// create.
func (s *Service) SignUp(
	ctx context.Context, token string, a Attempt, create func(ctx context.Context, email string) (uuid.UUID, error),
) (in SignedIn, err error) {
	err = s.guardedFrom(ctx, ofNetwork, a.Client, func(h hasher) error {
		link, _, err := s.Link(ctx, token)
		if err != nil || link.Purpose != SignUp {
			return errors.Join(err, ErrLink)
		}
		if is, err := s.Known(ctx, link.Email); err != nil || is {
			return errors.Join(err, ErrKnown)
		}
		hash, err := h.hash(ctx, a.Password)
		if err == nil {
			err = pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error { _, err := s.spendLink(ctx, tx, token); return err })
		}
		if err == nil {
			link.Person, err = create(ctx, link.Email)
		}
		if err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) (err error) {
			link.verified = s.addressName(link.Email)
			in, err = s.enter(ctx, tx, link, hash, a)
			return err
		})
	})
	return in, err
}

// Known reports whether there is a person with an address who is a member of an organization. Only who has proven to
// own the address may learn it.
func (s *Service) Known(ctx context.Context, email string) (bool, error) {
	id, found, err := s.People.FindPerson(ctx, email)
	if err != nil || !found {
		return false, err
	}
	return s.IsMember(ctx, id)
}
