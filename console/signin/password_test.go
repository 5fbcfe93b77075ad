package signin

import (
	"errors"
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
	for password, want := range map[string]error{
		strings.Repeat("ä", MinPassword-1): ErrPassword, strings.Repeat("ä", MinPassword): nil,
		strings.Repeat("ä", MaxPassword): nil, strings.Repeat("ä", MaxPassword+1): ErrPassword,
		"\xff" + strings.Repeat("a", MinPassword): ErrPassword,
	} {
		if _, err := s.ofKnown(s.ana).hash(t.Context(), password); !errors.Is(err, want) {
			t.Errorf("%d bytes: %v, want %v", len(password), err, want)
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
