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

// The purposes. An owner link is the operator's: it proves the address and ends the second factor, since nobody else
// may be able to. Invites and resets are an Admin's, who proves no address: they end the former proofs, and belong to
// the organization of the Admin. An invite works for who has no other way in, since an Admin of one organization must
// not take over the account of a member of another. A reset, as the owner's, also ends accounts at the provider.
// Verifications, sign-ups and recoveries are mailed to the address that they prove; a sign-up has no person yet.
const (
	Owner        Purpose = "owner"
	Invite       Purpose = "invite"
	Reset        Purpose = "reset"
	Verification Purpose = "verification"
	SignUp       Purpose = "sign-up"
	Recovery     Purpose = "recovery"
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
	// verified names the address that the use of the link proves.
	verified []byte
}

// setsPassword reports whether the use of a link sets the password of its person.
func (l Link) setsPassword() bool {
	return l.Purpose == Owner || l.Purpose == Invite || l.Purpose == Reset || l.Purpose == Recovery
}

// NewLink makes a link and returns its token. The link of the same person, purpose and organization before it works no
// more.
func (s *Service) NewLink(ctx context.Context, l Link) (token string, err error) {
	token = newToken()
	hash := hashToken(token)
	payload, err := s.Sealer.Seal(uuid.UUID(hash[:16]), l.Email)
	if err != nil {
		return "", err
	}
	if l.Purpose == Owner || l.Purpose == Verification || l.Purpose == Recovery {
		l.verified = s.addressName(l.Email)
	}
	life := s.LinkLife
	if l.Purpose == Invite {
		life = s.InviteLife
	}
	_, err = exec(ctx, s.DB, `insert into ops.signin_links
		(token, purpose, person_id, verified, payload_key, payload, expires_at, organization_id)
		values ($1, $2, $3, $4, $5, $6, $7, $8)
		on conflict (person_id, purpose, organization_id) do update set token = $1, verified = $4,
			payload_key = $5, payload = $6, expires_at = $7`, hash, string(l.Purpose),
		known(l.Person), l.verified, payload.Key, payload.Data, s.now().Add(life), l.Organization)
	return token, err
}

// known is an id that is null if it is zero.
func known(id uuid.UUID) uuid.NullUUID { return uuid.NullUUID{UUID: id, Valid: id != uuid.Nil} }

// Link returns the link of a token and does not spend it.
func (s *Service) Link(ctx context.Context, token string) (Link, bool, error) {
	return s.link(ctx, s.DB, token, `select purpose, person_id, verified, payload_key, payload, expires_at, organization_id
		from ops.signin_links where token = $1 and expires_at > $2`)
}

// spendLink returns the link of a token, which works no more.
func (s *Service) spendLink(ctx context.Context, tx pgx.Tx, token string) (Link, error) {
	l, found, err := s.link(ctx, tx, token, `delete from ops.signin_links where token = $1 and expires_at > $2
		returning purpose, person_id, verified, payload_key, payload, expires_at, organization_id`)
	if err == nil && !found {
		err = ErrLink
	}
	return l, err
}

func (s *Service) link(ctx context.Context, on querier, token, sql string) (Link, bool, error) {
	hash := hashToken(token)
	return one(ctx, on, func(row pgx.CollectableRow) (l Link, err error) {
		var id uuid.NullUUID
		var email secret.Sealed
		err = row.Scan(&l.Purpose, &id, &l.verified, &email.Key, &email.Data, &l.ExpiresAt, &l.Organization)
		l.Person, l.ExpiresAt = id.UUID, l.ExpiresAt.UTC()
		if err == nil {
			l.Email, err = s.Sealer.Open(uuid.UUID(hash[:16]), email)
		}
		return l, err
	}, sql, hash, s.now())
}

// EndLinks ends the links of a person that Admins of an organization made.
func (s *Service) EndLinks(ctx context.Context, person, organization uuid.UUID) error {
	return endLinks(ctx, s.DB, person, organization)
}

func endLinks(ctx context.Context, on querier, person, organization uuid.UUID) error {
	_, err := exec(ctx, on, `delete from ops.signin_links where person_id = $1 and organization_id = $2
		and purpose = any($3)`, person, organization, []string{string(Invite), string(Reset)})
	return err
}

// SetPassword spends the link of an owner, of an invitation, of a reset or of a recovery: it sets the password of the
// person, ends all sessions of the person, and begins one. Its errors are ErrLink, ErrUnneeded, ErrPassword and
// *ThrottledError.
func (s *Service) SetPassword(ctx context.Context, token string, a Attempt) (SignedIn, error) {
	return s.setPassword(ctx, token, a, Link.setsPassword, func(context.Context) error { return nil })
}

// VerifyFirst spends the verification of a person without a proof as SetPassword does, since the proof ends the former
// password. change gives the person the address. Its errors are also those of change.
func (s *Service) VerifyFirst(
	ctx context.Context, token string, a Attempt, change func(context.Context) error,
) (SignedIn, error) {
	return s.setPassword(ctx, token, a, func(l Link) bool { return l.Purpose == Verification }, change)
}

func (s *Service) setPassword(
	ctx context.Context, token string, a Attempt, serves func(Link) bool, change func(context.Context) error,
) (in SignedIn, err error) {
	err = s.guardedFrom(ctx, ofNetwork, a.Client, func(h hasher) error {
		link, _, err := s.Link(ctx, token)
		if err != nil || !serves(link) {
			return errors.Join(err, ErrLink)
		}
		if link.Purpose == Recovery { // the address may be somebody else's by now
			if id, _, err := s.People.FindPerson(ctx, link.Email); err != nil || id != link.Person {
				return errors.Join(err, ErrLink)
			}
		}
		hash, err := h.hash(ctx, a.Password)
		if err == nil {
			err = change(ctx)
		}
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
func (s *Service) prepare(ctx context.Context, tx pgx.Tx, l Link) (err error) {
	switch l.Purpose {
	case Invite:
		has := false
		has, _, err = one(ctx, tx, pgx.RowTo[bool], `select exists (select from ops.signin_people where person_id = $1
			and password is not null) or exists (select from ops.signin_accounts where person_id = $1)`, l.Person)
		if err == nil && has {
			err = ErrUnneeded
		}
	case Reset:
		err = forget(ctx, tx, l.Person, "ops.signin_accounts")
	case Owner:
		if err = forget(ctx, tx, l.Person, "ops.signin_accounts"); err == nil {
			err = dropSecondFactor(ctx, tx, l.Person)
		}
	case Verification, SignUp, Recovery:
	}
	return err
}

// enter sets the password of the person of a link, and proves the address of the link. A link of an Admin proves none:
// who holds it may be somebody else than who proved addresses before, so that it opens the organization of the Admin
// alone. Sessions and other links that set the password end, but those of other organizations stay when an Admin's link
// is used. A session begins.
func (s *Service) enter(ctx context.Context, tx pgx.Tx, l Link, hash string, a Attempt) (in SignedIn, err error) {
	in.Person = l.Person
	if l.verified != nil {
		_, err = s.proveAddress(ctx, tx, l.Person, l.verified)
	} else {
		err = forget(ctx, tx, l.Person, "ops.signin_proofs")
	}
	if err == nil {
		in.Pending, _, err = one(ctx, tx, pgx.RowTo[bool], `insert into ops.signin_people as p (person_id, password, vouched)
			values ($1, $2, $3) on conflict (person_id) do update set
				password = $2, generated = false, vouched = coalesce($3, p.vouched)
			returning totp is not null`, l.Person, hash, known(l.Organization))
	}
	if err == nil {
		err = forget(ctx, tx, l.Person, "ops.signin_sessions", "ops.signin_browsers")
	}
	if err == nil {
		err = s.Grants.End(ctx, tx, l.Person)
	}
	switch {
	case err != nil:
	case l.Organization != uuid.Nil:
		err = endLinks(ctx, tx, l.Person, l.Organization)
	default:
		_, err = exec(ctx, tx, `delete from ops.signin_links where person_id = $1 and purpose = any($2)`, l.Person,
			[]string{string(Owner), string(Reset), string(Recovery)})
	}
	if err != nil {
		return SignedIn{}, err
	}
	return s.begin(ctx, tx, a.Client, a.Former, in, false)
}

// Verify spends a verification of a person with a proof: the address that it was mailed to is proved too. Its errors
// are ErrLink, and ErrUnproved for a person without one.
func (s *Service) Verify(ctx context.Context, token string) (l Link, err error) {
	err = pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		if l, err = s.spendLink(ctx, tx, token); err == nil && l.Purpose != Verification {
			err = ErrLink
		}
		first := false
		if err == nil {
			first, err = s.proveAddress(ctx, tx, l.Person, l.verified)
		}
		if err == nil && first {
			err = ErrUnproved
		}
		return err
	})
	return l, err
}

// SignUp spends a sign-up: create registers the person of the address, which is proved then.
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
	_, is, err := s.Member(ctx, email)
	return is, err
}

// Member returns the person with an address who is a member of an organization. Only who has proven to own the address
// may learn it.
func (s *Service) Member(ctx context.Context, email string) (id uuid.UUID, is bool, err error) {
	id, found, err := s.People.FindPerson(ctx, email)
	if err != nil || !found {
		return uuid.Nil, false, err
	}
	is, err = s.IsMember(ctx, id)
	return id, is, err
}
