package account_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
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
