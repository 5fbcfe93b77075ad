package signin

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/statement"
	"github.com/annals-project/annals/internal/visits"
)

// Purpose is what a one-time link is for.
type Purpose string

// The purposes. An owner link is the operator's: it proves the address and ends the second factor, since nobody else
// may be able to. Invites and resets are an Admin's, who proves no address: they end the former proofs, and belong to
// the organization of the Admin. They work for who is a member of no other one, since an Admin must not take over the
// account of a member of another organization. An invite is the link of an offer, has no person yet, and works for who
// has no other way in. A reset, as the owner's, also ends accounts at the provider.
// Verifications, sign-ups, joins and recoveries are mailed to the address that they prove. A sign-up has no person yet,
// and neither has a join, which is for who has nothing here but an offer.
const (
	Owner        Purpose = "owner"
	Invite       Purpose = "invite"
	Reset        Purpose = "reset"
	Verification Purpose = "verification"
	SignUp       Purpose = "sign-up"
	Join         Purpose = "join"
	Recovery     Purpose = "recovery"
)

// Link is a one-time link.
type Link struct {
	Purpose Purpose
	// Person is zero for an invite, a sign-up and a join.
	Person uuid.UUID
	// Offer is that of an invite, zero for others.
	Offer uuid.UUID
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
	return l.Purpose == Owner || l.Purpose == Reset || l.Purpose == Recovery
}

// NewLink makes a link and returns its token. The link of the same person, purpose and organization before it works no
// more, and neither does that of the same offer.
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
	unique := "(person_id, purpose, organization_id)"
	if l.Purpose == Invite {
		life, unique = s.InviteLife, "(offer_id)"
	}
	_, err = statement.Exec(ctx, s.DB, `insert into ops.signin_links
		(token, purpose, person_id, verified, payload_key, payload, expires_at, organization_id, offer_id)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		on conflict `+unique+` do update set token = $1, verified = $4,
			payload_key = $5, payload = $6, expires_at = $7`, hash, string(l.Purpose),
		known(l.Person), l.verified, payload.Key, payload.Data, s.now().Add(life), l.Organization, known(l.Offer))
	if err == nil && l.Purpose == Owner {
		err = s.linkMade(ctx, l)
	}
	return token, err
}

// known is an id that is null if it is zero.
func known(id uuid.UUID) uuid.NullUUID { return uuid.NullUUID{UUID: id, Valid: id != uuid.Nil} }

// Link returns the link of a token and does not spend it.
func (s *Service) Link(ctx context.Context, token string) (Link, bool, error) {
	return s.link(ctx, s.DB, token, `select purpose, person_id, verified, payload_key, payload, expires_at, organization_id, offer_id
		from ops.signin_links where token = $1 and expires_at > $2`)
}

// spendLink returns the link of a token, which works no more.
func (s *Service) spendLink(ctx context.Context, tx pgx.Tx, token string) (Link, error) {
	l, found, err := s.link(ctx, tx, token, `delete from ops.signin_links where token = $1 and expires_at > $2
		returning purpose, person_id, verified, payload_key, payload, expires_at, organization_id, offer_id`)
	if err == nil && !found {
		err = ErrLink
	}
	return l, err
}

func (s *Service) link(ctx context.Context, on querier, token, sql string) (Link, bool, error) {
	hash := hashToken(token)
	return statement.One(ctx, on, func(row pgx.CollectableRow) (l Link, err error) {
		var id, offer uuid.NullUUID
		var email secret.Sealed
		err = row.Scan(&l.Purpose, &id, &l.verified, &email.Key, &email.Data, &l.ExpiresAt, &l.Organization, &offer)
		l.Person, l.Offer, l.ExpiresAt = id.UUID, offer.UUID, l.ExpiresAt.UTC()
		if err == nil {
			l.Email, err = s.Sealer.Open(uuid.UUID(hash[:16]), email)
		}
		return l, err
	}, sql, hash, s.now())
}

// EndLinks ends the resets of a person that Admins of an organization made.
func (s *Service) EndLinks(ctx context.Context, person, organization uuid.UUID) error {
	return endLinks(ctx, s.DB, person, organization)
}

func endLinks(ctx context.Context, on querier, person, organization uuid.UUID) error {
	_, err := statement.Exec(ctx, on, `delete from ops.signin_links where person_id = $1 and organization_id = $2 and purpose = $3`,
		person, organization, string(Reset))
	return err
}

// SetPassword spends the link of an owner, of a reset or of a recovery: it sets the password of the person, ends all
// sessions of the person, and begins one. Its errors are ErrLink, ErrElsewhere, ErrPassword and *ThrottledError.
func (s *Service) SetPassword(ctx context.Context, token string, a Attempt) (SignedIn, error) {
	return s.setPassword(ctx, token, a, Link.setsPassword, func(_ context.Context, l Link) (uuid.UUID, error) {
		return l.Person, nil
	})
}

// Accept spends an invite as SetPassword does: accept makes the person of its address a member, and returns who that
// is. Its errors are also ErrUnneeded, and those of accept.
func (s *Service) Accept(
	ctx context.Context, token string, a Attempt, accept func(context.Context, Link) (uuid.UUID, error),
) (SignedIn, error) {
	return s.setPassword(ctx, token, a, func(l Link) bool { return l.Purpose == Invite }, accept)
}

// VerifyFirst spends the verification of a person without a proof as SetPassword does, since the proof ends the former
// password. change gives the person the address. Its errors are also those of change.
func (s *Service) VerifyFirst(
	ctx context.Context, token string, a Attempt, change func(context.Context) error,
) (SignedIn, error) {
	return s.setPassword(ctx, token, a, func(l Link) bool { return l.Purpose == Verification },
		func(ctx context.Context, l Link) (uuid.UUID, error) { return l.Person, change(ctx) })
}

// setPassword spends a link that sets the password of the person that find returns.
func (s *Service) setPassword(ctx context.Context, token string, a Attempt, serves func(Link) bool,
	find func(context.Context, Link) (uuid.UUID, error),
) (in SignedIn, err error) {
	err = s.guardedFrom(ctx, ofNetwork, a.Client, func(h hasher) error {
		link, _, err := s.Link(ctx, token)
		if err != nil || !serves(link) {
			return errors.Join(err, ErrLink)
		}
		if err := s.checkPerson(ctx, link); err != nil {
			return err
		}
		hash, err := h.hash(ctx, a.Password)
		id := uuid.Nil
		if err == nil {
			id, err = find(ctx, link)
		}
		if err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
			link, err := s.spendLink(ctx, tx, token)
			if link.Person = id; err == nil {
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

// checkPerson checks that a link may set a password. The address of a recovery may be somebody else's by now. What an
// Admin's link sets replaces what opens other organizations, so that it serves nobody who is a member of one, and an
// invite nobody who can sign in: it would make a member of who has not accepted.
func (s *Service) checkPerson(ctx context.Context, l Link) error {
	id := l.Person
	if l.Purpose == Recovery || l.Purpose == Invite {
		found, _, err := s.People.FindPerson(ctx, l.Email)
		if err == nil && l.Purpose == Recovery && found != l.Person {
			err = ErrLink
		}
		if err != nil {
			return err
		}
		id = found
	}
	if l.Organization == uuid.Nil || id == uuid.Nil {
		return nil
	}
	refused, err := s.MemberElsewhere(ctx, id, l.Organization)
	refusal := ErrElsewhere
	if l.Purpose == Invite {
		refusal = ErrUnneeded
		var states map[uuid.UUID]State
		if err == nil && !refused {
			states, err = s.States(ctx, id)
		}
		refused = refused || states[id].Password || states[id].Accounts > 0
	}
	if err == nil && refused {
		err = refusal
	}
	return err
}

// prepare ends what a link replaces besides the password.
func (s *Service) prepare(ctx context.Context, tx pgx.Tx, l Link) (err error) {
	switch l.Purpose {
	case Invite:
		has := false
		has, _, err = statement.One(ctx, tx, pgx.RowTo[bool], `select exists (select from ops.signin_people where person_id = $1
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
	case Verification, SignUp, Join, Recovery:
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
		in.Pending, _, err = statement.One(ctx, tx, pgx.RowTo[bool], `insert into ops.signin_people as p (person_id, password, vouched)
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
		_, err = statement.Exec(ctx, tx, `delete from ops.signin_links where person_id = $1 and purpose = any($2)`, l.Person,
			[]string{string(Owner), string(Reset), string(Recovery)})
	}
	if err != nil {
		return SignedIn{}, err
	}
	in.way = visit.Link
	b := &pgx.Batch{}
	used := visits.Entry{Person: l.Person, Event: &visit.LinkUsed{Purpose: string(l.Purpose)}}
	if err = s.queueVisit(b, a.Client, used); err == nil {
		err = statement.Failed("record a link", tx.SendBatch(ctx, b).Close())
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

// SignUp spends a sign-up or a join: create registers the person of the address, which is proved then.
// A member is not let in by it. Its errors are ErrLink, ErrPassword, ErrKnown, and those of
// create.
func (s *Service) SignUp(
	ctx context.Context, token string, a Attempt, create func(ctx context.Context, email string) (uuid.UUID, error),
) (in SignedIn, err error) {
	err = s.guardedFrom(ctx, ofNetwork, a.Client, func(h hasher) error {
		link, _, err := s.Link(ctx, token)
		if err != nil || link.Purpose != SignUp && link.Purpose != Join {
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

// Known reports whether the person with an address is a member. Only who has proven to own the address may learn it.
func (s *Service) Known(ctx context.Context, email string) (bool, error) {
	id, found, err := s.People.FindPerson(ctx, email)
	if err != nil || !found {
		return false, err
	}
	return s.IsMember(ctx, id)
}

// Member returns the person with an address who may sign in. Only who has proven to own the address may learn it.
func (s *Service) Member(ctx context.Context, email string) (id uuid.UUID, is bool, err error) {
	id, found, err := s.People.FindPerson(ctx, email)
	if err != nil || !found {
		return uuid.Nil, false, err
	}
	is, err = s.MaySignIn(ctx, id)
	return id, is, err
}

// MaySignIn reports whether a person is a member of an organization, or is offered to be one at an address that the
// person proved.
func (s *Service) MaySignIn(ctx context.Context, id uuid.UUID) (bool, error) {
	if is, err := s.IsMember(ctx, id); err != nil || is {
		return is, err
	}
	email, found, err := s.People.AddressOf(ctx, id)
	if err != nil || !found {
		return false, err
	}
	states, err := s.States(ctx, id)
	if err != nil || !s.Verified(states[id], email) {
		return false, err
	}
	return s.Offered(ctx, email)
}

// A proof is an address that a person showed to the deployment to be the person's: by a mailed link, at the provider,
// or by the operator's word. A membership is given to an address, and a session opens it if the person proved that
// address, whatever address the person has by now. Until the first proof nobody knows who chose the password: an Admin
// of any organization can invite an address that is somebody else's, and use the link.

// maxProofs is how many proofs of a person are kept: those of the addresses that were proved last.
const maxProofs = 20

// proofsOf selects the proofs of the person p.
const proofsOf = `array(select address from ops.signin_proofs a where a.person_id = p.person_id)`

// Verified reports whether a person proved an address.
func (s *Service) Verified(st State, email string) bool { return s.proves(st.proofs, email) }

// Proved reports whether a person proved any address to the deployment.
func (s State) Proved() bool { return len(s.proofs) > 0 }

// proves reports whether an address is among some proofs.
func (s *Service) proves(proofs [][]byte, email string) bool {
	names := s.addressNames(email)
	return slices.ContainsFunc(proofs, func(name []byte) bool {
		return slices.ContainsFunc(names, func(one []byte) bool { return string(one) == string(name) })
	})
}

// Opens reports whether a session opens an organization of which its person is a member. given is the address that the
// membership was given to: the person has proved that very address, or a link of an Admin of that organization let the
// person in.
func (s *Service) Opens(session Session, given string, organization uuid.UUID) bool {
	vouched := session.vouched.Valid && session.vouched.UUID == organization && organization != uuid.Nil
	return vouched || s.proves(session.proofs, given)
}

// proveAddress records that a person proved an address, under its name. first reports whether it is the first
// proof: then all with which somebody could sign in as the person before has ended.
func (s *Service) proveAddress(
	ctx context.Context, tx pgx.Tx, person uuid.UUID, name []byte,
) (first bool, err error) {
	// The row of the person is locked, so that one of two proofs at the same time is the first.
	_, err = statement.Exec(ctx, tx, `insert into ops.signin_people as p (person_id) values ($1)
		on conflict (person_id) do update set zone = p.zone`, person)
	if err != nil {
		return false, err
	}
	first, _, err = statement.One(ctx, tx, pgx.RowTo[bool],
		`select not exists (select from ops.signin_proofs where person_id = $1)`, person)
	if err == nil && first {
		err = s.firstProof(ctx, tx, person)
	}
	if err != nil {
		return false, err
	}
	b := &pgx.Batch{}
	b.Queue(`insert into ops.signin_proofs (person_id, address, proved_at) values ($1, $2, $3)
		on conflict (person_id, address) do update set proved_at = excluded.proved_at`, person, name, s.now())
	b.Queue(`delete from ops.signin_proofs where person_id = $1 and address in (select address from ops.signin_proofs
		where person_id = $1 order by proved_at desc, address offset $2)`, person, maxProofs)
	return first, statement.Failed("record a proof", tx.SendBatch(ctx, b).Close())
}

// firstProof ends all with which somebody could sign in as a person who has proved nothing so far: that may be somebody
// else. Invitations stay, since they let in nobody who has another way in.
func (s *Service) firstProof(ctx context.Context, tx pgx.Tx, person uuid.UUID) error {
	err := forget(ctx, tx, person, "ops.signin_recovery_codes", "ops.signin_accounts", "ops.signin_sessions",
		"ops.signin_browsers")
	if err == nil {
		err = s.Grants.End(ctx, tx, person)
	}
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(`update ops.signin_people set password = null, generated = false, totp_key = null, totp = null
		where person_id = $1`, person)
	b.Queue(`delete from ops.signin_links where person_id = $1 and purpose <> $2`, person, string(Invite))
	return statement.Failed("end what was set before a proof", tx.SendBatch(ctx, b).Close())
}
