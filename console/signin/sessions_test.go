package signin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/runtest"
)

func TestSession_Ends(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*scene, string)
		want bool
	}{
		"not":                      {func(*scene, string) {}, true},
		"after a time without use": {func(s *scene, _ string) { s.pass(s.Idle) }, false},
		"not before that":          {func(s *scene, _ string) { s.pass(s.Idle - time.Minute) }, true},
		"with a sign-out":          {func(s *scene, token string) { runtest.Must(s.t, s.SignOut(s.t.Context(), token)) }, false},
		"with all of the person":   {func(s *scene, _ string) { runtest.Must(s.t, s.SignOutEverywhere(s.t.Context(), s.ana, false)) }, false},
		"with the person":          {func(s *scene, _ string) { runtest.Must(s.t, s.EndPerson(s.t.Context(), s.ana)) }, false},
		"not with another's":       {func(s *scene, _ string) { runtest.Must(s.t, s.SignOutEverywhere(s.t.Context(), uuid.New(), false)) }, true},
		"with the next one":        {func(s *scene, token string) { s.session(s.ana, token) }, false},
		"not with one elsewhere":   {func(s *scene, _ string) { s.session(s.ana, "") }, true},
		"with many others": {func(s *scene, _ string) {
			for range maxSessions {
				s.pass(time.Millisecond)
				s.session(s.ana, "")
			}
		}, false},
		"one of them, and not by another person": {func(s *scene, token string) {
			runtest.Must(s.t, s.EndSession(s.t.Context(), uuid.New(), s.find(token).ID))
		}, true},
		"one of them": {func(s *scene, token string) {
			runtest.Must(s.t, s.EndSession(s.t.Context(), s.ana, s.find(token).ID))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			token := s.session(s.ana, "")
			c.end(s, token)
			if found := s.find(token); (found != nil) != c.want {
				t.Errorf("session %+v", found)
			}
		})
	}
}

func TestSession_LongestLife(t *testing.T) {
	s := newScene(t)
	token := s.session(s.ana, "")
	for range int(s.Longest / time.Hour) {
		if s.find(token) == nil {
			t.Fatalf("it ended at %v", s.clock)
		}
		s.pass(time.Hour)
	}
	if s.find(token) != nil {
		t.Error("a session that is used ends never")
	}
}

func TestSession_UseIsWrittenOnceAMinute(t *testing.T) {
	s := newScene(t)
	token := s.session(s.ana, "")
	began := s.clock
	for _, c := range []struct{ pass, want time.Duration }{
		{59 * time.Second, 0}, {time.Second, time.Minute}, {time.Second, time.Minute},
	} {
		s.pass(c.pass)
		s.find(token)
		list, err := s.Sessions(t.Context(), s.ana)
		runtest.Must(t, err)
		if len(list) != 1 || list[0].UsedAt.Sub(began) != c.want || list[0].Browser != "Firefox" || list[0].Address != home {
			t.Errorf("sessions %+v", list)
		}
	}
}

func TestSession_OrganizationStaysChosen(t *testing.T) {
	s, acme := newScene(t), uuid.New()
	token := s.session(s.ana, "")
	runtest.Must(t, s.ChooseOrganization(t.Context(), s.find(token).ID, acme))
	again := s.session(s.ana, token)
	if found := s.find(again); again == token || found.Organization != acme {
		t.Errorf("session %+v", found)
	}
	if found := s.find(s.session(uuid.New(), again)); found.Organization != uuid.Nil {
		t.Errorf("another person's session %+v", found)
	}
}

func TestSession_TokensAreNotStored(t *testing.T) {
	s := newScene(t)
	token := s.session(s.ana, "")
	var holds int
	runtest.Must(t, s.DB.QueryRow(t.Context(), `select count(*) from ops.signin_sessions s where s::text like $1`,
		"%"+token+"%").Scan(&holds))
	if holds != 0 {
		t.Error("the table holds a token")
	}
	for _, other := range []string{"", "x", strings.ToUpper(token), token + "x"} {
		if s.find(other) != nil {
			t.Errorf("%q is a session", other)
		}
	}
}

func TestTidy_EndsWhoIsRemoved(t *testing.T) {
	s := newScene(t).password()
	kept, err := s.GeneratePassword(t.Context(), uuid.New(), "bo@acme.example", anas)
	runtest.Must(t, err)
	token := s.session(s.ana, "")
	runtest.Must(t, s.Tidy(t.Context()))
	if s.find(token) == nil || !kept {
		t.Fatal("a person who lives ended")
	}
	s.gone = append(s.gone, s.ana)
	runtest.Must(t, s.Tidy(t.Context()))
	var left int
	runtest.Must(t, s.DB.QueryRow(t.Context(), `select count(*) from ops.signin_people`).Scan(&left))
	if s.find(token) != nil || left != 1 {
		t.Errorf("the session lives, or %d people are left, want 1", left)
	}
}

func TestTidy_DeletesWhatHasExpired(t *testing.T) {
	s := newScene(t)
	s.session(s.ana, "")
	s.pass(s.Idle - time.Minute)
	s.session(s.ana, "")
	s.pass(time.Minute)
	runtest.Must(t, s.Tidy(t.Context()))
	var left int
	runtest.Must(t, s.DB.QueryRow(t.Context(), `select count(*) from ops.signin_sessions`).Scan(&left))
	if left != 1 {
		t.Errorf("%d sessions are left, want the one that was used", left)
	}
}

// programs are Grants that note what ended.
type programs struct{ ended, recorded []uuid.UUID }

func (p *programs) End(_ context.Context, _ pgx.Tx, person uuid.UUID) error {
	p.ended = append(p.ended, person)
	return nil
}

func (p *programs) Record(_ context.Context, person uuid.UUID) {
	p.recorded = append(p.recorded, person)
}

func TestFresh_LastsTenMinutes(t *testing.T) {
	s := newScene(t).password()
	token := s.enters(anasMail, anas, home, nil).Token
	fresh := func(want bool) {
		t.Helper()
		if in := s.find(token); in == nil || s.Fresh(*in) != want {
			t.Errorf("fresh is not %t after a proof: %+v", want, in)
		}
	}
	s.pass(FreshLife - time.Microsecond)
	fresh(true)
	s.pass(time.Microsecond)
	fresh(false)
	if err := s.Prove(t.Context(), *s.find(token), uuid.New(), "wrong", ""); !errors.Is(err, ErrRefused) {
		t.Errorf("a wrong password: %v", err)
	}
	fresh(false)
	runtest.Must(t, s.Prove(t.Context(), *s.find(token), uuid.New(), anas, ""))
	fresh(true)
	s.pass(FreshLife)
	fresh(false)
	_, err := s.DB.Exec(t.Context(), `update ops.signin_sessions set proved_at = null`)
	runtest.Must(t, err)
	fresh(false)
}

func TestProve_ByCode(t *testing.T) {
	s := newScene(t)
	e, codes := s.enrolled()
	token, other := s.session(s.ana, ""), s.session(s.ana, "")
	s.pass(FreshLife)
	for _, code := range []string{"000000", "AAAA-AAAA-AAAA-AAAA"} {
		if err := s.Prove(t.Context(), *s.find(token), uuid.New(), "", code); !errors.Is(err, ErrCode) {
			t.Errorf("%q: %v", code, err)
		}
	}
	if s.Fresh(*s.find(token)) {
		t.Error("a wrong code is a proof")
	}
	for _, code := range []string{s.code(e), codes[0]} {
		s.pass(FreshLife)
		if code != codes[0] {
			code = s.code(e)
		}
		runtest.Must(t, s.Prove(t.Context(), *s.find(token), uuid.New(), "", code))
		if !s.Fresh(*s.find(token)) || s.Fresh(*s.find(other)) {
			t.Errorf("%q is no proof, or one of another session", code)
		}
		if err := s.Prove(t.Context(), *s.find(token), uuid.New(), "", code); !errors.Is(err, ErrCode) {
			t.Errorf("%q again: %v", code, err)
		}
	}
}

// The throttle is asked before a hash is computed.
func TestProve_IsThrottled(t *testing.T) {
	s := newScene(t, func(c *Config) { c.PairFailures = 2 }).password()
	in := *s.find(s.session(s.ana, ""))
	for range 2 {
		if err := s.Prove(t.Context(), in, uuid.New(), "wrong", ""); !errors.Is(err, ErrRefused) {
			t.Errorf("a wrong password: %v", err)
		}
	}
	err := s.Prove(t.Context(), in, uuid.New(), anas, "")
	if _, is := errors.AsType[*ThrottledError](err); !is {
		t.Errorf("after too many: %v", err)
	}
	s.pass(s.Window)
	runtest.Must(t, s.Prove(t.Context(), in, uuid.New(), anas, ""))
}

// A session alone gives no new way to sign in.
func TestFresh_IsAskedFor(t *testing.T) {
	s := newScene(t)
	token := s.session(s.ana, "")
	e, err := s.Enrol(s.ana, anasMail, "")
	runtest.Must(t, err)
	s.pass(FreshLife)
	stale := *s.find(token)
	if err := s.ChangePassword(t.Context(), stale, uuid.New(), "", anas); !errors.Is(err, ErrProof) {
		t.Errorf("a first password: %v", err)
	}
	if _, _, err := s.Confirm(t.Context(), stale, Attempt{}, e.Sealed, s.code(e)); !errors.Is(err, ErrProof) {
		t.Errorf("a second factor: %v", err)
	}
	if states, err := s.States(t.Context(), s.ana); err != nil || states[s.ana].Password || states[s.ana].SecondFactor {
		t.Errorf("%+v %v", states, err)
	}
	fresh := *s.find(s.session(s.ana, token))
	runtest.Must(t, s.ChangePassword(t.Context(), fresh, uuid.New(), "", anas))
	_, _, err = s.Confirm(t.Context(), fresh, Attempt{}, e.Sealed, s.code(e))
	runtest.Must(t, err)
}

func TestStartProof(t *testing.T) {
	for name, r := range map[string]struct {
		authTime time.Duration // from the start of the attempt; the person takes a minute
		claims   map[string]any
		change   func(*scene, *Callback)
		want     error
	}{
		"in time":               {30 * time.Second, nil, nil, nil},
		"at the slack":          {-authTimeSlack, nil, nil, nil},
		"before the attempt":    {-authTimeSlack - time.Second, nil, nil, ErrProvider},
		"after its answer":      {time.Minute + authTimeSlack + time.Second, nil, nil, ErrProvider},
		"no time":               {0, map[string]any{"auth_time": nil}, nil, ErrProvider},
		"another account":       {0, map[string]any{"sub": "another"}, nil, ErrOtherAccount},
		"another session":       {0, nil, func(s *scene, b *Callback) { b.Former = s.session(s.ana, "") }, ErrAttempt},
		"no session":            {0, nil, func(_ *scene, b *Callback) { b.Former = "" }, ErrAttempt},
		"a session that ended":  {0, nil, func(s *scene, b *Callback) { runtest.Must(s.t, s.SignOut(s.t.Context(), b.Former)) }, ErrAttempt},
		"an account of another": {0, nil, func(s *scene, _ *Callback) { s.give(uuid.New()) }, ErrOtherAccount},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := withCompany(t)
			token := s.finish(s.start(c, false), nil).Token
			s.pass(FreshLife)
			to, cookie, err := s.StartProof(t.Context(), *s.find(token))
			runtest.Must(t, err)
			c.Asked = queryOf(t, to)
			if c.Asked.Get("prompt") != "login" || c.Asked.Get("max_age") != "0" {
				t.Errorf("asked %v", c.Asked)
			}
			c.Claims = map[string]any{"auth_time": s.clock.Add(r.authTime).Unix()}
			for claim, v := range r.claims {
				c.Claims[claim] = v
			}
			s.pass(time.Minute)
			back := Callback{State: c.Asked.Get("state"), Code: "the code", Cookie: cookie, Former: token}
			if r.change != nil {
				r.change(s, &back)
			}
			in, _, err := s.Finish(t.Context(), back)
			if !errors.Is(err, r.want) || in.Token != "" || in.Proved != (r.want == nil) {
				t.Errorf("%+v, %v, want %v", in, err, r.want)
			}
			if found := s.find(token); found != nil && s.Fresh(*found) != (r.want == nil) {
				t.Errorf("fresh is %t", r.want != nil)
			}
		})
	}
}

// give makes all accounts at the provider those of another person.
func (s *scene) give(to uuid.UUID) {
	s.t.Helper()
	_, err := s.DB.Exec(s.t.Context(), `insert into ops.signin_people (person_id) values ($1)`, to)
	runtest.Must(s.t, err)
	_, err = s.DB.Exec(s.t.Context(), `update ops.signin_accounts set person_id = $1`, to)
	runtest.Must(s.t, err)
}

// What programs may do ends with the password, and with all sessions if the person asks for it.
func TestGrants_End(t *testing.T) {
	for name, r := range map[string]struct {
		end  func(*scene) error
		want bool
	}{
		"a reset": {func(s *scene) error {
			token, err := s.NewLink(s.t.Context(), Link{Purpose: Owner, Person: s.ana, Email: anasMail})
			runtest.Must(s.t, err)
			_, err = s.SetPassword(s.t.Context(), token, Attempt{Password: anas})
			return err
		}, true},
		"everything":   {func(s *scene) error { return s.SignOutEverywhere(s.t.Context(), s.ana, true) }, true},
		"all sessions": {func(s *scene) error { return s.SignOutEverywhere(s.t.Context(), s.ana, false) }, false},
		"a session":    {func(s *scene) error { return s.EndSession(s.t.Context(), s.ana, s.find(s.session(s.ana, "")).ID) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &programs{}
			s := newScene(t, func(c *Config) { c.Grants = p })
			runtest.Must(t, r.end(s))
			if slices.Contains(p.ended, s.ana) != r.want || slices.Contains(p.recorded, s.ana) != r.want {
				t.Errorf("ended %v, recorded %v, want %t", p.ended, p.recorded, r.want)
			}
		})
	}
}

// A program that is let in while its session ends is ended too: either the session is held until then, or it is gone.
func TestHold(t *testing.T) {
	s := newScene(t)
	in := *s.find(s.session(s.ana, ""))
	ended := make(chan error, 1)
	runtest.Must(t, pgx.BeginFunc(t.Context(), s.DB, func(tx pgx.Tx) error {
		live, err := s.Hold(t.Context(), tx, in.ID)
		if err != nil || !live {
			t.Errorf("a session is not held: %v", err)
		}
		go func() { ended <- s.SignOutEverywhere(t.Context(), s.ana, true) }()
		waiting := false
		for err == nil && !waiting { // for the lock
			err = s.DB.QueryRow(t.Context(), `select exists (select from pg_stat_activity
				where datname = current_database() and wait_event_type = 'Lock')`).Scan(&waiting)
		}
		if len(ended) != 0 {
			t.Error("the session ends while it is held")
		}
		return err
	}))
	runtest.Must(t, <-ended)
	runtest.Must(t, pgx.BeginFunc(t.Context(), s.DB, func(tx pgx.Tx) error {
		if live, err := s.Hold(t.Context(), tx, in.ID); err != nil || live {
			t.Errorf("a session that has ended is held: %v", err)
		}
		return nil
	}))
}
