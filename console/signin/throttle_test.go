package signin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/runtest"
)

// busy takes all slots of an owner in a pool, until the test gives them back.
func busy(t *testing.T, pool *allowance.Allowance, owner uuid.UUID, slots int64) (back func()) {
	t.Helper()
	hold := pool.Open(allowance.Owner{Organization: owner})
	runtest.Must(t, hold.Reserve(t.Context(), slots))
	return hold.Release
}

// fill takes all slots of a pool.
func fill(t *testing.T, pool *allowance.Allowance) {
	t.Helper()
	for n := int64(0); pool.InUse() > n || n == 0; {
		n = pool.InUse()
		hold := pool.Open(allowance.Owner{Organization: uuid.New()})
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // what does not fit does not wait
		_ = hold.Reserve(ctx, 1)
	}
}

// wantBusy fails unless an attempt found no slot.
func wantBusy(t *testing.T, err error) {
	t.Helper()
	if f, is := errors.AsType[*fault.Error](err); !is || f.Kind != fault.Unavailable {
		t.Errorf("%v, want no slot", err)
	}
}

// An attempt that is refused is never hashed: it is refused though no slot is free.
func TestThrottle_IsAskedBeforeAHash(t *testing.T) {
	s := newScene(t, func(c *Config) {
		c.PairFailures, c.AddressFailures, c.HashWait = 2, 4, time.Nanosecond
	}).cheap().password()
	own := &browser{s, home, ""}
	signed := *s.find(own.tries(anasMail, anas, nil).Token)
	reset, err := s.NewLink(t.Context(), Link{Purpose: Reset, Person: s.ana, Email: anasMail, Organization: uuid.New()})
	runtest.Must(t, err)
	change := func() error { return s.ChangePassword(t.Context(), signed, uuid.New(), wrong, "the next password") }
	sign := func() error {
		_, err := s.SignIn(t.Context(), Attempt{Email: anasMail, Password: wrong, Client: Client{Address: away}})
		return err
	}
	link := func() error {
		_, err := s.SetPassword(t.Context(), reset, Attempt{Password: "the next password", Client: Client{Address: "203.0.113.1"}})
		return err
	}
	fill(t, s.slots.strangers)
	fill(t, s.slots.known)
	for name, c := range map[string]struct {
		do    func() error
		limit int
	}{"change the password": {change, 2}, "sign in": {sign, 2}, "use a link": {link, 4}} {
		for range c.limit {
			wantBusy(t, c.do())
		}
		if err := c.do(); !errors.As(err, new(*ThrottledError)) {
			t.Errorf("%s: %v, want to be throttled", name, err)
		}
	}
	if err := s.ChangePassword(t.Context(), signed, uuid.New(), anas, "short"); !errors.Is(err, ErrPassword) {
		t.Errorf("a short password: %v", err)
	}
}

// People who are signed in take slots of their organization alone: neither strangers, nor known browsers, nor members
// of others wait for them.
func TestHashSlots_OfAnOrganization(t *testing.T) {
	s := newScene(t, func(c *Config) { c.HashWait = time.Nanosecond }).cheap().password()
	own := &browser{s, home, ""}
	signed := *s.find(own.tries(anasMail, anas, nil).Token)
	acme, other := uuid.New(), uuid.New()
	back := busy(t, s.slots.known, acme, 1)
	wantBusy(t, s.ChangePassword(t.Context(), signed, acme, anas, anas))
	own.tries(anasMail, anas, nil)
	(&browser{s, away, ""}).tries(anasMail, anas, nil)
	runtest.Must(t, s.ChangePassword(t.Context(), signed, other, anas, anas))
	back()
	runtest.Must(t, s.ChangePassword(t.Context(), signed, acme, anas, anas))
}

// All strangers share one pool, so that a busy service refuses an address that somebody has as one that nobody has, and
// in the same order. Who is known waits for none of them.
func TestHashSlots_OfStrangers(t *testing.T) {
	s := newScene(t, func(c *Config) { c.HashWait = time.Nanosecond }).cheap().password()
	own := &browser{s, home, ""}
	signed := *s.find(own.tries(anasMail, anas, nil).Token)
	fill(t, s.slots.strangers)
	for _, email := range []string{anasMail, "nobody@acme.example"} {
		_, err := s.SignIn(t.Context(), Attempt{Email: email, Password: anas, Client: Client{Address: away}})
		wantBusy(t, err)
	}
	own.tries(anasMail, anas, nil)
	runtest.Must(t, s.ChangePassword(t.Context(), signed, uuid.New(), anas, anas))
	if got := s.slots.strangers.InUse(); got != int64(s.Hashes) {
		t.Errorf("%d slots of strangers are taken, want %d", got, s.Hashes)
	}
}

// One network address takes no more than its share of the slots of strangers.
func TestHashSlots_OfANetwork(t *testing.T) {
	s := newScene(t, func(c *Config) { c.HashWait = time.Nanosecond }).cheap().password()
	busy(t, s.slots.strangers, s.ofStranger(Client{Address: home}).owner, s.slots.strangers.Share())
	_, err := s.SignIn(t.Context(), Attempt{Email: anasMail, Password: anas, Client: Client{Address: home}})
	wantBusy(t, err)
	(&browser{s, away, ""}).tries(anasMail, anas, nil)
}

// Only a few attempts at an attacked account wait at once. What is one too many is refused and holds no place.
func TestSlowly_IsBounded(t *testing.T) {
	s := newScene(t, func(c *Config) { c.AccountDelay = time.Hour }).cheap()
	free := make(chan struct{})
	s.pause = func(context.Context, time.Duration) error {
		<-free
		return nil
	}
	var group sync.WaitGroup
	wait := func(account string) {
		before := s.waitingAt(account)
		group.Go(func() {
			if err := s.slowly(t.Context(), account, func() error { return nil }); err != nil {
				t.Errorf("an attempt that waited: %v", err)
			}
		})
		runtest.Await(t, "the attempt waits", func() bool { return s.waitingAt(account) > before })
	}
	tooMany := func(account string) {
		t.Helper()
		err := s.slowly(t.Context(), account, func() error { return errors.New("was looked at") })
		if late, is := errors.AsType[*ThrottledError](err); !is || late.Retry != slowAttempts*s.AccountDelay {
			t.Errorf("%s: %v, want to be throttled", account, err)
		}
	}
	for range slowAttempts {
		wait("ana")
	}
	tooMany("ana")
	for n := range slowAttemptsOfAll - slowAttempts {
		wait(fmt.Sprint("account", n))
	}
	tooMany("another")
	close(free)
	group.Wait()
	if len(s.accounts.waiting) != 0 || s.accounts.all != 0 {
		t.Errorf("%v wait", s.accounts.waiting)
	}
	runtest.Must(t, s.slowly(t.Context(), "ana", func() error { return nil }))
}

func (s *scene) waitingAt(account string) int {
	s.accounts.mu.Lock()
	defer s.accounts.mu.Unlock()
	return s.accounts.waiting[account]
}
