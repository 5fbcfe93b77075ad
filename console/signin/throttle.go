package signin

import (
	"context"
	"encoding/base64"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/internal/keylock"
	"github.com/annals-project/annals/internal/statement"
	"github.com/annals-project/annals/internal/visits"
)

// failures is how often somebody failed in a window, and when that is forgotten.
type failures struct {
	Failures int
	Until    time.Time
}

// count counts an attempt as a failure before it is looked at, so that attempts at the same time cannot pass together.
// forgive takes it back. The answers are in the order of who.
func (s *Service) count(ctx context.Context, who ...[]byte) ([]failures, error) {
	return statement.All(ctx, s.DB, pgx.RowToStructByPos[failures], `with counted as (
			insert into ops.signin_failures as f (who, failures, until)
			select who, 1, $3 from unnest($1::bytea[]) who order by who
			on conflict (who) do update set
				failures = case when f.until <= $2 then 1 else least(f.failures + 1, 1000000) end,
				until = case when f.until <= $2 then excluded.until else f.until end
			returning who, failures, until)
		select failures, until from counted join unnest($1::bytea[]) with ordinality as given (who, n) using (who) order by n`,
		who, s.now(), s.now().Add(s.Window))
}

// limit counts an attempt of somebody, and refuses it above a number of failures.
func (s *Service) limit(ctx context.Context, who []byte, limit int) error {
	counted, err := s.count(ctx, who)
	if err != nil {
		return err
	}
	return s.refuse(counted[0], limit)
}

// guarded does what somebody may get wrong a number of times. Only failures count in the end.
func (s *Service) guarded(ctx context.Context, who []byte, limit int, do func() error) error {
	if err := s.limit(ctx, who, limit); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return s.forgive(ctx, who)
}

// guardedPassword is guarded for who is signed in and shows a password. It hashes in a slot of an organization.
func (s *Service) guardedPassword(
	ctx context.Context, person, organization uuid.UUID, do func(hasher) error,
) error {
	return s.guarded(ctx, s.keyed("password", person.String()), s.PairFailures, func() error {
		return do(s.ofKnown(organization))
	})
}

// guardedFrom is guarded for a client that is not signed in, and does something of a kind: a known browser counts by
// itself, and others by the network address.
func (s *Service) guardedFrom(ctx context.Context, kind string, c Client, do func(hasher) error) error {
	marks, counted, err := s.countMarks(ctx, c)
	if err != nil {
		return err
	}
	h := s.ofStranger(c)
	if len(marks) > 0 {
		h = s.ofKnown(marks[0].person)
	} else {
		network := s.keyed(kind, networkOf(c.Address))
		if err := s.limit(ctx, network, s.AddressFailures); err != nil {
			return err
		}
		counted = append(counted, network)
	}
	if err := do(h); err != nil {
		return err
	}
	return s.forgive(ctx, counted...)
}

// What clients are counted for by network address. Nobody guesses anything at the provider, so failures there do not
// use up the attempts with a password.
const (
	ofNetwork  = "network"
	ofProvider = "provider network"
)

func (s *Service) refuse(f failures, limit int) error {
	if f.Failures <= limit {
		return nil
	}
	return &ThrottledError{Retry: f.Until.Sub(s.now())}
}

// forgive takes back one failure of each.
func (s *Service) forgive(ctx context.Context, who ...[]byte) error {
	_, err := statement.Exec(ctx, s.DB, `update ops.signin_failures set failures = failures - 1
		where who in (select who from ops.signin_failures where who = any($1) and failures > 0 order by who for update)`, who)
	return err
}

// networkOf returns what is counted as one network address: of IPv6 the first 64 bits, which are one connection.
func networkOf(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if ip = ip.Unmap().WithZone(""); ip.Is6() {
		prefix, _ := ip.Prefix(64) // of any IPv6 address
		return prefix.String()
	}
	return ip.String()
}

// LimitMail counts a mail that somebody asks for, and refuses it if a network address or the receiver has too many.
func (s *Service) LimitMail(ctx context.Context, c Client, email string) error {
	if err := s.limit(ctx, s.keyed(ofNetwork, networkOf(c.Address)), s.AddressFailures); err != nil {
		return err
	}
	return s.LimitReceiver(ctx, email)
}

// LimitReceiver counts a mail to an address, and refuses it if the address gets too many.
func (s *Service) LimitReceiver(ctx context.Context, email string) error {
	return s.limit(ctx, s.keyed("mail", person.NormalEmail(email)), s.PairFailures)
}

// slowAttempts and slowAttemptsOfAll are how many attempts at one account wait for each other at once, and at all of
// them: each holds a place among the pages for people who are not signed in.
const (
	slowAttempts      = 5
	slowAttemptsOfAll = 32
)

// lanes are the accounts whose attempts wait for each other.
type lanes struct {
	keylock.Map[string]

	mu      sync.Mutex
	waiting map[string]int
	all     int
}

// join takes a place among those that wait, if there is one.
func (l *lanes) join(account string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[account] >= slowAttempts || l.all >= slowAttemptsOfAll {
		return false
	}
	if l.waiting == nil {
		l.waiting = map[string]int{}
	}
	l.waiting[account]++
	l.all++
	return true
}

func (l *lanes) leave(account string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.waiting[account]--; l.waiting[account] == 0 {
		delete(l.waiting, account)
	}
}

// slowly runs the check of an account that is attacked: one at a time, each after a delay. It refuses what would wait
// for long. So a stranger can slow the sign-in to an account from other strange browsers, and not lock it.
func (s *Service) slowly(ctx context.Context, account string, check func() error) error {
	longest := slowAttempts * s.AccountDelay
	if !s.accounts.join(account) {
		return &ThrottledError{Retry: longest}
	}
	defer s.accounts.leave(account)
	waiting, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	unlock, err := s.accounts.Lock(waiting, account)
	if err != nil && ctx.Err() == nil {
		return &ThrottledError{Retry: longest}
	}
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.pause(ctx, s.AccountDelay); err != nil {
		return err
	}
	return check()
}

// A known browser is one in which a person signed in before. Its cookie holds a mark, a random token, for each person
// who did, so that their attempts are counted apart and never wait for those of strangers. A mark is no right: it lets
// nobody in, and an attempt with a mark that is made up, or of another person, counts as that of a stranger.
const (
	// KnownLife is how long a browser is known after the last sign-in.
	KnownLife = 180 * 24 * time.Hour
	// maxKnown is the most browsers that are known of a person; a new one replaces the one of the oldest sign-in.
	maxKnown = 20
	// maxMarks is how many people one browser is known of.
	maxMarks = 4
)

// mark is one of a known browser.
type mark struct {
	text   string
	person uuid.UUID
}

// marksOf returns the marks that a client shows and that are known, in the order of the cookie.
func (s *Service) marksOf(ctx context.Context, on querier, c Client) (known []mark, err error) {
	var shown []string
	var hashes [][]byte
	for text := range strings.SplitSeq(c.Known, ".") {
		if len(text) == base64.RawURLEncoding.EncodedLen(tokenBytes) && len(shown) < maxMarks {
			shown, hashes = append(shown, text), append(hashes, hashToken(text))
		}
	}
	if len(shown) == 0 {
		return nil, nil
	}
	type row struct {
		Token  []byte
		Person uuid.UUID
	}
	rows, err := statement.All(ctx, on, pgx.RowToStructByPos[row], `select token, person_id from ops.signin_browsers
		where token = any($1) and used_at > $2`, hashes, s.now().Add(-KnownLife))
	for i, text := range shown {
		for _, r := range rows {
			if string(r.Token) == string(hashes[i]) {
				known = append(known, mark{text, r.Person})
			}
		}
	}
	return known, err
}

// KnownBrowser returns the person who signed in last in a browser that shows a cookie, or uuid.Nil if it is not known.
func (s *Service) KnownBrowser(ctx context.Context, cookie string) (uuid.UUID, error) {
	known, err := s.marksOf(ctx, s.DB, Client{Known: cookie})
	if err != nil || len(known) == 0 {
		return uuid.Nil, err
	}
	return known[0].person, nil
}

// countMarks counts an attempt at each mark of a client, and returns those that are not used up. counted is what to
// forgive.
func (s *Service) countMarks(ctx context.Context, c Client) (usable []mark, counted [][]byte, err error) {
	known, err := s.marksOf(ctx, s.DB, c)
	if err != nil || len(known) == 0 {
		return nil, nil, err
	}
	for _, m := range known {
		counted = append(counted, s.keyed("browser", m.text))
	}
	failures, err := s.count(ctx, counted...)
	if err != nil {
		return nil, nil, err
	}
	for i, m := range known {
		if failures[i].Failures <= s.PairFailures {
			usable = append(usable, m)
		}
	}
	return usable, counted, nil
}

// remember makes the browser of a client known of a person who signed in, with a new mark. It returns the value of the
// cookie, in which the marks of other people stay.
func (s *Service) remember(
	ctx context.Context, on querier, b *pgx.Batch, c Client, person uuid.UUID,
) (cookie string, err error) {
	known, err := s.marksOf(ctx, on, c)
	if err != nil {
		return "", err
	}
	text := newToken()
	marks, former := []string{text}, [][]byte{}
	for _, m := range known {
		if m.person == person {
			former = append(former, hashToken(m.text))
		} else if len(marks) < maxMarks {
			marks = append(marks, m.text)
		}
	}
	b.Queue(`delete from ops.signin_browsers where token = any($1)`, former)
	b.Queue(`insert into ops.signin_browsers (token, person_id, used_at) values ($1, $2, $3)`, hashToken(text), person, s.now())
	b.Queue(`delete from ops.signin_browsers where token in (select token from ops.signin_browsers
		where person_id = $1 order by used_at desc, token offset $2)`, person, maxKnown)
	return strings.Join(marks, "."), nil
}

// isOf reports whether a mark of a person is among some.
func isOf(marks []mark, person uuid.UUID) bool {
	return person != uuid.Nil && slices.ContainsFunc(marks, func(m mark) bool { return m.person == person })
}

// factorAttempts is what counts the codes of who passed the password of a person: a known browser, or all others. Who
// knows the password alone must not keep its person out.
func (s *Service) factorAttempts(ctx context.Context, person uuid.UUID, c Client) ([]byte, error) {
	known, err := s.marksOf(ctx, s.DB, c)
	for _, m := range known {
		if m.person == person {
			return s.keyed("second factor of a browser", m.text), err
		}
	}
	return s.keyed("second factor at sign-in", person.String()), err
}

// Refusal is why a sign-in was refused, for the metrics.
type Refusal string

// The refusals.
const (
	NobodyHas  Refusal = "unknown" // nobody has the address
	Wrong      Refusal = "wrong"   // the password, or the code of the second factor
	TooMany    Refusal = "throttled"
	NotInvited Refusal = "uninvited"
)

// byStranger is who caused what somebody did who is not signed in, byOperator what an operator did.
const (
	byStranger = "sign-in"
	byOperator = "operator"
)

// Record stores what a person did, to be appended to the log: for an organization, or if that is zero for each of which
// the person is a member.
func (s *Service) Record(ctx context.Context, c Client, person, organization uuid.UUID, e visit.OfPerson) error {
	return s.record(ctx, c, visits.Entry{Person: person, Organization: organization, Event: e})
}

// RecordAsked is Record for what somebody asked for who is not signed in.
func (s *Service) RecordAsked(ctx context.Context, c Client, person uuid.UUID, e visit.OfPerson) error {
	return s.record(ctx, c, visits.Entry{Person: person, Principal: byStranger, Event: e})
}

func (s *Service) record(ctx context.Context, c Client, e visits.Entry) error {
	b := &pgx.Batch{}
	if err := s.queueVisit(b, c, e); err != nil {
		return err
	}
	return statement.Failed("record a visit", s.DB.SendBatch(ctx, b).Close())
}

// queueVisit completes an entry with who sent it, and queues it in a batch, with which it is stored.
func (s *Service) queueVisit(b *pgx.Batch, c Client, e visits.Entry) error {
	if of, is := e.Event.(visit.OfPerson); is {
		of.Of().Network, of.Of().Browser = visits.Clean(c.Address), visits.Clean(c.Browser)
	}
	e.RequestID, e.At = c.Request, s.now()
	return visits.Add(b, e)
}

// linkMade records that an operator made a link for a person.
func (s *Service) linkMade(ctx context.Context, l Link) error {
	return s.record(ctx, Client{}, visits.Entry{
		Person: l.Person, Principal: byOperator, Event: &visit.LinkMade{Purpose: string(l.Purpose)},
	})
}

// refused counts a refused sign-in. Only that of a person is recorded: an address that nobody has adds nothing to the
// log.
func (s *Service) refused(ctx context.Context, c Client, person uuid.UUID, err error) error {
	_, throttled := errors.AsType[*ThrottledError](err)
	why := Wrong
	switch {
	case throttled:
		why = TooMany
	case errors.Is(err, ErrUninvited):
		why = NotInvited
	case !errors.Is(err, ErrRefused) && !errors.Is(err, ErrCode):
		return err
	case person == uuid.Nil:
		why = NobodyHas
	default:
		if lost := s.RecordAsked(ctx, c, person, &visit.SignInRefused{}); lost != nil {
			return lost
		}
	}
	if s.Refused != nil {
		s.Refused(ctx, c, why)
	}
	return err
}
