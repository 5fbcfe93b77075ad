package signin

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/base32"
	"net/url"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/pquerna/otp/hotp"

	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/statement"
)

// The codes of an authenticator app (RFC 6238): a new one each 30 seconds, and a clock may be a step off.
const (
	totpBytes = 20
	codeStep  = 30
	codeSlack = 1
	// recoveryCodes is how many codes there are for a lost second factor. Each has 80 random bits, so its hash needs no
	// salt.
	recoveryCodes     = 10
	recoveryCodeBytes = 10
)

var base32Text = base32.StdEncoding.WithPadding(base32.NoPadding)

// stepOf returns the step of a code around now. It is ErrCode unless it is one after the last one that was used.
func (s *Service) stepOf(key, code string, last int64) (step int64, err error) {
	current, err := s.now().Unix()/codeStep, ErrCode
	for n := max(current-codeSlack, last+1); n <= current+codeSlack; n++ {
		want, damaged := hotp.GenerateCode(key, uint64(n)) // steps are not negative
		if damaged != nil {
			return 0, damaged
		}
		if subtle.ConstantTimeCompare([]byte(want), []byte(plainCode(code))) == 1 {
			step, err = n, nil
		}
	}
	return step, err
}

// Enrolment is a second factor that nobody has confirmed.
type Enrolment struct {
	// Secret is typed into an app, URI is the same as a link, and a form sends Sealed back.
	Secret, URI, Sealed string
}

// Enrol makes a second factor for a person with a name, which the app shows. Nothing is stored before Confirm. sealed
// is that of a form that was sent with a wrong code, "" for a new one.
func (s *Service) Enrol(person uuid.UUID, name, sealed string) (e Enrolment, err error) {
	if e.Secret, err = s.Sealer.OpenText(person, sealed); sealed == "" {
		e.Secret, err = base32Text.EncodeToString(random(totpBytes)), nil
	}
	if err != nil {
		return Enrolment{}, err
	}
	e.Sealed, err = s.Sealer.SealText(person, e.Secret)
	e.URI = "otpauth://totp/" + url.PathEscape(s.Issuer) + ":" + url.PathEscape(name) + "?secret=" + e.Secret +
		"&issuer=" + url.QueryEscape(s.Issuer) + "&algorithm=SHA1&digits=6&period=30"
	return e, err
}

// Confirm stores a second factor once the person shows a code of it, with a fresh proof. All sessions of the person
// end, and one with the second factor begins. codes are the recovery codes, shown once. Its errors are ErrProof,
// ErrCode, ErrEnrolled and *ThrottledError.
func (s *Service) Confirm(
	ctx context.Context, in Session, a Attempt, sealed, code string,
) (next SignedIn, codes []string, err error) {
	if !s.Fresh(in) {
		return SignedIn{}, nil, ErrProof
	}
	text, err := s.Sealer.OpenText(in.Person, sealed)
	if err != nil {
		return SignedIn{}, nil, ErrCode
	}
	kept, err := s.Sealer.Seal(in.Person, text)
	if err != nil {
		return SignedIn{}, nil, err
	}
	store := func(tx pgx.Tx) error {
		step, err := s.stepOf(text, code, 0)
		if err != nil {
			return err
		}
		done, err := statement.Exec(ctx, tx, `insert into ops.signin_people as p (person_id, totp_key, totp, totp_step)
			values ($1, $2, $3, $4) on conflict (person_id) do update set totp_key = $2, totp = $3, totp_step = $4
			where p.totp is null`, in.Person, kept.Key, kept.Data, step)
		if err == nil && done == 0 {
			err = ErrEnrolled
		}
		if err == nil {
			codes, err = newRecoveryCodes(ctx, tx, in.Person)
		}
		if err == nil {
			next, err = s.begin(ctx, tx, a.Client, a.Former, SignedIn{Person: in.Person}, true)
		}
		if err == nil {
			_, err = statement.Exec(ctx, tx, `delete from ops.signin_sessions where person_id = $1 and token <> $2`, in.Person,
				hashToken(next.Token))
		}
		return err
	}
	err = s.guardedFactor(ctx, in.Person, func() error { return pgx.BeginFunc(ctx, s.DB, store) })
	return next, codes, err
}

// guardedFactor is guarded for the codes of a person.
func (s *Service) guardedFactor(ctx context.Context, person uuid.UUID, do func() error) error {
	return s.guarded(ctx, s.keyed("second factor", person.String()), s.SecondFactorFailures, do)
}

// newRecoveryCodes replaces the recovery codes of a person.
func newRecoveryCodes(ctx context.Context, tx pgx.Tx, person uuid.UUID) ([]string, error) {
	codes, hashes := make([]string, recoveryCodes), make([][]byte, recoveryCodes)
	for i := range codes {
		text := base32Text.EncodeToString(random(recoveryCodeBytes))
		codes[i] = text[:4] + "-" + text[4:8] + "-" + text[8:12] + "-" + text[12:]
		hashes[i] = hashToken(text)
	}
	err := forget(ctx, tx, person, "ops.signin_recovery_codes")
	if err == nil {
		_, err = statement.Exec(ctx, tx, `insert into ops.signin_recovery_codes (person_id, code) select $1, unnest($2::bytea[])`,
			person, hashes)
	}
	return codes, err
}

// plainCode is a code without what people type into it.
func plainCode(code string) string {
	return strings.ToUpper(strings.NewReplacer(" ", "", "-", "", "\t", "").Replace(code))
}

// spend uses a code of a person: of the app, or a recovery code. Each works once.
func (s *Service) spend(ctx context.Context, tx pgx.Tx, person uuid.UUID, code string) error {
	code = plainCode(code)
	if len(code) != 6 {
		done, err := statement.Exec(ctx, tx, `delete from ops.signin_recovery_codes where person_id = $1 and code = $2`,
			person, hashToken(code))
		if err == nil && done == 0 {
			err = ErrCode
		}
		return err
	}
	type factor struct {
		Key  string
		Data []byte
		Step int64
	}
	has, found, err := statement.One(ctx, tx, pgx.RowToStructByPos[factor], `select totp_key, totp, totp_step from ops.signin_people
		where person_id = $1 and totp is not null`, person)
	if err != nil || !found {
		return cmp.Or(err, ErrCode)
	}
	text, err := s.Sealer.Open(person, secret.Sealed{Key: has.Key, Data: has.Data})
	if err != nil {
		return err
	}
	step, err := s.stepOf(text, code, has.Step)
	if err != nil {
		return err
	}
	done, err := statement.Exec(ctx, tx, `update ops.signin_people set totp_step = $2 where person_id = $1 and totp_step < $2`,
		person, step)
	if err == nil && done == 0 {
		err = ErrCode
	}
	return err
}

// withCode does something in the transaction that spends a code of a person.
func (s *Service) withCode(ctx context.Context, person uuid.UUID, code string, do func(pgx.Tx) error) error {
	return s.guardedFactor(ctx, person, func() error { return s.spending(ctx, person, code, do) })
}

func (s *Service) spending(ctx context.Context, person uuid.UUID, code string, do func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		if err := s.spend(ctx, tx, person, code); err != nil {
			return err
		}
		return do(tx)
	})
}

// SecondFactor begins the session of somebody who passed the password and shows a code. token is that of the session
// that waits. Its errors are ErrRefused if none does, ErrCode and *ThrottledError.
func (s *Service) SecondFactor(ctx context.Context, token, code string, c Client) (in SignedIn, err error) {
	waits, found, err := statement.One(ctx, s.DB, pgx.RowTo[uuid.UUID], `select person_id from ops.signin_sessions
		where token = $1 and pending and expires_at > $2`, hashToken(token), s.now())
	if err != nil || !found {
		return SignedIn{}, cmp.Or(err, ErrRefused)
	}
	in.Person = waits
	who, err := s.factorAttempts(ctx, in.Person, c)
	if err != nil {
		return SignedIn{}, err
	}
	err = s.guarded(ctx, who, s.SecondFactorFailures, func() error {
		return s.spending(ctx, in.Person, code, func(tx pgx.Tx) (err error) {
			in.way = visit.Code
			in, err = s.begin(ctx, tx, c, token, in, true)
			return err
		})
	})
	if err != nil {
		return SignedIn{}, s.refused(ctx, c, in.Person, err)
	}
	return in, nil
}

// NewRecoveryCodes replaces the recovery codes of a person who shows a code. Its errors are ErrCode and
// *ThrottledError.
func (s *Service) NewRecoveryCodes(ctx context.Context, person uuid.UUID, code string) (codes []string, err error) {
	err = s.withCode(ctx, person, code, func(tx pgx.Tx) (err error) {
		codes, err = newRecoveryCodes(ctx, tx, person)
		return err
	})
	return codes, err
}

// RemoveSecondFactor ends the second factor of a person who shows a code. Its errors are ErrCode and *ThrottledError.
func (s *Service) RemoveSecondFactor(ctx context.Context, person uuid.UUID, code string) error {
	return s.withCode(ctx, person, code, func(tx pgx.Tx) error {
		return dropSecondFactor(ctx, tx, person)
	})
}

// ResetSecondFactor ends the second factor of a person who lost it, and all sessions of the person. An Admin may.
func (s *Service) ResetSecondFactor(ctx context.Context, person uuid.UUID) error {
	err := pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		err := forget(ctx, tx, person, "ops.signin_sessions", "ops.signin_browsers")
		if err == nil {
			err = dropSecondFactor(ctx, tx, person)
		}
		if err == nil {
			err = s.Grants.End(ctx, tx, person)
		}
		return err
	})
	if err == nil {
		s.Grants.Record(ctx, person)
	}
	return err
}

func dropSecondFactor(ctx context.Context, tx pgx.Tx, person uuid.UUID) error {
	b := &pgx.Batch{}
	b.Queue(`update ops.signin_people set totp_key = null, totp = null where person_id = $1`, person)
	b.Queue(`delete from ops.signin_recovery_codes where person_id = $1`, person)
	b.Queue(`update ops.signin_sessions set second_factor = false where person_id = $1`, person)
	return statement.Failed("drop a second factor", tx.SendBatch(ctx, b).Close())
}
