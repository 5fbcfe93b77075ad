package server

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/people"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/oidctest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/internal/webtest"
)

// offering is a service with a mail server and two organizations, whose owners are signed in.
type offering struct {
	*harness
	mails       *mailboxes
	alpha, beta *offerer
	// ana and bo are addresses of people who are not known.
	ana, bo string
}

// offerer is an organization, with the browser of its owner.
type offerer struct {
	tenants.Organization
	owner *webtest.Reader
}

const anasPassword = "a password of Ana's own"

// theMails are the mails of theMailer.
var theMails = &mailboxes{mails: map[string][]string{}}

// theMailer is the service that tests with mails share.
var theMailer = sync.OnceValue(func() *harness {
	return newLasting(func(cfg *Config) { cfg.SignIn.Mail = theMails })
})

// newOffering shares a service. With a change of the settings it has its own.
func newOffering(t *testing.T, change func(*Config)) *offering {
	t.Helper()
	unraced(t)
	o := &offering{mails: theMails}
	if change == nil {
		o.harness = newTenantOf(t, theMailer())
	} else {
		t.Parallel()
		o.harness, o.mails = newHarness(t), &mailboxes{mails: map[string][]string{}}
		o.set = func(c *Config) { c.SignIn.Mail = o.mails; change(c) }
		o.arrange = func(s *Server) { s.signin.HashMemory, s.signin.FailureTime = 64, time.Nanosecond }
		o.start()
	}
	o.ana, o.bo = o.someone("ana"), o.someone("bo")
	o.alpha, o.beta = o.organization("Alpha"), o.organization("Beta")
	return o
}

// someone is an address that no organization knows.
func (o *offering) someone(name string) string { return name + "@" + o.domain("people") }

// ownerOf is the address of the owner of an organization.
func (o *offering) ownerOf(name string) string { return "owner@" + o.domain(strings.ToLower(name)) }

func (o *offering) organization(name string) *offerer {
	o.t.Helper()
	service, call := o.people()
	made, err := service.CreateOrganization(o.t.Context(), call, tenancy.NewOrganization{
		Name: o.name(name), Plan: metering.Flex, OwnerEmail: o.ownerOf(name),
	})
	runtest.Must(o.t, err)
	return &offerer{made, o.knownPerson(o.ownerOf(name))}
}

// knownPerson gives the person of an address a password and signs the person in.
func (o *offering) knownPerson(email string) *webtest.Reader {
	o.t.Helper()
	service, _ := o.people()
	id, _, err := service.FindPerson(o.t.Context(), email)
	runtest.Must(o.t, err)
	_, err = o.signin.GeneratePassword(o.t.Context(), id, email, anasPassword)
	runtest.Must(o.t, err)
	return o.signsIn(email)
}

// signsIn signs somebody in with the password.
func (o *offering) signsIn(email string) *webtest.Reader {
	o.t.Helper()
	browser := webtest.NewReader(o.t, o.urls.Console)
	o.posts(browser, "/sign-in", 303, "email", email, "password", anasPassword)
	return browser
}

// posts submits a form, and fails unless the answer has a status. If 200 is wanted, it follows where the form leads.
func (o *offering) posts(by *webtest.Reader, path string, want int, fields ...string) webtest.Answer {
	o.t.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	send := func() webtest.Answer { return by.Ask(http.MethodPost, path, form) }
	if want == http.StatusOK {
		send = func() webtest.Answer { return by.Post(path, form) }
	}
	got := send()
	if got.Status != want {
		o.t.Errorf("POST %s %v: %d to %q, want %d: %.1200s", path, form, got.Status, got.Location, want, got.Body)
	}
	return got
}

// invites makes an offer and returns the path of its link.
func (o *offering) invites(by *offerer, email string) (path string) {
	o.t.Helper()
	body := o.posts(by.owner, membersPage, 200, "email", email, "role", "admin").Body
	found := linkIn.FindString(body)
	if found == "" {
		o.t.Fatalf("no link: %.1200s", body)
	}
	return found
}

// offer is the id of the open offer of an organization to an address.
func (o *offering) offer(of *offerer, email string) uuid.UUID {
	o.t.Helper()
	list, err := o.read.access.Offers(o.t.Context(), of.ID, o.cfg.now())
	runtest.Must(o.t, err)
	for _, one := range list {
		if one.Email == email {
			return one.ID
		}
	}
	return uuid.Nil
}

// statusOf is the status of a page.
func statusOf(by *webtest.Reader, path string) int { return by.Ask(http.MethodGet, path, nil).Status }

// opens reports whether a browser opens an organization.
func (o *offering) opens(by *webtest.Reader, of *offerer) bool {
	got := by.Ask(http.MethodPost, "/organization", url.Values{"organization": {of.ID.String()}})
	return got.Status == 303 && got.Location == "/"
}

// memberships are those of the person of an address.
func (o *offering) memberships(email string) (in []string) {
	o.t.Helper()
	service, _ := o.people()
	id, _, err := service.FindPerson(o.t.Context(), email)
	runtest.Must(o.t, err)
	p, _, err := o.read.access.Memberships(o.t.Context(), id)
	runtest.Must(o.t, err)
	for _, m := range p.Memberships {
		in = append(in, m.Name)
	}
	return in
}

// shows fails unless a page holds texts, or does not hold them.
func (o *offering) shows(by *webtest.Reader, path string, is bool, texts ...string) {
	o.t.Helper()
	got := by.Ask(http.MethodGet, path, nil)
	for _, text := range texts {
		if strings.Contains(got.Body, text) != is {
			o.t.Errorf("%s (%d): %q is there: %t; %.1500s", path, got.Status, text, !is, got.Body)
		}
	}
}

// recovers sets a password by the link that is mailed to an address.
func (o *offering) recovers(email string) *webtest.Reader {
	o.t.Helper()
	browser := webtest.NewReader(o.t, o.urls.Console)
	o.mails.take(email)
	o.posts(browser, "/sign-in/forgotten", 200, "email", email)
	mail := strings.Join(o.mails.take(email), "")
	if !linkIn.MatchString(mail) {
		o.t.Fatalf("the mail to %s has no link: %s", email, mail)
	}
	o.posts(browser, linkIn.FindString(mail), 303, "password", anasPassword)
	return browser
}

// Somebody without an account accepts by the link, which works once, for the organization of the offer alone.
func TestOffers_Link(t *testing.T) {
	o := newOffering(t, nil)
	link := o.invites(o.alpha, o.ana)
	if got := o.memberships(o.ana); got != nil {
		t.Errorf("before the acceptance: %v", got)
	}
	if mail := strings.Join(o.mails.take(o.ana), ""); !strings.Contains(mail, "/offers") || linkIn.MatchString(mail) {
		t.Errorf("the mail is %q", mail)
	}
	o.shows(o.alpha.owner, membersPage, true, o.ana, "Open offers", "/settings/offers/"+o.offer(o.alpha, o.ana).String())
	ana := webtest.NewReader(t, o.urls.Console)
	o.shows(ana, link, true, "Alpha", o.ana, `href="/offers"`)
	o.posts(ana, link, 400, "password", "short")
	o.posts(ana, link, 303, "password", anasPassword)
	if !o.opens(ana, o.alpha) || o.opens(ana, o.beta) {
		t.Error("the session does not open the organization of the offer alone")
	}
	o.posts(webtest.NewReader(t, o.urls.Console), link, 404, "password", "a password of another one")
	o.shows(o.alpha.owner, membersPage, false, "Open offers")
	o.posts(o.alpha.owner, membersPage, 409, "email", strings.ToUpper(o.ana), "role", "admin")

	t.Log("the second link of two never opens the second organization for who used the first")
	o.posts(ana, o.invites(o.beta, o.ana), 409, "password", anasPassword)
	o.shows(ana, "/offers", false, "Beta")
	o.posts(ana, "/offers/"+o.offer(o.beta, o.ana).String(), 404, "do", "accept")
	if got := o.memberships(o.ana); len(got) != 1 {
		t.Errorf("members of %v", got)
	}
}

// A use of the link that failed after the acceptance is repeated.
func TestOffers_LinkAgain(t *testing.T) {
	o := newOffering(t, nil)
	link := o.invites(o.alpha, o.ana)
	service, call := o.people()
	_, err := service.AcceptOffer(t.Context(), call, o.alpha.ID, o.offer(o.alpha, o.ana), o.ana)
	runtest.Must(t, err)
	ana := webtest.NewReader(t, o.urls.Console)
	o.posts(ana, link, 303, "password", anasPassword)
	if !o.opens(ana, o.alpha) {
		t.Error("the organization is shut")
	}
}

var (
	anyAddress = regexp.MustCompile(`[a-z]+@people\d*\.example`)
	anyID      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)
	anyToken   = regexp.MustCompile(`name="form" value="[A-Z0-9]+"`)
	anyTime    = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ][\d:.Z]+`)
)

// Whether somebody has an address shows neither in the page, nor in the mail, nor in the page of the link.
func TestOffers_SameForEverybody(t *testing.T) {
	o := newOffering(t, nil)
	service, call := o.people()
	_, err := service.AddMember(t.Context(), call, o.beta.ID,
		people.NewMember{Email: o.someone("known"), Role: organization.Member})
	runtest.Must(t, err)
	o.knownPerson(o.someone("known"))
	seen := map[string]string{}
	for _, email := range []string{o.someone("known"), o.someone("other")} {
		page := o.posts(o.alpha.owner, membersPage, 200, "email", email, "role", "admin").Body
		link := linkIn.FindString(page)
		o.posts(o.alpha.owner, "/settings/offers/"+o.offer(o.alpha, email).String(), 303)
		again := o.invites(o.alpha, email)
		all := fmt.Sprint(page, strings.Join(o.mails.take(email), "\n"), statusOf(webtest.NewReader(t, o.urls.Console), link),
			webtest.NewReader(t, o.urls.Console).Ask(http.MethodGet, again, nil).Body)
		o.posts(o.alpha.owner, "/settings/offers/"+o.offer(o.alpha, email).String(), 303)
		for pattern, with := range map[*regexp.Regexp]string{
			anyAddress: "A", linkIn: "/link/", anyID: "ID", anyTime: "T", anyToken: "F",
		} {
			all = pattern.ReplaceAllString(all, with)
		}
		seen[email] = all
	}
	if seen[o.someone("known")] != seen[o.someone("other")] {
		t.Errorf("the pages differ:\n%s\n\n%s", seen[o.someone("known")], seen[o.someone("other")])
	}
}

// A member of another organization accepts or declines on the page of offers, and nobody else does.
func TestOffers_Page(t *testing.T) {
	o := newOffering(t, nil)
	service, call := o.people()
	for _, email := range []string{o.ana, o.bo} {
		_, err := service.AddMember(t.Context(), call, o.beta.ID, people.NewMember{Email: email, Role: organization.Member})
		runtest.Must(t, err)
	}
	ana, bo := o.knownPerson(o.ana), o.knownPerson(o.bo)
	link := o.invites(o.alpha, o.ana)
	body := o.posts(webtest.NewReader(t, o.urls.Console), link, 409, "password", "a password of the Admin").Body
	for _, way := range []string{"sign in", "Offers", "Forgot your password?", "who operates this service"} {
		if !strings.Contains(body, way) {
			t.Errorf("the page does not name the way %q: %.900s", way, body)
		}
	}
	if got := o.memberships(o.ana); len(got) != 1 {
		t.Fatalf("the link of who has an account accepts: %v", got)
	}
	path := "/offers/" + o.offer(o.alpha, o.ana).String()
	o.shows(bo, "/offers", false, "Alpha")
	o.posts(bo, path, 404, "do", "accept")
	o.posts(bo, path, 404, "do", "decline")
	o.posts(webtest.NewReader(t, o.urls.Console), path, 401, "do", "accept")
	o.shows(ana, "/account", true, `href="/offers"`)
	o.shows(ana, "/offers", true, "Alpha", path)
	o.posts(ana, path, 400, "do", "wait")
	o.posts(ana, path, 303, "do", "decline")
	o.posts(ana, path, 404, "do", "accept")
	if got := statusOf(ana, link); got != 404 {
		t.Errorf("the link of a declined offer: %d", got)
	}
	o.invites(o.alpha, o.ana)
	if got := o.posts(ana, "/offers/"+o.offer(o.alpha, o.ana).String(), 303, "do", "accept"); got.Location != "/" {
		t.Errorf("the acceptance leads to %q", got.Location)
	}
	o.shows(ana, "/", true, "Alpha")
	if !o.opens(ana, o.alpha) || !o.opens(ana, o.beta) {
		t.Error("an organization is shut")
	}
}

// An offer ends with its link, and nothing that one organization does ends an offer, a link or a reset of another.
func TestOffers_End(t *testing.T) {
	o := newOffering(t, func(*Config) {}) // the clock moves
	stranger := webtest.NewReader(t, o.urls.Console)
	replaced := o.invites(o.alpha, o.ana)
	withdrawn := o.invites(o.alpha, o.ana)
	kept := o.invites(o.beta, o.ana)
	o.posts(o.alpha.owner, "/settings/offers/"+o.offer(o.beta, o.ana).String(), 404)
	o.posts(o.alpha.owner, "/settings/offers/"+o.offer(o.alpha, o.ana).String(), 303)
	for _, link := range []string{replaced, withdrawn} {
		if got := statusOf(stranger, link); got != 404 {
			t.Errorf("a link of an offer that has ended: %d", got)
		}
		o.posts(stranger, link, 404, "password", anasPassword)
	}
	if got := statusOf(stranger, kept); got != 200 {
		t.Errorf("the link of the other organization: %d", got)
	}

	t.Log("a reset lives while another organization offers, withdraws, and removes")
	service, call := o.people()
	member, err := service.AddMember(t.Context(), call, o.alpha.ID,
		people.NewMember{Email: o.bo, Role: organization.Member})
	runtest.Must(t, err)
	resetOf := func() string {
		return linkIn.FindString(o.posts(o.alpha.owner, membersPage+"/"+member.String(), 200, "do", "password", "sure", "yes").Body)
	}
	reset := resetOf()
	o.invites(o.beta, o.bo)
	o.posts(o.beta.owner, "/settings/offers/"+o.offer(o.beta, o.bo).String(), 303)
	o.invites(o.beta, o.bo)
	o.posts(stranger, reset, 303, "password", anasPassword)
	if !o.opens(stranger, o.alpha) || o.opens(stranger, o.beta) {
		t.Error("the reset does not open its organization alone")
	}

	t.Log("a reset sets no password once the person is a member elsewhere")
	reset = resetOf()
	bo := o.recovers(o.bo)
	if got := statusOf(stranger, reset); got != 404 {
		t.Fatalf("a reset outlives a recovery: %d", got)
	}
	reset = resetOf()
	o.posts(bo, "/offers/"+o.offer(o.beta, o.bo).String(), 303, "do", "accept")
	body := o.posts(stranger, reset, 409, "password", "a password of the Admin").Body
	if !strings.Contains(body, "Forgot your password?") {
		t.Errorf("the page names no way: %.900s", body)
	}
	o.posts(o.alpha.owner, membersPage+"/"+member.String(), 409, "do", "password", "sure", "yes")
	o.posts(o.beta.owner, membersPage+"/"+member.String(), 303, "do", "remove", "sure", "yes")
	if !o.opens(bo, o.alpha) {
		t.Error("the removal from one organization ends the session in another")
	}
	resetOf()

	t.Log("time ends an offer")
	o.ahead.Add(int64(o.signin.InviteLife))
	if got := statusOf(stranger, kept); got != 404 {
		t.Errorf("the link of an expired offer: %d", got)
	}
	o.posts(stranger, kept, 404, "password", anasPassword)
	ana := o.forgot(o.ana)
	if ana != "" {
		t.Errorf("an expired offer lets sign in: %s", ana)
	}
}

// forgot is the link that is mailed to who forgot a password, "" for none.
func (o *offering) forgot(email string) string {
	o.t.Helper()
	o.mails.take(email)
	o.posts(webtest.NewReader(o.t, o.urls.Console), "/sign-in/forgotten", 200, "email", email)
	return linkIn.FindString(strings.Join(o.mails.take(email), ""))
}

// Who has only an offer proves the address by a mailed link, and opens nothing but the page of offers until one is
// accepted.
func TestOffers_OnlyAnOffer(t *testing.T) {
	o := newOffering(t, nil)
	if link := o.forgot(o.ana); link != "" {
		t.Fatalf("a stranger gets %s", link)
	}
	own := o.invites(o.alpha, o.ana)
	o.invites(o.beta, o.ana)
	service, _ := o.people()
	link := o.forgot(o.ana)
	if _, found, err := service.FindPerson(t.Context(), o.ana); found || err != nil {
		t.Errorf("the request for a link registers a person: %v", err)
	}
	ana := webtest.NewReader(t, o.urls.Console)
	o.posts(ana, link, 303, "password", anasPassword)
	for _, path := range []string{"/", "/account", membersPage, "/p/default"} {
		if got := ana.Ask(http.MethodGet, path, nil); got.Status != 303 || got.Location != "/offers" {
			t.Errorf("%s: %d to %q, want the offers", path, got.Status, got.Location)
		}
	}
	o.posts(ana, "/account/zone", 403, "zone", "Europe/Vienna")
	o.posts(ana, membersPage, 403, "email", o.bo, "role", "admin")
	o.shows(ana, "/offers", true, "Alpha", "Beta")

	t.Log("nobody accepts for a person with a password by a link that another one has")
	o.posts(webtest.NewReader(t, o.urls.Console), own, 409, "password", "a password of the Admin")
	if got := o.memberships(o.ana); got != nil {
		t.Errorf("an own link makes a person with a password a member of %v", got)
	}
	o.posts(ana, "/offers/"+o.offer(o.alpha, o.ana).String(), 303, "do", "decline")
	again := o.signsIn(o.ana)
	o.posts(again, "/offers/"+o.offer(o.beta, o.ana).String(), 303, "do", "accept")
	if o.opens(again, o.alpha) || !o.opens(again, o.beta) {
		t.Error("the session does not open what was accepted alone")
	}

	t.Log("who has neither a membership nor an offer cannot sign in")
	o.invites(o.alpha, o.bo)
	bo := o.recovers(o.bo)
	o.posts(bo, "/offers/"+o.offer(o.alpha, o.bo).String(), 303, "do", "decline")
	o.shows(bo, "/offers", true, "There is no open offer")
	o.posts(webtest.NewReader(t, o.urls.Console), "/sign-in", 403, "email", o.bo, "password", anasPassword)
}

// The same by a provider with a verified address.
func TestOffers_Provider(t *testing.T) {
	company := oidctest.NewCompany(t)
	o := newOffering(t, func(c *Config) {
		c.SignIn.SignUp = true
		c.SignIn.Provider = signin.Provider{
			Issuer: company.URL, ClientID: oidctest.ClientID, ClientSecret: oidctest.ClientSecret,
		}
	})
	company.Now = o.cfg.now
	enter := func(want int, to string, fields ...string) *webtest.Reader {
		t.Helper()
		browser := webtest.NewReader(t, o.urls.Console)
		asked, err := url.Parse(o.posts(browser, "/sign-in/oidc", 303, fields...).Location)
		runtest.Must(t, err)
		company.Asked = asked.Query()
		got := browser.Ask(http.MethodGet, "/sign-in/oidc/callback?"+url.Values{
			"state": {company.Asked.Get("state")}, "code": {"the code"},
		}.Encode(), nil)
		if got.Status != want || !strings.HasPrefix(got.Location, to) {
			t.Errorf("the provider's answer: %d to %q, want %d: %.900s", got.Status, got.Location, want, got.Body)
		}
		return browser
	}
	enter(403, "")
	o.invites(o.alpha, oidctest.Email)
	company.Claims["email_verified"] = false
	enter(403, "")
	delete(company.Claims, "email_verified")
	enter(303, "/link/", "sign-up", "1") // an offer keeps nobody from an organization of the own
	ana := enter(303, "/")
	if got := ana.Ask(http.MethodGet, "/account", nil); got.Location != "/offers" {
		t.Errorf("the account: %d to %q", got.Status, got.Location)
	}
	enter(303, "/link/", "sign-up", "1")
	o.posts(enter(303, "/"), "/offers/"+o.offer(o.alpha, oidctest.Email).String(), 303, "do", "accept")
	if !o.opens(ana, o.alpha) {
		t.Error("the organization is shut")
	}
}

// Both sides of each limit, through the pages.
func TestOffers_Limits(t *testing.T) {
	o := newOffering(t, func(c *Config) {
		c.MemberLimits = organization.Limits{Members: 2, OpenOffers: 2, OffersPerHour: 4}
	})
	link := o.invites(o.alpha, o.ana)
	late := o.invites(o.alpha, o.bo)
	o.posts(o.alpha.owner, membersPage, 409, "email", o.someone("cy"), "role", "admin")
	o.posts(webtest.NewReader(t, o.urls.Console), link, 303, "password", anasPassword)
	o.posts(webtest.NewReader(t, o.urls.Console), late, 409, "password", anasPassword)
	if got := o.memberships(o.bo); got != nil {
		t.Errorf("one member more than allowed: %v", got)
	}
	o.invites(o.alpha, o.someone("cy"))
	o.invites(o.alpha, o.bo) // in the place of the one before
	o.posts(o.alpha.owner, membersPage, 429, "email", o.bo, "role", "admin")
	o.invites(o.beta, o.bo)
	o.ahead.Add(int64(time.Hour))
	o.owns(o.alpha)
	o.invites(o.alpha, o.bo)
}

// owns signs the owner of an organization in again.
func (o *offering) owns(of *offerer) {
	o.t.Helper()
	of.owner = o.signsIn(o.ownerOf(of.Name))
}
