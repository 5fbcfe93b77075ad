package account_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/oidctest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/access"
)

func TestLink_SetsAPasswordOnce(t *testing.T) {
	s := newScene(t, nil, false)
	path, _ := s.invited()
	for range 2 { // also a scanner of mail looks at it
		s.wants(s.get(path), 200, path, "Set a password", anasMail)
	}
	s.wants(s.get(strings.Replace(path, "/link/", "/invite/", 1)), 200, strings.Replace(path, "/link/", "/invite/", 1), anasMail)
	s.wants(s.post(path, "password", "short"), 400, path, "12 to 200 characters", "Set a password")
	s.wants(s.post(path, "password", anas), 200, "/", "Home")
	s.wants(s.get(path), 404, path, "the link was used, or has expired")
	s.wants(s.post(path, "password", "another password"), 404, path, "the link was used")
	s.post("/sign-out")
	s.wants(s.post("/sign-in", "email", anasMail, "password", anas), 200, "/", "Home")
}

var linkIn = regexp.MustCompile(`/link/[A-Za-z0-9_-]+`)

func TestSignUp_ByMail(t *testing.T) {
	s := newScene(t, nil, true)
	s.wants(s.get("/sign-in"), 200, "/sign-in", `href="/sign-up"`)
	s.wants(s.post("/sign-up", "email", "nobody"), 400, "/sign-up", "no e-mail address")
	strange := s.post("/sign-up", "email", "new@other.example")
	s.wants(strange, 200, "/sign-up/sent", "Read your mail", "new@other.example")
	known := s.post("/sign-up", "email", anasMail)
	if !sameBut(known.text, strange.text) {
		t.Errorf("the page shows who is known:\n%s\n%s", known.text, strange.text)
	}
	if len(s.mails) != 2 || linkIn.FindString(s.mails[1]) != "" || !strings.HasPrefix(s.mails[1], anasMail+": Somebody wanted") {
		t.Fatalf("mails %v", s.mails)
	}
	path := linkIn.FindString(s.mails[0])
	s.wants(s.get(path), 200, path, "Create an organization")
	s.wants(s.post(path, "organization", "New", "password", "short"), 400, path, "12 to 200", `value="New"`)
	s.wants(s.post(path, "organization", "New", "password", anas), 200, "/", "New")
	s.wants(s.get("/account"), 200, "/account", "new@other.example", `class="tag good">verified`)
	for range 3 {
		s.post("/sign-up", "email", "flooded@other.example")
	}
	s.wants(s.post("/sign-up", "email", "flooded@other.example"), 429, "/sign-up", "too many attempts")
	if len(s.mails) != 5 {
		t.Errorf("%d mails, want 5", len(s.mails))
	}
}

// sameBut reports whether pages differ by the address and the id of the request alone.
func sameBut(a, b string) bool {
	plain := func(text string) string {
		return regexp.MustCompile(`Request [0-9a-f-]+|[a-z]+@[a-z.]+`).ReplaceAllString(text, "")
	}
	return plain(a) == plain(b)
}

func TestSignUp_IsOff(t *testing.T) {
	s := newScene(t, nil, false)
	if p := s.get("/sign-up"); p.status != 404 {
		t.Errorf("GET: %d", p.status)
	}
	if p := s.post("/sign-up", "email", "new@other.example"); p.status != 404 || len(s.mails) != 0 {
		t.Errorf("POST: %d, mails %v", p.status, s.mails)
	}
}

func TestAddress_IsChangedByMail(t *testing.T) {
	s := newScene(t, nil, false)
	s.enterInvited()
	s.wants(s.get("/account"), 200, "/account", "not verified")
	s.wants(s.post("/account/address", "email", "ana@new.example"), 200, "/account?done=sent", "Sent.", anasMail)
	path := linkIn.FindString(s.mails[0])
	owner := s.browser
	s.browser = newBrowser(t)
	// Who reads the mail is not signed in by it.
	s.wants(s.post(path, "password", "another password"), 401, path, "sign in as the person who asked")
	s.browser = owner
	// The first address that is proved ends the password of before: a link of an Admin set it.
	s.wants(s.get(path), 200, path, "Confirm your address", "ana@new.example", "New password")
	s.wants(s.post(path), 400, path, "12 to 200")
	if s.people[s.ana].Email != anasMail {
		t.Error("without a password the address changed")
	}
	s.wants(s.post(path, "password", "another password"), 200, "/", "Home", "ana@new.example")
	s.wants(s.get("/account"), 200, "/account", `class="tag good">verified`)
	s.wants(s.post(path), 404, path)
	s.post("/sign-out")
	s.wants(s.post("/sign-in", "email", "ana@new.example", "password", anas), 401, "/sign-in")
	s.wants(s.post("/sign-in", "email", "ana@new.example", "password", "another password"), 200, "/")
	// The next one needs no password.
	s.post("/account/address", "email", "ana@third.example")
	path = linkIn.FindString(s.mails[1])
	if p := s.get(path); strings.Contains(p.text, "New password") {
		t.Errorf("a second proof asks for a password: %s", p.text)
	}
	s.wants(s.post(path), 200, "/account?done=saved", "ana@third.example", `class="tag good">verified`)
	s.people[s.ana].Email = anasMail
	s.wants(s.get("/account"), 200, "/account", "not verified")
}

func TestAccount_Changes(t *testing.T) {
	s := newScene(t, nil, false)
	s.enter()
	mine := s.browser
	s.browser = newBrowser(t)
	s.wants(s.post("/sign-in", "email", anasMail, "password", anas), 200, "/")
	there := s.browser
	s.browser = mine
	list, err := s.Sessions(t.Context(), s.ana)
	runtest.Must(t, err)
	p := s.get("/account")
	s.wants(p, 200, "/account", "127.0.0.1", "Go-http-client")
	if len(list) != 2 || strings.Count(p.text, `name="session"`) != 1 {
		t.Errorf("%d sessions: %s", len(list), p.text)
	}
	s.wants(s.post("/account/sessions", "session", field(t, p, "session")), 200, "/account?done=ended", "Ended.")
	s.browser = there
	s.wants(s.get("/account"), 200, "/sign-in?next=%2Faccount")
	s.browser = mine

	s.wants(s.post("/account/password", "current", "a wrong password", "password", "another password"), 401,
		"/account/password", "is wrong")
	s.wants(s.post("/account/password", "current", anas, "password", "short"), 400, "/account/password", "12 to 200")
	s.wants(s.post("/account/password", "current", anas, "password", "another password"), 200, "/account?done=saved")
	s.wants(s.post("/account/zone", "zone", "Mars"), 400, "/account/zone", "no time zone")
	s.wants(s.post("/account/zone", "zone", "Europe/Vienna"), 200, "/account?done=saved", `value="Europe/Vienna"`, "13:00:00")

	key, codes := s.enrol()
	s.wants(s.post("/account/recovery-codes", "code", "000000"), 400, "/account/recovery-codes", "the code is wrong")
	s.wants(s.post("/account/recovery-codes", "code", codes[0]), 200, "/account/recovery-codes", "Recovery codes")
	s.wants(s.post("/account/second-factor/remove", "code", codes[1]), 400, "/account/second-factor/remove", "the code is wrong")
	s.wants(s.post("/account/second-factor/remove", "code", s.code(key)), 200, "/account?done=deleted", "Set it up")
	s.wants(s.post("/account/sessions"), 200, "/sign-in")
	s.wants(s.get("/account"), 200, "/sign-in?next=%2Faccount")
}

const bosMail = "bo@acme.example"

// offer makes an open offer of Zeta to an address, and returns its page.
func (s *scene) offer(email string) (path string) {
	id := uuid.New()
	s.offers[email] = append(s.offers[email], access.Offer{
		ID: id, Organization: uuid.New(), Name: "Zeta", Email: email, Role: organization.Member,
		ExpiresAt: s.clock.Add(7 * 24 * time.Hour),
	})
	return "/offers/" + id.String()
}

var mailedLink = regexp.MustCompile(`/link/[A-Za-z0-9_-]{43}`)

// mailed is the link of the last mail, "" for none.
func (s *scene) mailed() string { return mailedLink.FindString(s.mails[len(s.mails)-1]) }

// Who has nothing but an offer comes in by a mailed link, and opens the page of offers alone.
func TestOffers_OfAGuest(t *testing.T) {
	s := newScene(t, nil, true)
	s.wants(s.get("/offers"), 200, "/sign-in?next=%2Foffers")
	path := s.offer(bosMail)
	s.wants(s.post("/sign-in/forgotten", "email", bosMail), 200, "/sign-in/forgotten/sent", "Read your mail")
	if len(s.people) != 1 {
		t.Error("the request for a link registers a person")
	}
	s.wants(s.post(s.mailed(), "password", anas), 200, "/offers", "Zeta", "role member")
	for _, page := range []string{"/", "/usage", "/account"} {
		s.wants(s.get(page), 200, "/offers", "Zeta")
	}
	s.wants(s.post("/account/zone", "zone", "Europe/Vienna"), 403, "/account/zone")
	s.wants(s.post("/sign-up", "email", bosMail), 200, "/sign-up/sent", "Read your mail")
	if s.mailed() == "" {
		t.Error("an offer keeps a person from an organization of the own")
	}
	s.wants(s.post(path, "do", "decline"), 200, "/offers?done=declined", "There is no open offer")
	s.wants(s.post(path, "do", "accept"), 404, path)
	s.wants(s.post("/sign-out"), 200, "/sign-in")
	s.wants(s.post("/sign-in", "email", bosMail, "password", anas), 403, "/sign-in", "ask for an invitation")
	path = s.offer(bosMail)
	s.wants(s.post("/sign-in", "email", bosMail, "password", anas), 200, "/offers", "Zeta")
	s.wants(s.post(path, "do", "accept"), 200, "/", "Home", bosMail)
}

// A member sees offers to the address once it is proved, and only these.
func TestOffers_OfAMember(t *testing.T) {
	s := newScene(t, nil, false)
	path, foreign := s.offer(anasMail), s.offer(bosMail)
	s.enterInvited()
	s.wants(s.get("/offers"), 200, "/offers", "once you have proved that address", "/sign-in/forgotten?email=")
	s.wants(s.post(path, "do", "accept"), 404, path)
	s.wants(s.post("/sign-in/forgotten", "email", anasMail), 200, "/sign-in/forgotten/sent")
	s.wants(s.post(s.mailed(), "password", anas), 200, "/", "Home")
	s.wants(s.get("/offers"), 200, "/offers", "Zeta")
	s.wants(s.post(foreign, "do", "accept"), 404, foreign)
	s.wants(s.post(path, "do", "accept"), 200, "/", "Zeta")
}

const evils = "evil@attacker.example"

// The attacker is an Admin of Acme, invites Ana's address, and uses the link. Other gave a membership to that address.
// No address that the attacker proves later opens Other.
func TestProof_OfAnotherAddressOpensNothing(t *testing.T) {
	for name, c := range map[string]struct {
		factor bool
		prove  func(s *scene, company *oidctest.Company)
	}{
		"without a second factor": {},
		"with a second factor":    {factor: true},
		"then at the provider": {prove: func(s *scene, company *oidctest.Company) {
			company.Claims = map[string]any{"email": evils, "sub": "evil"}
			to, err := url.Parse(s.post("/sign-in/oidc").redirectsTo)
			runtest.Must(s.t, err)
			company.Asked = to.Query()
			back := url.Values{"state": {company.Asked.Get("state")}, "code": {"the code"}}
			s.wants(s.get("/sign-in/oidc/callback?"+back.Encode()), 200, "/", "Home")
		}},
		"then by a forgotten password": {prove: func(s *scene, _ *oidctest.Company) {
			s.post("/sign-in/forgotten", "email", evils)
			path := linkIn.FindString(s.mails[len(s.mails)-1])
			s.wants(s.post(path, "password", "another password"), 200, "/", "Home")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			company := oidctest.NewCompany(t)
			s := newScene(t, company, false)
			other := s.people[s.ana].Memberships[1].Organization.String()
			shut := func(when string) {
				t.Helper()
				if p := s.post("/organization", "organization", other); p.status != 404 || strings.Contains(s.get("/").text, "Other") {
					t.Errorf("%s, the other organization is %d", when, p.status)
				}
			}
			s.enterInvited()
			if c.factor {
				s.people[s.ana].Memberships[1].SecondFactor = true
				s.enrol()
			}
			shut("before")
			s.wants(s.post("/account/address", "email", evils), 200, "/account?done=sent")
			path := linkIn.FindString(s.mails[0])
			s.wants(s.post(path, "password", "the next password"), 200, "/", "Home", evils)
			shut("with another address")
			if c.prove != nil {
				c.prove(s, company)
				shut("proved again")
			}
			// What Acme gave stays.
			s.wants(s.get("/usage"), 200, "/usage", "Acme")
		})
	}
}

// Who reads the mail to an address ends what another set for it, and opens what was given to it.
func TestForgotten_FirstProof(t *testing.T) {
	s := newScene(t, nil, false)
	s.enterInvited()
	s.enrol()
	thief := s.browser
	s.browser = newBrowser(t)
	s.wants(s.get("/sign-in"), 200, "/sign-in", `href="/sign-in/forgotten"`)
	s.wants(s.get("/sign-in/forgotten"), 200, "/sign-in/forgotten", "Forgotten password")
	s.wants(s.post("/sign-in/forgotten", "email", "nobody"), 400, "/sign-in/forgotten", "no e-mail address")
	known := s.post("/sign-in/forgotten", "email", anasMail)
	s.wants(known, 200, "/sign-in/forgotten/sent", "Read your mail", anasMail)
	strange := s.post("/sign-in/forgotten", "email", "new@other.example")
	if !sameBut(known.text, strange.text) {
		t.Errorf("the page shows who is known:\n%s\n%s", known.text, strange.text)
	}
	if len(s.mails) != 2 || linkIn.FindString(s.mails[1]) != "" || !strings.HasPrefix(s.mails[1], "new@other.example: Somebody") {
		t.Fatalf("mails %v", s.mails)
	}
	path := linkIn.FindString(s.mails[0])
	s.wants(s.get(path), 200, path, "Set a password", anasMail)
	s.wants(s.post(path, "password", "my own password"), 200, "/", "Home", "Other")
	s.wants(s.get("/account"), 200, "/account", `class="tag good">verified`, "Set it up") // the second factor ended
	s.wants(s.post(path, "password", "my own password"), 404, path)
	s.browser = thief
	s.wants(s.get("/account"), 200, "/sign-in?next=%2Faccount")
	s.wants(s.post("/sign-in", "email", anasMail, "password", anas), 401, "/sign-in")
}

// Who proved the address before keeps the second factor, and is asked for it.
func TestForgotten_KeepsTheSecondFactorOfWhoProved(t *testing.T) {
	s := newScene(t, nil, false)
	s.enter()
	key, _ := s.enrol()
	other := s.browser
	s.browser = newBrowser(t)
	s.post("/sign-in/forgotten", "email", anasMail)
	path := linkIn.FindString(s.mails[0])
	s.wants(s.post(path, "password", "another password"), 200, "/sign-in/second-factor?next=%2F", "Code")
	s.wants(s.get("/usage"), 200, "/sign-in?next=%2Fusage")
	s.wants(s.post("/sign-in/second-factor", "code", s.code(key)), 200, "/", "Other")
	s.browser = other
	s.wants(s.get("/usage"), 200, "/sign-in?next=%2Fusage") // sessions ended
}

func TestForgotten_LimitsMails(t *testing.T) {
	s := newScene(t, nil, false)
	for range 3 {
		s.wants(s.post("/sign-in/forgotten", "email", anasMail), 200, "/sign-in/forgotten/sent", "Read your mail")
	}
	s.wants(s.post("/sign-in/forgotten", "email", anasMail), 429, "/sign-in/forgotten", "too many attempts")
	if len(s.mails) != 3 {
		t.Errorf("%d mails", len(s.mails))
	}
}

// An invitation is for who has no other way in: the page leads to the sign-in, and the offer stays.
func TestLink_InvitationOfWhoHasAnAccount(t *testing.T) {
	s := newScene(t, nil, false)
	path := s.link(signin.Invite)
	s.wants(s.get(path), 200, path, anasMail, "Acme", `href="/offers"`)
	s.wants(s.post(path, "password", "another password"), 409, path, "accept the offer on the page")
	if len(s.offers[anasMail]) != 1 {
		t.Errorf("offers %v", s.offers)
	}
}
