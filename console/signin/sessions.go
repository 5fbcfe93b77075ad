package signin

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/internal/statement"
	"github.com/annals-project/annals/internal/visits"
)

const (
	// usedEvery is how often the last use of a session is written.
	usedEvery = time.Minute
	// pendingLife is how long a session waits for the second factor.
	pendingLife = 10 * time.Minute
	// maxSessions is the most sessions of a person; a new one ends the oldest.
	maxSessions = 50
	maxBrowser  = 200
)

// Session is a browser in which a person is signed in.
type Session struct {
	ID, Person uuid.UUID
	// Organization is the one that was chosen last in the session, zero for none.
	Organization uuid.UUID
	// SecondFactor reports whether the person showed a second factor.
	SecondFactor bool
	CreatedAt    time.Time
	// ProvedAt is when the person last proved to be that person, zero for a session from before that was recorded.
	ProvedAt time.Time
	// Zone is the time zone of the person, "" for none.
	Zone string

	// proofs are the names of the addresses that the person proved, vouched the organization whose Admin let the person
	// in.
	proofs  [][]byte
	vouched uuid.NullUUID
}

// Client is who asks to sign in: what the browser calls itself, and the network address. Known is the cookie that the
// browser got at an earlier sign-in, "" for none. Request is the id of the request.
type Client struct {
	Browser, Address, Known string
	Request                 uuid.UUID
}

// SignedIn is a session that began.
type SignedIn struct {
	Token  string
	Person uuid.UUID
	// Pending means that the session finds nobody until the second factor is passed.
	Pending bool
	// Known is the cookie by which the browser is known from now on, to be kept for KnownLife; "" keeps what it has.
	Known string
	// Proved means that no session began: the one of the browser has a fresh proof now.
	Proved bool
	// way is how the person came in, "" for a session that takes the place of another.
	way visit.Way
}

func scanSignedIn(row pgx.CollectableRow) (in SignedIn, err error) {
	err = row.Scan(&in.Person, &in.Pending)
	return in, err
}

// Session returns the session of a token, one read. A session that waits for the second factor is none yet.
func (s *Service) Session(ctx context.Context, token string) (Session, bool, error) {
	if len(token) != base64.RawURLEncoding.EncodedLen(tokenBytes) {
		return Session{}, false, nil
	}
	var used time.Time
	var proved *time.Time
	now := s.now()
	found, ok, err := statement.One(ctx, s.DB, func(row pgx.CollectableRow) (f Session, err error) {
		err = row.Scan(&f.ID, &f.Person, &f.Organization, &f.SecondFactor, &f.CreatedAt, &used, &f.Zone, &f.proofs,
			&f.vouched, &proved)
		f.CreatedAt = f.CreatedAt.UTC()
		if proved != nil {
			f.ProvedAt = proved.UTC()
		}
		return f, err
	}, `select s.id, s.person_id, coalesce(s.organization_id, $4), s.second_factor, s.created_at, s.used_at,
			coalesce(p.zone, ''), `+proofsOf+`, p.vouched, s.proved_at
		from ops.signin_sessions s left join ops.signin_people p using (person_id)
		where s.token = $1 and not s.pending and s.expires_at > $2 and s.used_at > $3`,
		hashToken(token), now, now.Add(-s.Idle), uuid.Nil)
	if ok && now.Sub(used) >= usedEvery {
		_, err = statement.Exec(ctx, s.DB, `update ops.signin_sessions set used_at = $2 where id = $1 and used_at <= $3`,
			found.ID, now, now.Add(-usedEvery))
	}
	return found, ok && err == nil, err
}

// ChooseOrganization records the organization that a session shows.
func (s *Service) ChooseOrganization(ctx context.Context, session, organization uuid.UUID) error {
	_, err := statement.Exec(ctx, s.DB, `update ops.signin_sessions set organization_id = $2 where id = $1`, session, organization)
	return err
}

// begin begins a session with a new token, in one transaction. The former session of the browser ends, so that nobody
// who knew its token is signed in with it. The organization of a former session of the same person stays chosen.
func (s *Service) begin(
	ctx context.Context, on querier, c Client, former string, in SignedIn, second bool,
) (SignedIn, error) {
	now, ends := s.now(), s.now().Add(s.Longest)
	if in.Pending {
		ends = now.Add(pendingLife)
	}
	in.Token = newToken()
	b := &pgx.Batch{}
	b.Queue(`with former as (delete from ops.signin_sessions where token = $1 returning person_id, organization_id)
		insert into ops.signin_sessions (id, token, person_id, organization_id, pending, second_factor,
			browser, address, created_at, used_at, proved_at, expires_at)
		values ($2, $3, $4, (select organization_id from former where person_id = $4), $5, $6, $7, $8, $9, $9, $9, $10)`,
		hashToken(former), uuid.New(), hashToken(in.Token), in.Person, in.Pending, second, cut(c.Browser), cut(c.Address),
		now, ends)
	b.Queue(`delete from ops.signin_sessions where id in (select id from ops.signin_sessions
		where person_id = $1 order by created_at desc, id offset $2)`, in.Person, maxSessions)
	if !in.Pending {
		known, err := s.remember(ctx, on, b, c, in.Person)
		if err != nil {
			return SignedIn{}, err
		}
		in.Known = known
	}
	if !in.Pending && in.way != "" {
		e := visits.Entry{Person: in.Person, Event: &visit.SignedIn{Way: in.way, SecondFactor: second}}
		if err := s.queueVisit(b, c, e); err != nil {
			return SignedIn{}, err
		}
	}
	return in, statement.Failed("begin a session", on.SendBatch(ctx, b).Close())
}

// cut shortens what a client sent to what a table can hold.
func cut(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
	if len(text) > maxBrowser {
		text = strings.ToValidUTF8(text[:maxBrowser], "")
	}
	return text
}

// OpenSession is a session as its person sees it.
type OpenSession struct {
	ID               uuid.UUID
	Browser, Address string
	CreatedAt        time.Time
	// UsedAt is the last use, to a minute.
	UsedAt time.Time
}

// Sessions returns the sessions of a person, the one that was used last first.
func (s *Service) Sessions(ctx context.Context, person uuid.UUID) ([]OpenSession, error) {
	now := s.now()
	return statement.All(ctx, s.DB, pgx.RowToStructByPos[OpenSession], `select id, browser, address, created_at, used_at
		from ops.signin_sessions where person_id = $1 and not pending and expires_at > $2 and used_at > $3
		order by used_at desc, id limit $4`, person, now, now.Add(-s.Idle), maxSessions)
}

// EndSession ends a session of a person.
func (s *Service) EndSession(ctx context.Context, person, session uuid.UUID) error {
	_, err := statement.Exec(ctx, s.DB, `delete from ops.signin_sessions where person_id = $1 and id = $2`, person, session)
	return err
}

func endSessions(ctx context.Context, on querier, person, but uuid.UUID) error {
	_, err := statement.Exec(ctx, on, `delete from ops.signin_sessions where person_id = $1 and id <> $2`, person, but)
	return err
}

// SignOut ends the session of a token.
func (s *Service) SignOut(ctx context.Context, token string) error {
	_, err := statement.Exec(ctx, s.DB, `delete from ops.signin_sessions where token = $1`, hashToken(token))
	return err
}

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
	_, err := statement.Exec(ctx, on, `update ops.signin_sessions set proved_at = $3 where id = $1 and person_id = $2`,
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
	holder, linked, err := statement.One(ctx, s.DB, pgx.RowTo[uuid.UUID], `select person_id from ops.signin_accounts
		where account = $1`, s.accountName(c.Subject))
	if err != nil {
		return SignedIn{}, err
	}
	if !linked || holder != in.Person {
		return SignedIn{}, ErrOtherAccount
	}
	return SignedIn{Person: in.Person, Proved: true}, s.prove(ctx, s.DB, in)
}

// Grants are what a person lets programs do: clients and agents, in all organizations.
type Grants interface {
	// End ends all of a person in a transaction that ended the sessions before, so that a crash leaves none alive.
	End(ctx context.Context, tx pgx.Tx, person uuid.UUID) error
	// Record writes to the log what End ended. It logs what fails, which is repeated later.
	Record(ctx context.Context, person uuid.UUID)
}

// Hold keeps a session until a transaction ends, which lets a program in. live is false for a session that has ended:
// End did not see what the transaction makes.
func (s *Service) Hold(ctx context.Context, tx pgx.Tx, session uuid.UUID) (live bool, err error) {
	_, live, err = statement.One(ctx, tx, pgx.RowTo[uuid.UUID], `select id from ops.signin_sessions where id = $1 for share`, session)
	return live, err
}

// NoGrants are those of a service that lets no programs in.
type NoGrants struct{}

// End implements Grants.
func (NoGrants) End(context.Context, pgx.Tx, uuid.UUID) error { return nil }

// Record implements Grants.
func (NoGrants) Record(context.Context, uuid.UUID) {}

// SignOutEverywhere ends all sessions of a person, and what is known of the browsers. programs ends what the person
// lets programs do too.
func (s *Service) SignOutEverywhere(ctx context.Context, person uuid.UUID, programs bool) error {
	err := pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		err := forget(ctx, tx, person, "ops.signin_sessions", "ops.signin_browsers")
		if err == nil && programs {
			err = s.Grants.End(ctx, tx, person)
		}
		return err
	})
	if err == nil && programs {
		s.Grants.Record(ctx, person)
	}
	return err
}

// State is how a person signs in.
type State struct {
	Person uuid.UUID
	// Password is whether there is one, Generated whether the first start made it.
	Password, Generated bool
	SecondFactor        bool
	// RecoveryCodes and Accounts count those that are left, and those at a provider.
	RecoveryCodes, Accounts int
	Zone                    string
	proofs                  [][]byte
}

// States returns how people sign in. Those who never could are missing.
func (s *Service) States(ctx context.Context, people ...uuid.UUID) (map[uuid.UUID]State, error) {
	list, err := statement.All(ctx, s.DB, func(row pgx.CollectableRow) (st State, err error) {
		err = row.Scan(&st.Person, &st.Password, &st.Generated, &st.SecondFactor, &st.RecoveryCodes, &st.Accounts, &st.Zone,
			&st.proofs)
		return st, err
	}, `select person_id, password is not null, generated, totp is not null,
			(select count(*) from ops.signin_recovery_codes c where c.person_id = p.person_id),
			(select count(*) from ops.signin_accounts a where a.person_id = p.person_id), zone, `+proofsOf+`
		from ops.signin_people p where person_id = any($1)`, people)
	states := make(map[uuid.UUID]State, len(people))
	for _, st := range list {
		states[st.Person] = st
	}
	return states, err
}

// LastSeen returns when people last signed in, or used a session that shows an organization, or none yet. It knows what
// open sessions and known browsers show.
func (s *Service) LastSeen(
	ctx context.Context, organization uuid.UUID, people []uuid.UUID,
) (map[uuid.UUID]time.Time, error) {
	type use struct {
		Person uuid.UUID
		At     time.Time
	}
	list, err := statement.All(ctx, s.DB, pgx.RowToStructByPos[use], `select person_id, max(used_at) from (
			select person_id, used_at from ops.signin_sessions where person_id = any($1) and not pending
				and (organization_id is null or organization_id = $2)
			union all select person_id, used_at from ops.signin_browsers where person_id = any($1)) u
		group by person_id`, people, organization)
	uses := make(map[uuid.UUID]time.Time, len(list))
	for _, u := range list {
		uses[u.Person] = u.At.UTC()
	}
	return uses, err
}

// SetZone sets the time zone of a person; "" is none. known is false for a name that is no time zone.
func (s *Service) SetZone(ctx context.Context, id uuid.UUID, zone string) (known bool, err error) {
	if _, err := time.LoadLocation(zone); err != nil || zone == "Local" {
		return false, nil
	}
	_, err = statement.Exec(ctx, s.DB, `insert into ops.signin_people (person_id, zone) values ($1, $2)
		on conflict (person_id) do update set zone = excluded.zone`, id, zone)
	return err == nil, err
}
