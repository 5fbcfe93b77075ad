package signin

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

func TestPassword_Matches(t *testing.T) {
	s := newScene(t)
	stored, err := s.ofKnown(s.ana).hash(t.Context(), "Zoë's long password")
	runtest.Must(t, err)
	again, err := s.ofKnown(s.ana).hash(t.Context(), "Zoë's long password")
	runtest.Must(t, err)
	if stored == again || !strings.HasPrefix(stored, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("stored %s and %s", stored, again)
	}
	for password, want := range map[string]bool{
		"Zoë's long password": true, "Zoe\u0308's long password": true, "Zoe's long password": false, "": false,
	} {
		if got, err := s.ofKnown(s.ana).matches(t.Context(), password, stored); got != want || err != nil {
			t.Errorf("%q: %v, %v", password, got, err)
		}
	}
	if got, err := s.ofKnown(s.ana).matches(t.Context(), "Zoë's long password", ""); got || err != nil {
		t.Errorf("without a stored one: %v, %v", got, err)
	}
}

func TestPassword_Length(t *testing.T) {
	s := newScene(t)
	drawn := make([]rune, MaxPassword+1)
	for rng, i := rand.New(rand.NewPCG(1, 2)), 0; i < len(drawn); i++ {
		drawn[i] = 'À' + rng.Int32N(60)
	}
	of := func(n int) string { return string(drawn[:n]) }
	for password, want := range map[string]error{
		of(MinPassword - 1): ErrPassword, of(MinPassword): nil, of(MaxPassword): nil, of(MaxPassword + 1): ErrPassword,
		"\xff" + of(MinPassword): ErrPassword,
	} {
		if _, err := s.ofKnown(s.ana).hash(t.Context(), password); !errors.Is(err, want) {
			t.Errorf("%d bytes: %v, want %v", len(password), err, want)
		}
	}
}

// Common passwords, repetitions and rows of keys are no new passwords. Several words and drawn letters are.
func TestPassword_GuessedEarly(t *testing.T) {
	for password, want := range map[string]error{
		"aaaaaaaaaaaa": ErrGuessable, "ääääääääääää": ErrGuessable, "abcabcabcabc": ErrGuessable, "ÄBÄBÄBÄBäbäb": ErrGuessable,
		"password1234": ErrGuessable, "Passw0rd1234": ErrGuessable, "qwertyuiop12": ErrGuessable, "123456789012": ErrGuessable,
		"iloveyou1234": ErrGuessable, "annals123456": ErrGuessable, "1q2w3e4r5t6y": ErrGuessable,
		strings.Repeat("Passwort", MaxPassword/8): ErrGuessable,
		"correct horse battery":                   nil, "my own password": nil, "x7Kq9mPw2LvB": nil, "Zoë's long password": nil,
	} {
		if err := checkNew(password); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", password, err, want)
		}
	}
}

// A row that asks for gigabytes must not end the service.
func TestPassword_DamagedRows(t *testing.T) {
	s := newScene(t)
	good, err := s.ofKnown(s.ana).hash(t.Context(), anas)
	runtest.Must(t, err)
	for _, stored := range []string{
		"x", strings.Replace(good, "argon2id", "bcrypt", 1), strings.Replace(good, "m=19456", "m=99999999", 1),
		strings.Replace(good, "t=2", "t=0", 1), strings.Replace(good, "p=1", "p=0", 1),
		strings.Replace(good, "v=19", "v=18", 1), good + "!",
	} {
		if got, err := s.ofKnown(s.ana).matches(t.Context(), anas, stored); got || err == nil {
			t.Errorf("%s: %v, %v", stored, got, err)
		}
	}
}
