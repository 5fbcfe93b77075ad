package account_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/pquerna/otp/totp"

	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/oidctest"
	"github.com/annals-project/annals/internal/runtest"
)

const confirmAccount = "/account/confirm?next=%2Faccount"

// A session that is older than ten minutes changes nothing by which people sign in, until its person confirms.
func TestConfirm_ByPassword(t *testing.T) {
	s := newScene(t, nil, false)
	s.enter()
	s.clock = s.clock.Add(signin.FreshLife)
	p := s.get("/account")
	s.wants(p, 200, "/account", `href="/account/confirm?next=/account"`)
	if strings.Contains(p.text, `action="/account/address"`) {
		t.Error("the form to change the address is shown")
	}
	s.wants(s.post("/account/address", "email", "eve@evil.example"), 200, confirmAccount, "Confirm that it is you")
	if len(s.mails) != 0 {
		t.Errorf("mailed %v", s.mails)
	}
	const second = "/account/confirm?next=%2Faccount%2Fsecond-factor"
	s.wants(s.get("/account/second-factor"), 200, second)
	s.wants(s.post("/account/second-factor", "code", "1", "sealed", "x"), 200, second)
	s.wants(s.post("/account/confirm", "next", "/account", "password", "wrong"), 401, "/account/confirm",
		signin.ErrRefused.Error(), `name="next" value="/account"`)
	s.wants(s.get("/account/second-factor"), 200, second)
	s.wants(s.post("/account/confirm", "next", "//evil.example", "password", anas), 200, "/", "Home")
	s.wants(s.get("/account"), 200, "/account", `action="/account/address"`)
	s.wants(s.post("/account/address", "email", "new@acme.example"), 200, "/account?done=sent", "Sent.")
	s.enrol()
	states, err := s.States(t.Context(), s.ana)
	runtest.Must(t, err)
	if len(s.mails) != 1 || !states[s.ana].SecondFactor {
		t.Errorf("mails %v, %+v", s.mails, states[s.ana])
	}
}

// Who must set up a second factor confirms first.
func TestConfirm_BeforeRequiredFactor(t *testing.T) {
	s := newScene(t, nil, false)
	s.enter()
	for i := range s.people[s.ana].Memberships {
		s.people[s.ana].Memberships[i].SecondFactor = true
	}
	s.wants(s.get("/usage"), 200, "/account/second-factor", `<svg width="240"`)
	s.clock = s.clock.Add(signin.FreshLife)
	s.wants(s.get("/usage"), 200, "/account/confirm?next=%2Faccount%2Fsecond-factor")
	s.wants(s.post("/account/confirm", "next", "/account/second-factor", "password", anas), 200, "/account/second-factor",
		`<svg width="240"`)
}

func TestConfirm_ByCode(t *testing.T) {
	s := newScene(t, nil, false)
	s.enter()
	key, _ := s.enrol()
	s.clock = s.clock.Add(signin.FreshLife)
	s.wants(s.post("/account/address", "email", "new@acme.example"), 200, confirmAccount, "code of your app")
	s.wants(s.post("/account/confirm", "next", "/account", "code", "000000"), 400, "/account/confirm", "the code is wrong")
	code, err := totp.GenerateCode(key, s.clock)
	runtest.Must(t, err)
	s.wants(s.post("/account/confirm", "next", "/account", "code", code), 200, "/account", `action="/account/address"`)
	s.clock = s.clock.Add(signin.FreshLife)
	// To remove the second factor its code is the proof.
	s.wants(s.post("/account/second-factor/remove", "code", s.code(key)), 200, "/account?done=deleted", "Set it up")
}

// Who has no password sets the first one after the provider asked again.
func TestConfirm_AtTheProvider(t *testing.T) {
	company := oidctest.NewCompany(t)
	s := newScene(t, company, false)
	back := func(to page) page {
		u, err := url.Parse(to.redirectsTo)
		runtest.Must(t, err)
		company.Asked = u.Query()
		return s.get("/sign-in/oidc/callback?code=the+code&state=" + url.QueryEscape(company.Asked.Get("state")))
	}
	s.wants(back(s.post("/sign-in/oidc")), 200, "/", "Home")
	s.clock = s.clock.Add(signin.FreshLife)
	const password = "another long password"
	p := s.post("/account/password", "password", password)
	s.wants(p, 200, confirmAccount, `action="/account/confirm/oidc"`)
	if strings.Contains(p.text, `name="password"`) {
		t.Error("asks for a password that there is not")
	}
	s.wants(s.get("/account"), 200, "/account", `to set one`)
	for _, wrong := range []map[string]any{{"auth_time": s.clock.Unix() - 3600}, {"auth_time": s.clock.Unix(), "sub": "eve"}} {
		company.Claims = wrong
		got := back(s.post("/account/confirm/oidc", "next", "/account"))
		if got.status != 403 || !strings.Contains(got.text, "Confirm that it is you") {
			t.Errorf("%v: %d %s", wrong, got.status, got.text)
		}
		s.wants(s.post("/account/password", "password", password), 200, confirmAccount)
	}
	company.Claims = map[string]any{"auth_time": s.clock.Unix()}
	s.wants(back(s.post("/account/confirm/oidc", "next", "/account")), 200, "/account", "Set a password")
	if company.Asked.Get("prompt") != "login" || company.Asked.Get("max_age") != "0" {
		t.Errorf("asked %v", company.Asked)
	}
	s.wants(s.post("/account/password", "password", password), 200, "/account?done=saved", "Saved.")
}

func TestLeave(t *testing.T) {
	s := newScene(t, nil, false)
	s.enter()
	all := slices.Clone(s.people[s.ana].Memberships)
	acme, other := all[0].Organization.String(), all[1].Organization.String()
	s.wants(s.get("/account"), 200, "/account", "Leave Acme", "Leave Other", "your account is erased")
	s.wants(s.post("/account/leave", "organization", other), 400, "/account/leave", "tick the box to leave Other")
	s.wants(s.post("/account/leave", "organization", "x", "sure", "yes"), 404, "/account/leave", "not a member")
	s.wants(s.post("/account/leave", "organization", other, "sure", "yes"), 200, "/account?done=left", "You left the organization.")
	if len(s.people[s.ana].Memberships) != 1 {
		t.Errorf("%+v", s.people[s.ana])
	}
	s.people[s.ana].Memberships[0].Role = organization.Owner
	s.wants(s.post("/account/leave", "organization", acme, "sure", "yes"), 409, "/account/leave", "the last owner")
	s.people[s.ana].Memberships[0].Role = organization.Admin
	s.wants(s.post("/account/leave", "organization", acme, "sure", "yes"), 200, "/sign-in")
	states, err := s.States(t.Context(), s.ana)
	runtest.Must(t, err)
	if len(states) != 0 || s.token() != "" {
		t.Errorf("is still known: %v", states)
	}
}
