package signin

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

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
	_, err = exec(ctx, tx, `insert into ops.signin_people as p (person_id) values ($1)
		on conflict (person_id) do update set zone = p.zone`, person)
	if err != nil {
		return false, err
	}
	first, _, err = one(ctx, tx, pgx.RowTo[bool],
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
	return first, failed("record a proof", tx.SendBatch(ctx, b).Close())
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
	return failed("end what was set before a proof", tx.SendBatch(ctx, b).Close())
}
