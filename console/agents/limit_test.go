package agents

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
)

// Registrations are bounded for a network address, for an address of mail, and for all of them together.
func TestLimit_OfRegistrations(t *testing.T) {
	clock := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	s := New(Config{Now: func() time.Time { return clock }, Logger: slog.Default(), HashKey: []byte("k")})
	allowed := func(caller, hint func() uuid.UUID) (n int) {
		for n <= registrationsOfAll && s.allow(caller(), hint()) == nil {
			n++
		}
		clock = clock.Add(2 * time.Hour)
		return n
	}
	one := uuid.New()
	same := func() uuid.UUID { return one }
	if n := allowed(same, uuid.New); n != registrationsOfCaller {
		t.Errorf("%d of a network address", n)
	}
	if n := allowed(uuid.New, same); n != registrationsOfHint {
		t.Errorf("%d for an address of mail", n)
	}
	if n := allowed(uuid.New, uuid.New); n != registrationsOfAll {
		t.Errorf("%d of all", n)
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
