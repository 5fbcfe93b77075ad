package server

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/seedtest"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/internal/webtest"
)

// mailboxes keep the mails to each address.
type mailboxes struct {
	mu    sync.Mutex
	mails map[string][]string
}

func (*mailboxes) Set() bool { return true }

func (m *mailboxes) Send(_ context.Context, to, _, text string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mails[to] = append(m.mails[to], text)
	return nil
}

// take returns the mails to an address, and empties the box.
func (m *mailboxes) take(address string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	mails := m.mails[address]
	delete(m.mails, address)
	return mails
}

// linkIn finds the token of a one-time link in a page or a mail.
var linkIn = regexp.MustCompile(`/(?:link|invite)/([A-Za-z0-9_-]{43})`)

// walker is somebody with secrets: the mailboxes of some addresses, the links that came to them or that the walker made
// as the owner of an organization, and passwords. Nobody gives a secret away.
type walker struct {
	browser   *webtest.Reader
	addresses []string
	// own is the organization of an owner, zero for others.
	own       tenants.Organization
	links     []string
	passwords map[string]string // by address
}

// offersWalk is three organizations, and people who want to be members of all of them.
type offersWalk struct {
	*harness
	rng     *rand.Rand
	mails   *mailboxes
	orgs    []tenants.Organization
	walkers []*walker
	// offered are the organizations that ever made an offer to an address, or whose owner it is.
	offered map[string]map[uuid.UUID]bool
	done    map[string]int
}

const walkPassword = "correct horse battery"

func newOffersWalk(t *testing.T) *offersWalk {
	t.Helper()
	w := &offersWalk{
		harness: newHarness(t), rng: rand.New(rand.NewPCG(seedtest.Of(t), 7)),
		mails:   &mailboxes{mails: map[string][]string{}},
		offered: map[string]map[uuid.UUID]bool{}, done: map[string]int{},
	}
	w.set = func(c *Config) {
		c.SignIn.Mail = w.mails
		c.MemberLimits = organization.Limits{Members: 100, OpenOffers: 100, OffersPerHour: 1 << 20}
	}
	w.arrange = func(s *Server) {
		s.signin.HashMemory, s.signin.FailureTime = 64, time.Nanosecond
		for _, limit := range []*int{
			&s.signin.AddressFailures, &s.signin.PairFailures, &s.signin.SecondFactorFailures, &s.signin.AccountFailures,
		} {
			*limit = 1 << 30
		}
	}
	w.start()
	service, call := w.people()
	for i := range 3 {
		boss := fmt.Sprintf("boss%d@walk.example", i)
		o, err := service.CreateOrganization(t.Context(), call,
			tenancy.NewOrganization{Name: fmt.Sprintf("Walk %d", i), Plan: metering.Flex, OwnerEmail: boss})
		runtest.Must(t, err)
		w.orgs = append(w.orgs, o)
		owner := w.walker(boss, fmt.Sprintf("also%d@walk.example", i))
		owner.own = o
		w.offered[boss][o.ID] = true
		id, _, err := service.FindPerson(t.Context(), boss)
		runtest.Must(t, err)
		_, err = w.signin.GeneratePassword(t.Context(), id, boss, walkPassword)
		runtest.Must(t, err)
		owner.passwords[boss] = walkPassword
		w.signIn(owner)
	}
	for i := range 5 {
		w.walker(fmt.Sprintf("ana%d@walk.example", i), fmt.Sprintf("new%d@walk.example", i))
	}
	return w
}

func (w *offersWalk) walker(addresses ...string) *walker {
	one := &walker{
		browser: webtest.NewReader(w.t, w.urls.Console), addresses: addresses, passwords: map[string]string{},
	}
	w.walkers = append(w.walkers, one)
	for _, address := range addresses {
		w.offered[address] = map[uuid.UUID]bool{}
	}
	return one
}

func pick[T any](rng *rand.Rand, list []T) (one T) {
	if len(list) > 0 {
		one = list[rng.IntN(len(list))]
	}
	return one
}

func (w *offersWalk) anyAddress() string {
	return pick(w.rng, pick(w.rng, w.walkers).addresses)
}

// post submits a form as a walker, who learns the links that the answer shows and those that are mailed.
func (w *offersWalk) post(by *walker, what, path string, form ...string) webtest.Answer {
	w.t.Helper()
	values := url.Values{}
	for i := 0; i+1 < len(form); i += 2 {
		values.Add(form[i], form[i+1])
	}
	got := by.browser.Ask(http.MethodPost, path, values)
	if strings.Contains(got.Location, "?shown=") {
		got = by.browser.Ask(http.MethodGet, got.Location, nil)
	}
	if got.Status >= 500 || got.Status == 429 {
		w.t.Fatalf("%s: POST %s %v: %d %.600s", what, path, values, got.Status, got.Body)
	}
	if got.Status < 400 {
		w.done[what]++
	}
	for _, found := range linkIn.FindAllStringSubmatch(got.Body, -1) {
		by.links = append(by.links, found[1])
	}
	for _, one := range w.walkers {
		for _, address := range one.addresses {
			for _, text := range w.mails.take(address) {
				for _, found := range linkIn.FindAllStringSubmatch(text, -1) {
					one.links = append(one.links, found[1])
				}
			}
		}
	}
	return got
}

func (w *offersWalk) signIn(by *walker) {
	email := pick(w.rng, slices.Sorted(maps.Keys(by.passwords)))
	w.post(by, "sign in", "/sign-in", "email", email, "password", by.passwords[email])
}

// hrefs returns what follows a path in the links and forms of a page: ids.
func (w *offersWalk) hrefs(by *walker, page, prefix string) (ids []string) {
	got := by.browser.Ask(http.MethodGet, page, nil)
	pattern := regexp.MustCompile(`(?:href|action)="` + regexp.QuoteMeta(prefix) + `([0-9a-f-]{36})"`)
	for _, found := range pattern.FindAllStringSubmatch(got.Body, -1) {
		if !slices.Contains(ids, found[1]) {
			ids = append(ids, found[1])
		}
	}
	return ids
}

// step lets somebody do something, and returns who, and for which organization if it was as its owner.
func (w *offersWalk) step() (by *walker, of uuid.UUID) {
	by = pick(w.rng, w.walkers)
	if by.own.ID != uuid.Nil && w.rng.IntN(3) > 0 {
		w.manage(by)
		return by, by.own.ID
	}
	switch w.rng.IntN(10) {
	case 0:
		w.signIn(by)
	case 1:
		w.post(by, "ask for a link", "/sign-in/forgotten", "email", w.anyAddress())
	case 2, 3, 4:
		return by, w.useLink(by)
	case 5, 6:
		if id := pick(w.rng, w.hrefs(by, "/offers", "/offers/")); id != "" {
			do := []string{"accept", "accept", "decline"}[w.rng.IntN(3)]
			w.post(by, do, "/offers/"+id, "do", do)
		}
	case 7:
		email := w.anyAddress()
		if w.rng.IntN(2) == 0 {
			email = pick(w.rng, by.addresses)
		}
		w.post(by, "change the address", "/account/address", "email", email)
	case 8:
		w.post(by, "leave", "/account/leave", "organization", pick(w.rng, w.orgs).ID.String(), "sure", "1")
	case 9:
		by.browser = webtest.NewReader(w.t, w.urls.Console)
	}
	return by, uuid.Nil
}

// manage lets the owner of an organization manage people.
func (w *offersWalk) manage(by *walker) {
	if w.post(by, "choose", "/organization", "organization", by.own.ID.String()).Status != http.StatusSeeOther {
		w.signIn(by)
		return
	}
	switch w.rng.IntN(7) {
	case 0, 1, 2:
		email := w.anyAddress()
		role := []string{"member", "admin"}[w.rng.IntN(2)]
		if got := w.post(by, "offer", "/settings/members", "email", email, "role", role); got.Status == http.StatusOK {
			w.offered[email][by.own.ID] = true
		}
	case 3:
		if id := pick(w.rng, w.hrefs(by, membersPage, "/settings/offers/")); id != "" {
			w.post(by, "withdraw", "/settings/offers/"+id, "do", "withdraw")
		}
	case 4, 5:
		if id := pick(w.rng, w.hrefs(by, membersPage, membersPage+"/")); id != "" {
			w.post(by, "reset", membersPage+"/"+id, "do", "password", "sure", "yes")
		}
	case 6:
		if id := pick(w.rng, w.hrefs(by, membersPage, membersPage+"/")); id != "" {
			w.post(by, "remove", membersPage+"/"+id, "do", "remove", "sure", "yes")
		}
	}
}

const membersPage = "/settings/members"

// useLink uses a link that the walker knows, which may have ended, and returns the organization that made it.
func (w *offersWalk) useLink(by *walker) (of uuid.UUID) {
	if len(by.links) == 0 {
		return uuid.Nil
	}
	token := by.links[len(by.links)-1]
	if w.rng.IntN(2) == 0 {
		token = pick(w.rng, by.links)
	}
	link, lives, err := w.signin.Link(w.t.Context(), token)
	runtest.Must(w.t, err)
	got := w.post(by, "use a link", "/link/"+token, "password", walkPassword)
	if lives && got.Status == http.StatusSeeOther {
		by.passwords[link.Email] = walkPassword
		w.done["use a link: "+string(link.Purpose)]++
	}
	return link.Organization
}

// others are the open offers and the links that organizations made, by organization.
func (w *offersWalk) others() map[uuid.UUID][]string {
	list := map[uuid.UUID][]string{}
	for _, sql := range []string{
		`select organization_id, 'offer ' || id from access.offers where expires_at is not null`,
		`select organization_id, purpose || ' ' || encode(token, 'hex') from ops.signin_links
			where organization_id <> '00000000-0000-0000-0000-000000000000'`,
	} {
		rows, err := w.storage.db.Query(w.t.Context(), sql)
		runtest.Must(w.t, err)
		var id uuid.UUID
		var what string
		_, err = pgx.ForEachRow(rows, []any{&id, &what}, func() error {
			list[id] = append(list[id], what)
			return nil
		})
		runtest.Must(w.t, err)
	}
	return list
}

// check checks what a walker opens after a step.
func (w *offersWalk) check(by *walker) {
	w.t.Helper()
	for _, o := range w.orgs {
		got := by.browser.Ask(http.MethodPost, "/organization", url.Values{"organization": {o.ID.String()}})
		if got.Status != http.StatusSeeOther || strings.HasPrefix(got.Location, "/sign-in") {
			continue
		}
		w.done["open"]++
		if !slices.ContainsFunc(by.addresses, func(a string) bool { return w.offered[a][o.ID] }) {
			w.t.Fatalf("%v opens %s, which offered nothing to these addresses", by.addresses, o.Name)
		}
		if by.own.ID != o.ID {
			w.done["open another"]++
		}
	}
}

var sameBut = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`[a-z0-9]+@walk\.example`), "A"},
	{linkIn, "/link/"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`), "ID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ][\d:.Z]+`), "T"},
	{regexp.MustCompile(`name="form" value="[A-Z0-9]+"`), "F"},
}

// showsNobody checks that whether somebody has an address shows neither in the page of members, nor in the mail, nor in
// the page of the link.
func (w *offersWalk) showsNobody() {
	w.t.Helper()
	owner, stranger := w.walkers[0].browser, webtest.NewReader(w.t, w.urls.Console)
	seen := map[string]string{}
	known, other := w.walkers[1].addresses[0], "other@walk.example"
	for _, email := range []string{known, other} {
		form := url.Values{"email": {email}, "role": {"admin"}}
		page := owner.Post(membersPage, form).Body
		again := owner.Post(membersPage, form).Body
		all := page + strings.Join(w.mails.take(email), "\n")
		for _, link := range []string{linkIn.FindString(page), linkIn.FindString(again)} {
			got := stranger.Ask(http.MethodGet, link, nil)
			all += fmt.Sprint(got.Status, got.Body)
		}
		ids := w.hrefs(w.walkers[0], membersPage, "/settings/offers/")
		if len(ids) != 1 || owner.Ask(http.MethodPost, "/settings/offers/"+ids[0], nil).Status != http.StatusSeeOther {
			w.t.Fatalf("the offers are %v", ids)
		}
		for _, part := range sameBut {
			all = part.pattern.ReplaceAllString(all, part.with)
		}
		if seen[email] = all; strings.Count(all, "/link/") < 2 {
			w.t.Errorf("the pages name no links: %s", all)
		}
	}
	if diff := cmp.Diff(seen[known], seen[other]); diff != "" {
		w.t.Errorf("the pages differ (-known +other):\n%s", diff)
	}
}

// In a walk of people who offer, accept, use links, reset, change addresses, remove and leave, nobody opens an
// organization that made no offer to an address which that person proved, and no organization ends an offer or a link
// of another. ANNALS_OFFER_STEPS makes it longer.
func TestOffers_Walk(t *testing.T) {
	unraced(t)
	t.Parallel()
	steps := stepsOf(t, "ANNALS_OFFER_STEPS", 1000)
	w := newOffersWalk(t)
	w.showsNobody()
	before := w.others()
	for n := range steps {
		by, of := w.step()
		w.check(by)
		after := w.others()
		for id, list := range before {
			for _, what := range list {
				if of != uuid.Nil && id != of && !slices.Contains(after[id], what) {
					t.Fatalf("step %d: organization %s ended %q of %s", n, of, what, id)
				}
			}
		}
		before = after
		w.ahead.Add(int64(time.Second))
	}
	t.Log(w.done)
	for _, what := range []string{
		"sign in", "ask for a link", "accept", "decline", "change the address", "leave", "offer", "withdraw", "reset",
		"remove", "open another", "use a link: invite", "use a link: reset", "use a link: recovery",
		"use a link: verification",
	} {
		if w.done[what] == 0 {
			t.Errorf("nobody ever did: %s", what)
		}
	}
}
