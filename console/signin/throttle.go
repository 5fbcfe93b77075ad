package signin

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/internal/keylock"
)

// failures is how often somebody failed in a window, and when that is forgotten.
type failures struct {
	Failures int
	Until    time.Time
}

// count counts an attempt as a failure before it is looked at, so that attempts at the same time cannot pass together.
// forgive takes it back. The answers are in the order of who.
func (s *Service) count(ctx context.Context, who ...[]byte) ([]failures, error) {
	return all(ctx, s.DB, pgx.RowToStructByPos[failures], `with counted as (
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
	_, err := exec(ctx, s.DB, `update ops.signin_failures set failures = failures - 1
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
