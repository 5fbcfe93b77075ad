package signin

import (
	"context"
	"encoding/base64"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/visit"
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
	found, ok, err := one(ctx, s.DB, func(row pgx.CollectableRow) (f Session, err error) {
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
		_, err = exec(ctx, s.DB, `update ops.signin_sessions set used_at = $2 where id = $1 and used_at <= $3`,
			found.ID, now, now.Add(-usedEvery))
	}
	return found, ok && err == nil, err
}

// ChooseOrganization records the organization that a session shows.
func (s *Service) ChooseOrganization(ctx context.Context, session, organization uuid.UUID) error {
	_, err := exec(ctx, s.DB, `update ops.signin_sessions set organization_id = $2 where id = $1`, session, organization)
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
	return in, failed("begin a session", on.SendBatch(ctx, b).Close())
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
	return all(ctx, s.DB, pgx.RowToStructByPos[OpenSession], `select id, browser, address, created_at, used_at
		from ops.signin_sessions where person_id = $1 and not pending and expires_at > $2 and used_at > $3
		order by used_at desc, id limit $4`, person, now, now.Add(-s.Idle), maxSessions)
}

// EndSession ends a session of a person.
func (s *Service) EndSession(ctx context.Context, person, session uuid.UUID) error {
	_, err := exec(ctx, s.DB, `delete from ops.signin_sessions where person_id = $1 and id = $2`, person, session)
	return err
}

func endSessions(ctx context.Context, on querier, person, but uuid.UUID) error {
	_, err := exec(ctx, on, `delete from ops.signin_sessions where person_id = $1 and id <> $2`, person, but)
	return err
}

// SignOut ends the session of a token.
func (s *Service) SignOut(ctx context.Context, token string) error {
	_, err := exec(ctx, s.DB, `delete from ops.signin_sessions where token = $1`, hashToken(token))
	return err
}
