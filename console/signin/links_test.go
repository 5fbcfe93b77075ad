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

func (s *scene) linkFor(purpose Purpose) string {
	s.t.Helper()
	switch purpose {
	case SignUp:
		token, err := s.NewLink(s.t.Context(), Link{Purpose: purpose, Email: "new@other.example"})
		runtest.Must(s.t, err)
		return token
	case Invite:
		return s.linkOf(purpose, anasMail, acme)
	default:
		return s.linkOf(purpose, anasMail, uuid.Nil)
	}
}

// acme is the organization of invitations.
var acme = uuid.MustParse("00000000-0000-4000-8000-0000000000ac")

// use uses a link that sets a password, or an invitation.
func (s *scene) use(purpose Purpose, token string, a Attempt) (SignedIn, error) {
	if purpose != Invite {
		return s.SetPassword(s.t.Context(), token, a)
	}
	return s.Accept(s.t.Context(), token, a, func(ctx context.Context, l Link) (uuid.UUID, error) {
		return s.Register(ctx, l.Email)
	})
}

func TestLink_SetsAPasswordOnce(t *testing.T) {
	for purpose, verifies := range map[Purpose]bool{Owner: true, Invite: false, Reset: false} {
		t.Run(string(purpose), func(t *testing.T) {
			s := newScene(t)
			if purpose != Invite {
				s.password()
			}
			before, other := s.session(s.ana, ""), s.linkFor(Reset)
			token := s.linkFor(purpose)
			for range 2 {
				if l, found, err := s.Link(t.Context(), token); !found || err != nil || l.Email != anasMail ||
					(l.Person == s.ana) == (purpose == Invite) || (l.Offer == uuid.Nil) == (purpose == Invite) {
					t.Fatalf("a link that is looked at: %+v, %v, %v", l, found, err)
				}
			}
			a := Attempt{Password: "short", Former: before}
			if _, err := s.use(purpose, token, a); !errors.Is(err, ErrPassword) {
				t.Errorf("with a short password: %v", err)
			}
			a.Password = "the next password"
			in, err := s.use(purpose, token, a)
			runtest.Must(t, err)
			if s.find(in.Token) == nil || s.find(before) != nil {
				t.Error("no session began, or the former did not end")
			}
			if _, err := s.use(purpose, token, a); !errors.Is(err, ErrLink) {
				t.Errorf("a spent link: %v", err)
			}
			if _, err := s.SetPassword(t.Context(), other, a); purpose != Invite && !errors.Is(err, ErrLink) {
				t.Errorf("another link: %v", err)
			}
			s.enters(anasMail, anas, home, ErrRefused)
			s.enters(anasMail, a.Password, home, nil)
			states, err := s.States(t.Context(), s.ana)
			runtest.Must(t, err)
			if got := states[s.ana]; s.Verified(got, "ANA@acme.example") != verifies || got.Generated ||
				s.Verified(got, "bo@acme.example") {
				t.Errorf("state %+v", got)
			}
		})
	}
}

func TestLink_LivesForATime(t *testing.T) {
	for purpose, life := range map[Purpose]time.Duration{Owner: time.Hour, Reset: time.Hour, Invite: 7 * 24 * time.Hour} {
		s := newScene(t)
		link := Link{Purpose: purpose, Person: s.ana, Email: anasMail}
		if purpose == Invite {
			link = Link{Purpose: purpose, Offer: uuid.New(), Email: anasMail, Organization: acme}
		}
		replaced, err := s.NewLink(t.Context(), link)
		runtest.Must(t, err)
		token, err := s.NewLink(t.Context(), link)
		runtest.Must(t, err)
		s.pass(life - time.Second)
		if _, found, err := s.Link(t.Context(), token); !found || err != nil {
			t.Errorf("%s ended early: %v", purpose, err)
		}
		if _, found, err := s.Link(t.Context(), replaced); found || err != nil {
			t.Errorf("%s that was replaced works: %v", purpose, err)
		}
		s.pass(time.Second)
		if _, err := s.use(purpose, token, Attempt{Password: anas}); !errors.Is(err, ErrLink) {
			t.Errorf("%s did not end: %v", purpose, err)
		}
	}
}

// An Admin who resets a password must not get past the second factor; the operator must, since an Owner who lost it may
// have nobody else.
func TestLink_SecondFactor(t *testing.T) {
	for purpose, want := range map[Purpose]bool{Reset: true, Owner: false} {
		s := newScene(t)
		s.enrolled()
		in, err := s.SetPassword(t.Context(), s.linkFor(purpose), Attempt{Password: "the next password"})
		runtest.Must(t, err)
		if in.Pending != want {
			t.Errorf("%s: waits for the second factor: %v", purpose, in.Pending)
		}
	}
}

// An Admin of one organization must not take over the account of a member of another.
func TestLink_InviteOfWhoHasAnotherWayIn(t *testing.T) {
	for name, give := range map[string]func(*scene){
		"a password": func(s *scene) { s.password() },
		"an account": func(s *scene) {
			_, err := s.SetZone(t.Context(), s.ana, "")
			runtest.Must(t, err)
			_, err = s.DB.Exec(t.Context(), `insert into ops.signin_accounts values ('https://idp.example', 'ana', $1)`, s.ana)
			runtest.Must(t, err)
		},
	} {
		s := newScene(t)
		give(s)
		if _, err := s.use(Invite, s.linkFor(Invite), Attempt{Password: "the next password"}); !errors.Is(err, ErrUnneeded) {
			t.Errorf("an invite of who has %s: %v", name, err)
		}
		_, err := s.SetPassword(t.Context(), s.linkFor(Reset), Attempt{Password: "the next password"})
		runtest.Must(t, err)
		if states, err := s.States(t.Context(), s.ana); err != nil || states[s.ana].Accounts != 0 {
			t.Errorf("a reset leaves %s: %+v, %v", name, states, err)
		}
		s.elsewhere[s.ana] = true
		_, err = s.SetPassword(t.Context(), s.linkOf(Reset, anasMail, acme), Attempt{Password: "a password of the Admin"})
		if !errors.Is(err, ErrElsewhere) {
			t.Errorf("a reset of a member of another organization: %v", err)
		}
	}
}

func TestVerify_AddressOnce(t *testing.T) {
	s := newScene(t).password()
	token := s.linkFor(Verification)
	if _, err := s.SetPassword(t.Context(), token, Attempt{Password: "the next password"}); !errors.Is(err, ErrLink) {
		t.Errorf("a verification sets a password: %v", err)
	}
	if _, err := s.Verify(t.Context(), s.linkFor(Reset)); !errors.Is(err, ErrLink) {
		t.Errorf("a reset verifies an address: %v", err)
	}
	l, err := s.Verify(t.Context(), token)
	runtest.Must(t, err)
	states, err := s.States(t.Context(), s.ana)
	runtest.Must(t, err)
	if l.Email != anasMail || !s.Verified(states[s.ana], anasMail) || s.Verified(states[s.ana], "ana@other.example") {
		t.Errorf("link %+v, state %+v", l, states)
	}
	if _, err := s.Verify(t.Context(), token); !errors.Is(err, ErrLink) {
		t.Errorf("a second time: %v", err)
	}
	s.enters(anasMail, anas, home, nil)
}

func TestSignUp_VerifiedAddress(t *testing.T) {
	s := newScene(t)
	created := 0
	create := func(_ context.Context, email string) (uuid.UUID, error) {
		created++
		s.people[email] = uuid.New()
		return s.people[email], nil
	}
	token, late := s.linkFor(SignUp), s.linkFor(SignUp)
	if _, err := s.SetPassword(t.Context(), token, Attempt{Password: anas}); !errors.Is(err, ErrLink) {
		t.Errorf("a sign-up sets a password: %v", err)
	}
	in, err := s.SignUp(t.Context(), token, Attempt{Password: anas}, create)
	runtest.Must(t, err)
	id := s.people["new@other.example"]
	states, err := s.States(t.Context(), id)
	runtest.Must(t, err)
	if in.Person != id || s.find(in.Token).Person != id || !s.Verified(states[id], "new@other.example") {
		t.Errorf("%+v, state %+v", in, states)
	}
	if _, err := s.SignUp(t.Context(), token, Attempt{Password: anas}, create); !errors.Is(err, ErrLink) {
		t.Errorf("a second time: %v", err)
	}
	// Who is known by now keeps the password.
	if _, err := s.SignUp(t.Context(), late, Attempt{Password: "the next password"}, create); !errors.Is(err, ErrKnown) {
		t.Errorf("another sign-up of the address: %v", err)
	}
	if s.enters("new@other.example", anas, home, nil); created != 1 {
		t.Errorf("%d people were created", created)
	}
}

// An Admin may invite somebody else's address and use the link, before another organization adds the address.
func TestLink_OfAnAdminOpensHisOrganizationAlone(t *testing.T) {
	mine, other := uuid.New(), uuid.New()
	opens := func(s *scene, in SignedIn) (at [2]bool) {
		found := s.find(in.Token)
		return [2]bool{s.Opens(*found, anasMail, mine), s.Opens(*found, anasMail, other)}
	}
	use := func(s *scene, purpose Purpose, of uuid.UUID) SignedIn {
		in, err := s.use(purpose, s.linkOf(purpose, anasMail, of), Attempt{Password: anas})
		runtest.Must(t, err)
		return in
	}
	s := newScene(t)
	if got := opens(s, use(s, Invite, mine)); got != [2]bool{true, false} {
		t.Errorf("an invite opens %v", got)
	}
	in := use(s, Owner, uuid.Nil)
	if got := opens(s, in); got != [2]bool{true, true} || s.Opens(*s.find(in.Token), "another@acme.example", other) {
		t.Errorf("the operator's link opens %v, or an address that it was not for", got)
	}
	if got := opens(s, use(s, Reset, other)); got != [2]bool{false, true} {
		t.Errorf("a reset after the address was verified opens %v", got)
	}
	s = newScene(t)
	set, err := s.GeneratePassword(t.Context(), s.ana, anasMail, anas)
	if err != nil || !set {
		t.Fatal(set, err)
	}
	if got := opens(s, SignedIn{Token: s.session(s.ana, "")}); got != [2]bool{true, true} {
		t.Errorf("the generated password opens %v", got)
	}
}

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
