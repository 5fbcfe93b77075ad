package signin

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

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
