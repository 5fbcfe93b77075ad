package agents

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/ratelimit"
	"github.com/annals-project/annals/internal/runtest"
)

func newLimited(t *testing.T, at *time.Time) *Service {
	t.Helper()
	return New(Config{
		DB: pgtest.Database(t), Now: func() time.Time { return *at }, Logger: slog.Default(), HashKey: []byte("k"),
	})
}

// drawn is the hash of another address at each call.
func drawn() []byte {
	id := uuid.New()
	return id[:]
}

// Registrations are bounded for a network address, for an address of mail, and for all of them together. A part is kept
// for network addresses that registered before.
func TestLimit_OfRegistrations(t *testing.T) {
	clock := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	s := newLimited(t, &clock)
	one := drawn()
	same := func() []byte { return one }
	allowed := func(standing ratelimit.Standing, network, hint func() []byte) (n int) {
		known := func(context.Context) ([]ratelimit.Standing, error) {
			return []ratelimit.Standing{standing, standing, standing}, nil
		}
		for n <= registrationsOfAll && s.limitBy(t.Context(), network(), hint(), known) == nil {
			n++
		}
		return n
	}
	for _, c := range []struct {
		name          string
		network, hint func() []byte
		want          [3]int
	}{
		{"of a network address", same, drawn, [3]int{registrationsOfCaller}},
		{"for an address of mail", drawn, same, [3]int{8, 1, 1}},
		{"of all", drawn, drawn, [3]int{750, 125, 125}},
	} {
		for standing, want := range c.want {
			if n := allowed(ratelimit.Standing(standing), c.network, c.hint); n != want {
				t.Errorf("%s: %d more of standing %d, want %d", c.name, n, standing, want)
			}
		}
		clock = clock.Add(registeringSpan)
	}
}

// The standing of a network address comes from its registrations: those of before the hour, and those that a person
// let in, for the address of mail in particular.
func TestStandings_OfANetwork(t *testing.T) {
	clock := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	s := newLimited(t, &clock)
	const stranger, home = "198.51.100.1", "192.0.2.1"
	anas, bos := s.hintOf("ana@acme.example"), s.hintOf("bo@acme.example")
	is := func(from string, hint []byte, mine, all ratelimit.Standing) {
		t.Helper()
		got, err := s.standings(t.Context(), s.networkOf(from), hint)
		runtest.Must(t, err)
		if got[0] != ratelimit.Newcomer || got[1] != mine || got[2] != all {
			t.Errorf("%s has %v, want %d and %d", from, got, mine, all)
		}
	}
	is(home, anas, ratelimit.Newcomer, ratelimit.Newcomer)
	registered, err := s.register(t.Context(), "Agent", nil, anas, home)
	runtest.Must(t, err)
	is(home, anas, ratelimit.Newcomer, ratelimit.Newcomer)
	clock = clock.Add(registeringSpan - time.Microsecond)
	is(home, anas, ratelimit.Newcomer, ratelimit.Newcomer)
	clock = clock.Add(time.Microsecond)
	is(home, anas, ratelimit.Returning, ratelimit.Returning)
	is(home, bos, ratelimit.Newcomer, ratelimit.Returning)
	_, err = s.DB.Exec(t.Context(), `update ops.agent_registrations set claimed_at = now(), address = ''
		where claim_hash = $1`, hashOf(registered.Claim.Token))
	runtest.Must(t, err)
	is(home, anas, ratelimit.Trusted, ratelimit.Trusted)
	is(home, bos, ratelimit.Newcomer, ratelimit.Trusted)
	is(stranger, anas, ratelimit.Newcomer, ratelimit.Newcomer)
}

// Strangers who register for somebody's address of mail keep out no agent from where that person let one in.
func TestLimit_OfAnAddressUnderAttack(t *testing.T) {
	clock := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	s := newLimited(t, &clock)
	const home = "192.0.2.1"
	anas := s.hintOf("ana@acme.example")
	_, err := s.register(t.Context(), "Agent", nil, anas, home)
	runtest.Must(t, err)
	_, err = s.DB.Exec(t.Context(), `update ops.agent_registrations set claimed_at = now()`)
	runtest.Must(t, err)
	clock = clock.Add(registeringSpan)
	for range 2 * registrationsOfHint {
		_ = s.limit(t.Context(), drawn(), anas) // most are refused
	}
	for n := range 3 {
		if err := s.limit(t.Context(), s.networkOf(home), anas); (err == nil) != (n < 2) {
			t.Errorf("registration %d from home: %v", n, err)
		}
	}
}

// A name that hides, or turns round, what stands next to it on the page of the claim is refused.
func TestValidName(t *testing.T) {
	for name, valid := range map[string]bool{
		"": true, "Helper 2": true, "Hélper é": true, "a\u202Eb": false, "a\u200Bb": false, "a\nb": false, "a\u2066b": false,
	} {
		if validName(name) != valid {
			t.Errorf("%q is valid: %t", name, !valid)
		}
	}
}
