package signin

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/runtest"
)

// unproved makes Ana somebody whose password a link of an Admin set.
func (s *scene) unproved() {
	s.t.Helper()
	_, err := s.DB.Exec(s.t.Context(), `delete from ops.signin_proofs where person_id = $1`, s.ana)
	runtest.Must(s.t, err)
}

func (s *scene) linkOf(purpose Purpose, email string, of uuid.UUID) string {
	s.t.Helper()
	link := Link{Purpose: purpose, Person: s.ana, Email: email, Organization: of}
	if purpose == Invite {
		link.Person, link.Offer = uuid.Nil, uuid.New()
	}
	token, err := s.NewLink(s.t.Context(), link)
	runtest.Must(s.t, err)
	return token
}

func (s *scene) state() State {
	s.t.Helper()
	states, err := s.States(s.t.Context(), s.ana)
	runtest.Must(s.t, err)
	return states[s.ana]
}

func TestProof_FirstEndsWhatWasSetBefore(t *testing.T) {
	unchanged := func(context.Context) error { return nil }
	for purpose, use := range map[Purpose]func(*scene, string, Attempt) (SignedIn, error){
		Owner:    func(s *scene, token string, a Attempt) (SignedIn, error) { return s.SetPassword(t.Context(), token, a) },
		Recovery: func(s *scene, token string, a Attempt) (SignedIn, error) { return s.SetPassword(t.Context(), token, a) },
		Verification: func(s *scene, token string, a Attempt) (SignedIn, error) {
			return s.VerifyFirst(t.Context(), token, a, unchanged)
		},
	} {
		t.Run(string(purpose), func(t *testing.T) {
			s := newScene(t)
			s.enrolled()
			s.unproved()
			_, err := s.DB.Exec(t.Context(), `insert into ops.signin_accounts values ('https://idp.example', 'thief', $1)`, s.ana)
			runtest.Must(t, err)
			thief, theirs := s.session(s.ana, ""), uuid.New()
			reset, invite := s.linkOf(Reset, anasMail, theirs), s.linkOf(Invite, anasMail, theirs)
			in, err := use(s, s.linkOf(purpose, anasMail, uuid.Nil), Attempt{Password: "my own password"})
			runtest.Must(t, err)
			got := s.state()
			if in.Pending || !s.Verified(got, anasMail) || got.SecondFactor || got.RecoveryCodes != 0 || got.Accounts != 0 {
				t.Errorf("%+v, state %+v", in, got)
			}
			if s.find(thief) != nil || !s.Opens(*s.find(in.Token), anasMail, uuid.New()) {
				t.Error("the session of before lives, or the new one does not open what was given to the address")
			}
			if _, err := s.SetPassword(t.Context(), reset, Attempt{Password: "the next password"}); !errors.Is(err, ErrLink) {
				t.Errorf("a reset of before: %v", err)
			}
			if _, err := s.use(Invite, invite, Attempt{Password: "the next password"}); !errors.Is(err, ErrUnneeded) {
				t.Errorf("an invitation of before: %v", err)
			}
			s.enters(anasMail, anas, home, ErrRefused)
			s.enters(anasMail, "my own password", home, nil)
		})
	}
}

// The proof of the address stays with a later address, and a reset of an Admin ends all of them.
func TestProof_StaysUntilAReset(t *testing.T) {
	s, mine := newScene(t).password(), uuid.New()
	_, err := s.Verify(t.Context(), s.linkOf(Verification, "ana@new.example", uuid.Nil))
	runtest.Must(t, err)
	opens := func(token string) [3]bool {
		in := *s.find(token)
		return [3]bool{
			s.Opens(in, anasMail, uuid.New()), s.Opens(in, "ana@new.example", uuid.New()), s.Opens(in, "ana@third.example", mine),
		}
	}
	if got := opens(s.session(s.ana, "")); got != [3]bool{true, true, false} {
		t.Errorf("with two proofs, a session opens %v", got)
	}
	in, err := s.SetPassword(t.Context(), s.linkOf(Reset, anasMail, mine), Attempt{Password: "the next password"})
	runtest.Must(t, err)
	if got := opens(in.Token); got != [3]bool{false, false, true} || s.state().Proved() {
		t.Errorf("after a reset, a session opens %v", got)
	}
	if s.Opens(*s.find(in.Token), "", uuid.New()) || s.Opens(*s.find(in.Token), "", uuid.Nil) {
		t.Error("a membership that was given to an unknown address is open")
	}
}

func TestVerify_FirstProofNeedsAPassword(t *testing.T) {
	s := newScene(t).password()
	s.unproved()
	token := s.linkFor(Verification)
	if _, err := s.Verify(t.Context(), token); !errors.Is(err, ErrUnproved) || s.state().Proved() || !s.state().Password {
		t.Errorf("%v, state %+v", err, s.state())
	}
	refused := errors.New("refused")
	change := func(context.Context) error { return refused }
	_, err := s.VerifyFirst(t.Context(), token, Attempt{Password: anas}, change)
	if !errors.Is(err, refused) || s.state().Proved() {
		t.Errorf("%v, state %+v", err, s.state())
	}
	if _, err := s.VerifyFirst(t.Context(), s.linkFor(Reset), Attempt{Password: anas}, change); !errors.Is(err, ErrLink) {
		t.Errorf("a reset is a verification: %v", err)
	}
}

// The mail went to an address that is somebody else's by now.
func TestRecovery_OfAFormerAddress(t *testing.T) {
	s := newScene(t).password()
	token := s.linkFor(Recovery)
	delete(s.people, anasMail)
	for _, holder := range []uuid.UUID{uuid.Nil, uuid.New()} {
		if holder != uuid.Nil {
			s.people[anasMail] = holder
		}
		if _, err := s.SetPassword(t.Context(), token, Attempt{Password: "the next password"}); !errors.Is(err, ErrLink) {
			t.Errorf("held by %s: %v", holder, err)
		}
	}
}

func TestProof_NewestAreKept(t *testing.T) {
	s := newScene(t).password()
	mail := func(n int) string { return fmt.Sprintf("ana%d@acme.example", n) }
	for n := range maxProofs {
		s.pass(time.Second)
		_, err := s.Verify(t.Context(), s.linkOf(Verification, mail(n), uuid.Nil))
		runtest.Must(t, err)
	}
	if got := s.state(); len(got.proofs) != maxProofs || s.Verified(got, anasMail) || !s.Verified(got, mail(0)) ||
		!s.Verified(got, mail(maxProofs-1)) {
		t.Errorf("%d proofs", len(got.proofs))
	}
}

// No organization ends the links of another.
func TestLink_BelongsToItsOrganization(t *testing.T) {
	s, mine, theirs := newScene(t), uuid.New(), uuid.New()
	lives := func(token string) bool {
		_, found, err := s.Link(t.Context(), token)
		runtest.Must(t, err)
		return found
	}
	invite, reset := s.linkOf(Invite, anasMail, mine), s.linkOf(Reset, anasMail, mine)
	owner := s.linkOf(Owner, anasMail, uuid.Nil)
	other := s.linkOf(Reset, anasMail, theirs)
	if !lives(invite) || !lives(other) {
		t.Error("a link of another organization ends one")
	}
	runtest.Must(t, s.EndLinks(t.Context(), s.ana, theirs))
	if !lives(invite) || !lives(reset) || !lives(owner) || lives(other) {
		t.Error("an organization ends the links of others, or not its own")
	}
	other = s.linkOf(Invite, anasMail, theirs)
	in, err := s.use(Invite, other, Attempt{Password: anas})
	runtest.Must(t, err)
	if lives(other) || !lives(invite) || !lives(reset) || !lives(owner) {
		t.Error("the use of an invitation ends the links of others, or does not end it")
	}
	if found := *s.find(in.Token); s.Opens(found, anasMail, mine) || !s.Opens(found, anasMail, theirs) {
		t.Error("the session opens another organization than the one that invited")
	}
	if _, err := s.use(Invite, invite, Attempt{Password: "the next password"}); !errors.Is(err, ErrUnneeded) {
		t.Errorf("the other invitation: %v", err)
	}
}
