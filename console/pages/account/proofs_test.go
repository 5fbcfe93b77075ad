package account_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/internal/oidctest"
	"github.com/annals-project/annals/internal/runtest"
)

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
