package signin

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/annals-project/annals/internal/runtest"
)

// code is what an app shows now.
func (s *scene) code(e Enrolment) string {
	s.t.Helper()
	code, err := totp.GenerateCode(e.Secret, s.clock)
	runtest.Must(s.t, err)
	return code
}

// enrolled gives Ana a password and a second factor.
func (s *scene) enrolled() (Enrolment, []string) {
	s.t.Helper()
	s.password()
	return s.enrolledBy()
}

// enrolledBy gives Ana a second factor.
func (s *scene) enrolledBy() (Enrolment, []string) {
	s.t.Helper()
	in := *s.find(s.session(s.ana, ""))
	e, err := s.Enrol(s.ana, anasMail, "")
	runtest.Must(s.t, err)
	_, codes, err := s.Confirm(s.t.Context(), in, Attempt{}, e.Sealed, s.code(e))
	runtest.Must(s.t, err)
	s.pass(codeStep * time.Second)
	return e, codes
}

func TestConfirm_BeginsANewSession(t *testing.T) {
	s := newScene(t).password()
	former, other := s.session(s.ana, ""), s.session(s.ana, "")
	in := *s.find(former)
	e, err := s.Enrol(s.ana, "ana+x@acme.example", "")
	runtest.Must(t, err)
	if !strings.HasPrefix(e.URI, "otpauth://totp/Annals:ana+x@acme.example?secret="+e.Secret+"&issuer=Annals&") {
		t.Errorf("URI %s", e.URI)
	}
	again, err := s.Enrol(s.ana, anasMail, e.Sealed)
	runtest.Must(t, err)
	if again.Secret != e.Secret {
		t.Error("a form that is sent again shows another secret")
	}
	a := Attempt{Former: former}
	if _, _, err := s.Confirm(t.Context(), in, a, e.Sealed, "000000"); !errors.Is(err, ErrCode) || s.find(former) == nil {
		t.Errorf("with a wrong code: %v", err)
	}
	if _, _, err := s.Confirm(t.Context(), in, a, e.Sealed+"x", s.code(e)); !errors.Is(err, ErrCode) {
		t.Errorf("with a damaged form: %v", err)
	}
	next, codes, err := s.Confirm(t.Context(), in, a, e.Sealed, " "+s.code(e)[:3]+" "+s.code(e)[3:])
	runtest.Must(t, err)
	if got := s.find(next.Token); got == nil || !got.SecondFactor || s.find(former) != nil || s.find(other) != nil {
		t.Errorf("session %+v", got)
	}
	if len(codes) != recoveryCodes || len(codes[0]) != 19 {
		t.Errorf("codes %v", codes)
	}
	if _, _, err := s.Confirm(t.Context(), in, a, e.Sealed, s.code(e)); !errors.Is(err, ErrEnrolled) {
		t.Errorf("a second time: %v", err)
	}
}

func TestSecondFactor_IsPassed(t *testing.T) {
	s := newScene(t)
	e, codes := s.enrolled()
	pending := s.enters(anasMail, anas, home, nil)
	if !pending.Pending || s.find(pending.Token) != nil {
		t.Fatalf("the password alone signs in: %+v", pending)
	}
	pass := func(token, code string, want error) SignedIn {
		t.Helper()
		in, err := s.SecondFactor(t.Context(), token, code, Client{})
		if !errors.Is(err, want) || err == nil && (!s.find(in.Token).SecondFactor || s.find(token) != nil ||
			in.Token == token) {
			t.Errorf("code %s: %+v, %v, want %v", code, in, err, want)
		}
		return in
	}
	code := s.code(e)
	pass(pending.Token, "000000", ErrCode)
	pass(pending.Token, "", ErrCode)
	pass(pending.Token, code, nil)
	pass(pending.Token, code, ErrRefused) // it waits no more
	pending = s.enters(anasMail, anas, home, nil)
	pass(pending.Token, code, ErrCode) // each works once
	pass(pending.Token, strings.ToLower(codes[0]), nil)
	pending = s.enters(anasMail, anas, home, nil)
	pass(pending.Token, codes[0], ErrCode)
	s.pass(pendingLife)
	pass(pending.Token, s.code(e), ErrRefused)
	full := s.session(s.ana, "")
	pass(full, s.code(e), ErrRefused)
}

func TestSecondFactor_ClockThatIsOff(t *testing.T) {
	for off, want := range map[time.Duration]error{
		-2 * codeStep * time.Second: ErrCode, -codeStep * time.Second: nil, 0: nil, codeStep * time.Second: nil,
		2 * codeStep * time.Second: ErrCode,
	} {
		s := newScene(t)
		e, _ := s.enrolled()
		s.pass(3 * codeStep * time.Second)
		pending := s.enters(anasMail, anas, home, nil)
		code := s.code(e)
		s.pass(-off)
		if _, err := s.SecondFactor(t.Context(), pending.Token, code, Client{}); !errors.Is(err, want) {
			t.Errorf("a code that is off by %v: %v, want %v", off, err, want)
		}
	}
}

func TestSecondFactor_CodeUsedAtTheSameTime(t *testing.T) {
	s := newScene(t)
	e, _ := s.enrolled()
	var passed atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		pending := s.enters(anasMail, anas, home, nil)
		all.Go(func() {
			if _, err := s.SecondFactor(t.Context(), pending.Token, s.code(e), Client{}); err == nil {
				passed.Add(1)
			} else if !errors.Is(err, ErrCode) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if passed.Load() != 1 {
		t.Errorf("a code was used %d times", passed.Load())
	}
}

func TestSecondFactor_Guessed(t *testing.T) {
	s := newScene(t, func(c *Config) { c.SecondFactorFailures = 3 })
	e, _ := s.enrolled()
	pending := s.enters(anasMail, anas, home, nil)
	for range 3 {
		if _, err := s.SecondFactor(t.Context(), pending.Token, "000000", Client{}); !errors.Is(err, ErrCode) {
			t.Errorf("%v, want a refusal", err)
		}
	}
	if _, err := s.SecondFactor(t.Context(), pending.Token, s.code(e), Client{}); errors.Is(err, ErrCode) || err == nil {
		t.Errorf("%v, want to be throttled", err)
	}
}

func TestSecondFactor_Removed(t *testing.T) {
	s := newScene(t)
	e, _ := s.enrolled()
	pending := s.enters(anasMail, anas, home, nil)
	in, err := s.SecondFactor(t.Context(), pending.Token, s.code(e), Client{})
	runtest.Must(t, err)
	s.pass(codeStep * time.Second)
	codes, err := s.NewRecoveryCodes(t.Context(), s.ana, s.code(e))
	runtest.Must(t, err)
	if err := s.RemoveSecondFactor(t.Context(), s.ana, "000000"); !errors.Is(err, ErrCode) {
		t.Errorf("with a wrong code: %v", err)
	}
	runtest.Must(t, s.RemoveSecondFactor(t.Context(), s.ana, codes[9]))
	if got := s.find(in.Token); got == nil || got.SecondFactor {
		t.Errorf("session %+v, want one without the second factor", got)
	}
	if in := s.enters(anasMail, anas, home, nil); in.Pending {
		t.Error("a removed second factor is asked for")
	}
}

func TestSecondFactor_ResetByAnAdmin(t *testing.T) {
	s := newScene(t)
	e, codes := s.enrolled()
	open, pending := s.session(s.ana, ""), s.enters(anasMail, anas, home, nil)
	runtest.Must(t, s.ResetSecondFactor(t.Context(), s.ana))
	if s.find(open) != nil {
		t.Error("a session lives")
	}
	for _, code := range []string{s.code(e), codes[1]} {
		if _, err := s.SecondFactor(t.Context(), pending.Token, code, Client{}); !errors.Is(err, ErrRefused) {
			t.Errorf("code %s: %v", code, err)
		}
	}
	if in := s.enters(anasMail, anas, home, nil); in.Pending {
		t.Error("the second factor that was reset is asked for")
	}
}

func TestSecondFactor_IsSealed(t *testing.T) {
	s := newScene(t)
	e, codes := s.enrolled()
	key, err := base32Text.DecodeString(e.Secret)
	runtest.Must(t, err)
	var holds int
	runtest.Must(t, s.DB.QueryRow(t.Context(), `select (select count(*) from ops.signin_people p where p::text like '%' || $1 || '%'
			or position($2 in totp) > 0 or position(convert_to($1, 'UTF8') in totp) > 0)
		+ (select count(*) from ops.signin_recovery_codes where code = convert_to($3, 'UTF8'))`,
		e.Secret, key, codes[0]).Scan(&holds))
	if holds != 0 {
		t.Error("a table holds a secret in clear")
	}
}
