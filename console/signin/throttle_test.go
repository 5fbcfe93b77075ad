package signin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// cheap makes new hashes cheap, for tests of many attempts.
func (s *scene) cheap() *scene {
	s.HashMemory = 64
	return s
}

// browser is one that keeps the cookie by which it is known.
type browser struct {
	*scene

	address, known string
}

func (b *browser) client() Client {
	return Client{Browser: "Firefox", Address: b.address, Known: b.known}
}

// tries signs in to an account, and wants an error.
func (b *browser) tries(email, password string, want error) SignedIn {
	b.t.Helper()
	b.paused = nil
	in, err := b.SignIn(b.t.Context(), Attempt{Email: email, Password: password, Client: b.client()})
	_, throttled := errors.AsType[*ThrottledError](err)
	if _, is := errors.AsType[*ThrottledError](want); is != throttled || !is && !errors.Is(err, want) {
		b.t.Errorf("%s with %q from %s: %v, want %v", email, password, b.address, err, want)
	}
	if in.Known != "" {
		b.known = in.Known
	}
	return in
}

// wantDelayed fails unless the last attempt waited as one at an attacked account, or did not.
func (b *browser) wantDelayed(want bool) {
	b.t.Helper()
	if got := slices.Contains(b.paused, b.AccountDelay); got != want {
		b.t.Errorf("from %s the attempt is delayed: %t, want %t", b.address, got, want)
	}
}

const wrong = "a wrong password"

// marks counts the browsers that are known.
func (s *scene) marks() (n int) {
	s.t.Helper()
	runtest.Must(s.t, s.DB.QueryRow(s.t.Context(), `select count(*) from ops.signin_browsers`).Scan(&n))
	return n
}

// Whatever strangers do to an account, its person signs in at once where the person signed in before. From elsewhere,
// the attempt waits for its turn.
func TestSignIn_AttackedFromManyAddresses(t *testing.T) {
	s := newScene(t).cheap().password()
	own, strange := &browser{s, home, ""}, &browser{s, away, ""}
	own.tries(anasMail, anas, nil)
	for n := range 151 {
		s.enters(anasMail, wrong, fmt.Sprintf("203.0.113.%d", n), ErrRefused)
	}
	own.tries(anasMail, anas, nil)
	own.wantDelayed(false)
	own.address = "192.0.2.77" // of the next day
	own.tries(anasMail, anas, nil)
	own.wantDelayed(false)
	strange.tries(anasMail, anas, nil)
	strange.wantDelayed(true)
	strange.tries(anasMail, anas, nil) // is known now
	strange.wantDelayed(false)
}

// Those who share a network address with a known browser do not keep it out.
func TestSignIn_KnownBrowserOnAThrottledNetwork(t *testing.T) {
	s := newScene(t, func(c *Config) { c.AddressFailures, c.PairFailures = 3, 2 }).cheap().password()
	own, strange := &browser{s, home, ""}, &browser{s, home, ""}
	own.tries(anasMail, anas, nil)
	strange.tries(anasMail, wrong, ErrRefused)
	strange.tries(anasMail, wrong, ErrRefused)
	strange.tries(anasMail, anas, throttled) // the pair
	strange.tries("bo@acme.example", wrong, throttled)
	own.tries(anasMail, anas, nil)
}

// A known browser may fail as often as a stranger, and then counts as one.
func TestSignIn_KnownBrowserGuesses(t *testing.T) {
	s := newScene(t, func(c *Config) { c.PairFailures, c.AccountFailures = 3, 1 }).cheap().password()
	thief := &browser{s, home, ""}
	thief.tries(anasMail, anas, nil)
	s.enters(anasMail, wrong, away, ErrRefused)
	s.enters(anasMail, wrong, away, ErrRefused) // from now on strangers wait
	for range s.PairFailures - 1 {
		thief.tries(anasMail, wrong, ErrRefused)
		thief.wantDelayed(false)
	}
	thief.tries(anasMail, anas, nil) // the last one that is looked at
	thief.wantDelayed(false)
	for range s.PairFailures {
		thief.tries(anasMail, wrong, ErrRefused)
		thief.wantDelayed(false)
	}
	thief.tries(anasMail, wrong, ErrRefused)
	thief.wantDelayed(true)
	thief.tries(anasMail, wrong, ErrRefused)
	thief.tries(anasMail, wrong, ErrRefused)
	thief.tries(anasMail, anas, throttled)
	s.pass(s.Window)
	thief.tries(anasMail, anas, nil)
	thief.wantDelayed(false)
}

// A mark that is made up, of another person, damaged or old counts as none.
func TestSignIn_MarksOfOthers(t *testing.T) {
	const bosMail = "bo@acme.example"
	s := newScene(t, func(c *Config) { c.AccountFailures = 1 }).cheap().password()
	bo := uuid.New()
	s.people[bosMail] = bo
	_, err := s.GeneratePassword(t.Context(), bo, "bo@acme.example", anas)
	runtest.Must(t, err)
	own, bos, late := &browser{s, home, ""}, &browser{s, home, ""}, &browser{s, home, ""}
	late.tries(anasMail, anas, nil)
	s.pass(KnownLife - time.Hour)
	own.tries(anasMail, anas, nil)
	bos.tries(bosMail, anas, nil)
	for n := range 3 {
		s.enters(anasMail, wrong, fmt.Sprintf("203.0.113.%d", n), ErrRefused)
	}
	late.tries(anasMail, anas, nil)
	late.wantDelayed(false)
	s.pass(time.Hour)
	runtest.Must(t, s.Tidy(t.Context()))
	for n := range 3 {
		s.enters(anasMail, wrong, fmt.Sprintf("203.0.113.%d", n), ErrRefused)
	}
	for name, known := range map[string]string{
		"made up": newToken(), "of another person": bos.known, "damaged": own.known[1:] + "A", "long": strings.Repeat("A", 1<<16),
		"in pieces": strings.Repeat(".", 1<<16), "after many": strings.Repeat(newToken()+".", maxMarks) + own.known,
	} {
		b := &browser{s, away, known}
		b.tries(anasMail, anas, nil)
		if b.wantDelayed(true); t.Failed() {
			t.Fatal(name)
		}
	}
	b := &browser{s, away, strings.Repeat(newToken()+".", maxMarks-1) + own.known}
	b.tries(anasMail, anas, nil)
	b.wantDelayed(false)
	bos.tries(bosMail, anas, nil) // failures at one account are none of another's
	bos.wantDelayed(false)
}

// A mark is spent as it is used: what somebody copied before is worth nothing after the next sign-in.
func TestRemember_NewAtEachSignIn(t *testing.T) {
	s := newScene(t, func(c *Config) { c.AccountFailures = 1 }).cheap().password()
	own := &browser{s, home, ""}
	own.tries(anasMail, anas, nil)
	thief := &browser{s, away, own.known}
	own.tries(anasMail, anas, nil)
	if n := s.marks(); n != 1 {
		t.Errorf("%d marks of one browser", n)
	}
	for n := range 2 {
		s.enters(anasMail, wrong, fmt.Sprintf("203.0.113.%d", n), ErrRefused)
	}
	thief.tries(anasMail, wrong, ErrRefused)
	thief.wantDelayed(true)
}

// Several people may use one browser. It is known of each, and of no more than a few.
func TestRemember_SharedBrowser(t *testing.T) {
	s := newScene(t, func(c *Config) { c.AccountFailures = 1 }).cheap()
	shared := &browser{s, home, ""}
	mail := func(n int) string { return fmt.Sprintf("p%d@acme.example", n) }
	for n := range maxMarks + 1 {
		s.people[mail(n)] = uuid.New()
		_, err := s.GeneratePassword(t.Context(), s.people[mail(n)], mail(n), anas)
		runtest.Must(t, err)
		shared.tries(mail(n), anas, nil)
		shared.tries(mail(n), anas, nil)
		for from := range 2 {
			s.enters(mail(n), wrong, fmt.Sprintf("203.0.%d.%d", n, from), ErrRefused)
		}
	}
	for n := range maxMarks + 1 {
		shared.tries(mail(n), wrong, ErrRefused)
		shared.wantDelayed(n == 0)
	}
	if n := s.marks(); n != maxMarks+1 {
		t.Errorf("%d marks of %d people", n, maxMarks+1)
	}
}

// Only so many browsers of a person are known: those of the latest sign-ins.
func TestRemember_IsBounded(t *testing.T) {
	s := newScene(t, func(c *Config) { c.AccountFailures = 1 }).cheap().password()
	all := make([]*browser, maxKnown+1)
	for n := range all {
		all[n] = &browser{s, home, ""}
		all[n].tries(anasMail, anas, nil)
		s.pass(time.Second)
	}
	if n := s.marks(); n != maxKnown {
		t.Errorf("%d browsers are known, want %d", n, maxKnown)
	}
	for n := range 2 {
		s.enters(anasMail, wrong, fmt.Sprintf("203.0.113.%d", n), ErrRefused)
	}
	first, second := *all[0], *all[1]
	second.tries(anasMail, wrong, ErrRefused)
	second.wantDelayed(false)
	first.tries(anasMail, wrong, ErrRefused)
	first.wantDelayed(true)
}

// A mark ends with what ends all sessions, and stays after a sign-out.
func TestRemember_Ends(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*scene, SignedIn) error
		left int
	}{
		"a sign-out": {func(s *scene, in SignedIn) error { return s.SignOut(s.t.Context(), in.Token) }, 1},
		"the end of one session": {func(s *scene, in SignedIn) error {
			return s.EndSession(s.t.Context(), s.ana, s.find(in.Token).ID)
		}, 1},
		"a sign-out everywhere":    {func(s *scene, _ SignedIn) error { return s.SignOutEverywhere(s.t.Context(), s.ana, false) }, 0},
		"a reset of the factor":    {func(s *scene, _ SignedIn) error { return s.ResetSecondFactor(s.t.Context(), s.ana) }, 0},
		"the removal":              {func(s *scene, _ SignedIn) error { return s.EndPerson(s.t.Context(), s.ana) }, 0},
		"the tidying of what ends": {func(s *scene, _ SignedIn) error { s.pass(KnownLife); return s.Tidy(s.t.Context()) }, 0},
		"the tidying a bit earlier": {func(s *scene, _ SignedIn) error {
			s.pass(KnownLife - time.Second)
			return s.Tidy(s.t.Context())
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t).cheap().password()
			own := &browser{s, home, ""}
			runtest.Must(t, c.do(s, own.tries(anasMail, anas, nil)))
			if n := s.marks(); n != c.left {
				t.Errorf("%d browsers are known, want %d", n, c.left)
			}
		})
	}
}

// After a reset only the browser that used the link is known.
func TestRemember_EndsWithAReset(t *testing.T) {
	s := newScene(t).cheap().password()
	own, other := &browser{s, home, ""}, &browser{s, away, ""}
	own.tries(anasMail, anas, nil)
	other.tries(anasMail, anas, nil)
	token, err := s.NewLink(t.Context(), Link{Purpose: Reset, Person: s.ana, Email: anasMail, Organization: uuid.New()})
	runtest.Must(t, err)
	in, err := s.SetPassword(t.Context(), token, Attempt{Password: "the next password", Client: own.client()})
	runtest.Must(t, err)
	marks, err := s.marksOf(t.Context(), s.DB, Client{Known: in.Known})
	if runtest.Must(t, err); !isOf(marks, s.ana) || s.marks() != 1 {
		t.Errorf("%d browsers are known, the own one: %v", s.marks(), marks)
	}
}

// Who knows the password alone makes no browser known, and keeps its person from no code.
func TestSecondFactor_KnownBrowser(t *testing.T) {
	s := newScene(t, func(c *Config) { c.SecondFactorFailures = 2 }).cheap().password()
	own, thief := &browser{s, home, ""}, &browser{s, away, ""}
	signed := own.tries(anasMail, anas, nil)
	e, err := s.Enrol(s.ana, anasMail, "")
	runtest.Must(t, err)
	enrolled, _, err := s.Confirm(t.Context(), *s.find(signed.Token), Attempt{Client: own.client()}, e.Sealed, s.code(e))
	runtest.Must(t, err)
	own.known = enrolled.Known
	code := func(b *browser, in SignedIn, code string, want error) {
		t.Helper()
		next, err := s.SecondFactor(t.Context(), in.Token, code, b.client())
		if next.Known != "" {
			b.known = next.Known
		}
		_, throttled := errors.AsType[*ThrottledError](err)
		if _, is := errors.AsType[*ThrottledError](want); is != throttled || !is && !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	s.pass(time.Minute)
	stolen := thief.tries(anasMail, anas, nil)
	if !stolen.Pending || thief.known != "" {
		t.Fatalf("%+v makes the browser known", stolen)
	}
	code(thief, stolen, "000000", ErrCode)
	code(thief, stolen, "000000", ErrCode)
	code(thief, stolen, s.code(e), throttled)
	mine := own.tries(anasMail, anas, nil)
	code(own, mine, "000000", ErrCode)
	code(own, mine, s.code(e), nil)
	mine = own.tries(anasMail, anas, nil)
	code(own, mine, "000000", ErrCode)
	code(own, mine, "000000", ErrCode)
	s.pass(30 * time.Second)
	code(own, mine, s.code(e), throttled)
}

// The address of an attempt is looked up before the throttle of strangers for a browser that is known of anybody. The
// time of a refusal does not tell whether somebody has it.
func TestSignIn_RefusesInTheSameTime(t *testing.T) {
	s := newScene(t, func(c *Config) { c.PairFailures, c.FailureTime = 1, time.Hour }).cheap().password()
	known, forged := &browser{s, home, ""}, &browser{s, away, newToken()}
	known.tries(anasMail, anas, nil)
	for _, b := range []*browser{known, forged} {
		b.tries("nobody@acme.example", wrong, ErrRefused)
		b.paused = nil
	}
	s.pass(s.Window)
	s.enters("bo@acme.example", wrong, home, ErrRefused)
	known.tries("bo@acme.example", wrong, throttled)
	if len(s.paused) != 1 || s.paused[0] < 59*time.Minute {
		t.Errorf("paused %v: the time shows what was looked up", s.paused)
	}
	s.enters("bo@acme.example", wrong, away, ErrRefused)
	forged.tries("bo@acme.example", wrong, throttled)
	if len(s.paused) != 0 {
		t.Errorf("paused %v though nothing was looked up", s.paused)
	}
}
