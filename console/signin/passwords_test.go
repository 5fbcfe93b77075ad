package signin

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/runtest"
)

// enters signs in, and wants an error.
func (s *scene) enters(email, password, from string, want error) SignedIn {
	s.t.Helper()
	in, err := s.SignIn(s.t.Context(), Attempt{Email: email, Password: password, Client: Client{Browser: "Firefox", Address: from}})
	if _, throttled := errors.AsType[*ThrottledError](want); throttled {
		if _, is := errors.AsType[*ThrottledError](err); !is {
			s.t.Errorf("%s with %q from %s: %v, want to be throttled", email, password, from, err)
		}
	} else if !errors.Is(err, want) {
		s.t.Errorf("%s with %q from %s: %v, want %v", email, password, from, err, want)
	}
	if (err == nil) != (in.Token != "") {
		s.t.Errorf("%s got %+v with %v", email, in, err)
	}
	return in
}

// password gives Ana a password, as a first start does.
func (s *scene) password() *scene {
	s.t.Helper()
	set, err := s.GeneratePassword(s.t.Context(), s.ana, anasMail, anas)
	runtest.Must(s.t, err)
	if !set {
		s.t.Fatal("the person has a password")
	}
	return s
}

var throttled = &ThrottledError{}

func TestSignIn_ByPassword(t *testing.T) {
	s := newScene(t, func(c *Config) { c.FailureTime = time.Hour }).password()
	s.people["bo@acme.example"] = uuid.New() // is invited and has no password
	if in := s.enters(strings.ToUpper(anasMail), anas, home, nil); in.Pending || s.find(in.Token).Person != s.ana {
		t.Errorf("%+v", in)
	}
	for email, password := range map[string]string{
		anasMail: "another password", "bo@acme.example": anas, "nobody@acme.example": anas, "no address": anas,
		"ANA@acme.example": "", "Ana@acme.example": strings.Repeat("x", 1<<20), "aNa@acme.example": "\x00",
	} {
		s.enters(email, password, home, ErrRefused)
	}
	s.guests[s.ana] = true
	s.enters(anasMail, anas, home, ErrUninvited)
	if len(s.paused) != 7 {
		t.Errorf("%d of 7 refusals took their time", len(s.paused))
	}
}

// An attacker who plants a session in a browser must not share that of the person who then signs in.
func TestSignIn_EndsTheSessionOfTheBrowser(t *testing.T) {
	s := newScene(t).password()
	planted := s.session(uuid.New(), "")
	in, err := s.SignIn(t.Context(), Attempt{Email: anasMail, Password: anas, Former: planted})
	runtest.Must(t, err)
	if in.Token == planted || s.find(planted) != nil || s.find(in.Token).Person != s.ana {
		t.Errorf("the planted session lives: %+v", s.find(planted))
	}
}

func TestSignIn_ThrottledByAddressAndAccount(t *testing.T) {
	s := newScene(t, func(c *Config) { c.PairFailures = 3 }).password()
	for range 3 {
		s.enters(anasMail, "a wrong password", home, ErrRefused)
	}
	s.enters(anasMail, anas, home, throttled)
	s.enters("nobody@acme.example", anas, home, ErrRefused) // counts on its own
	s.enters(anasMail, anas, away, nil)
	s.enters(anasMail, anas, home, throttled)
	s.pass(s.Window)
	s.enters(anasMail, anas, home, nil)
	for range 5 {
		s.enters(anasMail, anas, home, nil) // what succeeds is no failure
	}
}

func TestSignIn_ThrottledByAddress(t *testing.T) {
	s := newScene(t, func(c *Config) { c.AddressFailures = 3 }).password()
	for n, from := range []string{"2001:db8::1", "2001:db8::2", "2001:db8:0:0:ffff::"} {
		s.enters(fmt.Sprintf("nobody%d@acme.example", n), anas, from, ErrRefused)
	}
	s.enters(anasMail, anas, "2001:db8::4", throttled)
	s.enters(anasMail, anas, "2001:db8:0:1::1", nil)
	var rows int
	runtest.Must(t, s.DB.QueryRow(t.Context(), `select count(*) from ops.signin_failures`).Scan(&rows))
	for n := range 20 {
		s.enters(fmt.Sprintf("more%d@acme.example", n), anas, "2001:db8::4", throttled)
	}
	var after int
	runtest.Must(t, s.DB.QueryRow(t.Context(), `select count(*) from ops.signin_failures`).Scan(&after))
	if after != rows {
		t.Errorf("%d rows, after refusals %d: an attacker can fill the table", rows, after)
	}
}

// Who attacks an account from everywhere slows its person down, and does not lock the person out.
func TestSignIn_AttackedAccount(t *testing.T) {
	s := newScene(t, func(c *Config) { c.AccountFailures = 4 }).password()
	for n := range 6 {
		s.enters(anasMail, "a wrong password", fmt.Sprintf("192.0.2.%d", 10+n), ErrRefused)
	}
	s.paused = nil
	s.enters(anasMail, anas, away, nil)
	if len(s.paused) != 1 || s.paused[0] != s.AccountDelay {
		t.Errorf("paused %v, want the delay of the account", s.paused)
	}
}

func TestChangePassword_EndsOtherSessions(t *testing.T) {
	s := newScene(t).password()
	one, two := s.session(s.ana, ""), s.session(s.ana, "")
	in := *s.find(one)
	if err := s.ChangePassword(t.Context(), in, uuid.Nil, "a wrong password", "the next password"); !errors.Is(err, ErrRefused) {
		t.Errorf("with a wrong password: %v", err)
	}
	if err := s.ChangePassword(t.Context(), in, uuid.Nil, anas, "short"); !errors.Is(err, ErrPassword) {
		t.Errorf("to a short one: %v", err)
	}
	if s.find(two) == nil {
		t.Error("the other session ended with nothing changed")
	}
	runtest.Must(t, s.ChangePassword(t.Context(), in, uuid.Nil, anas, "the next password"))
	if s.find(one) == nil || s.find(two) != nil {
		t.Error("the own session ended, or the other did not")
	}
	s.enters(anasMail, anas, home, ErrRefused)
	s.enters(anasMail, "the next password", home, nil)
	states, err := s.States(t.Context(), s.ana, uuid.New())
	runtest.Must(t, err)
	if st := states[s.ana]; len(states) != 1 || !st.Password || st.Generated {
		t.Errorf("states %+v", states)
	}
}

func TestChangePassword_Guessed(t *testing.T) {
	s := newScene(t, func(c *Config) { c.PairFailures = 2 }).password()
	in := *s.find(s.session(s.ana, ""))
	for range 2 {
		if err := s.ChangePassword(t.Context(), in, uuid.Nil, "a wrong password", "the next password"); !errors.Is(err, ErrRefused) {
			t.Errorf("%v, want a refusal", err)
		}
	}
	err := s.ChangePassword(t.Context(), in, uuid.Nil, anas, "the next password")
	if e, is := errors.AsType[*ThrottledError](err); !is || e.Retry != s.Window {
		t.Errorf("%v, want to be throttled for the window", err)
	}
}

func TestGeneratePassword_IsSetOnce(t *testing.T) {
	s := newScene(t).password()
	if set, err := s.GeneratePassword(t.Context(), s.ana, anasMail, "another password"); set || err != nil {
		t.Errorf("set again: %v, %v", set, err)
	}
	s.enters(anasMail, anas, home, nil)
}

func TestSetZone_Names(t *testing.T) {
	s := newScene(t)
	token := s.session(s.ana, "")
	for zone, want := range map[string]bool{"Europe/Vienna": true, "": true, "Local": false, "Europe/../x": false, "Mars": false} {
		known, err := s.SetZone(t.Context(), s.ana, zone)
		if err != nil || known != want {
			t.Errorf("%q: %v, %v", zone, known, err)
		}
		if got := s.find(token).Zone; want && got != zone {
			t.Errorf("the session has zone %q, want %q", got, zone)
		}
	}
}

func TestEndPerson_DeletesAllOfThePerson(t *testing.T) {
	s := newScene(t).password()
	in := *s.find(s.session(s.ana, ""))
	e, err := s.Enrol(s.ana, anasMail, "")
	runtest.Must(t, err)
	_, _, err = s.Confirm(t.Context(), in, Attempt{}, e.Sealed, s.code(e))
	runtest.Must(t, err)
	_, err = s.NewLink(t.Context(), Link{Purpose: Reset, Person: s.ana})
	runtest.Must(t, err)
	_, err = s.DB.Exec(t.Context(), `insert into ops.signin_accounts values ('https://idp.example', 'ana', $1)`, s.ana)
	runtest.Must(t, err)
	const rows = `select (select count(*) from ops.signin_people) + (select count(*) from ops.signin_sessions)
		+ (select count(*) from ops.signin_links) + (select count(*) from ops.signin_accounts)
		+ (select count(*) from ops.signin_recovery_codes)`
	var before, after int
	runtest.Must(t, s.DB.QueryRow(t.Context(), rows).Scan(&before))
	runtest.Must(t, s.EndPerson(t.Context(), s.ana))
	runtest.Must(t, s.DB.QueryRow(t.Context(), rows).Scan(&after))
	if before != 4+recoveryCodes || after != 0 {
		t.Errorf("%d rows before, %d after", before, after)
	}
}

// The clock of a window must not start again with each failure: a person could never sign in.
func TestThrottle_EndsThoughAttemptsGoOn(t *testing.T) {
	s := newScene(t, func(c *Config) { c.PairFailures = 1 }).password()
	s.enters(anasMail, "a wrong password", home, ErrRefused)
	for range 14 {
		s.pass(time.Minute)
		s.enters(anasMail, anas, home, throttled)
	}
	s.pass(time.Minute)
	s.enters(anasMail, anas, home, nil)
}

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
