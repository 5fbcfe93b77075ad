package account_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/projections/access"
)

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
