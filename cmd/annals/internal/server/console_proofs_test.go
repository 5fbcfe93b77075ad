package server

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/internal/webtest"
)

// takeover is a person whose address an organization of an attacker invited. The operator then added it to one of
// a victim. Only the attacker has a link.
type takeover struct {
	*harness
	attacker, victim tenants.Organization
	vera             uuid.UUID
	// veras is the address, evils one of the attacker.
	veras, evils string
	browser      *webtest.Reader
}

func newTakeover(t *testing.T) *takeover {
	t.Helper()
	s := &takeover{harness: newTenant(t)}
	s.veras, s.evils = "vera@"+s.domain("victim"), "evil@"+s.domain("attacker")
	service, call := s.people()
	var err error
	for _, o := range []struct {
		*tenants.Organization
		name, owner string
	}{{&s.attacker, "Attackers", "eve@" + s.domain("attacker")}, {&s.victim, "Victims", "boss@" + s.domain("victim")}} {
		*o.Organization, err = service.CreateOrganization(t.Context(), call,
			commands.NewOrganization{Name: s.name(o.name), Plan: metering.Flex, OwnerEmail: o.owner})
		runtest.Must(t, err)
		call.Principal.OrganizationID = o.ID
		_, err = service.CreateProject(t.Context(), call, o.name)
		runtest.Must(t, err)
	}
	s.browser = webtest.NewReader(t, s.urls.Console)
	offer, err := service.OfferMembership(t.Context(), call, s.attacker.ID,
		commands.NewOffer{Email: s.veras, Role: organization.Admin}, time.Hour)
	runtest.Must(t, err)
	link, _, _, err := s.memberLinks().Invite(t.Context(), signin.Link{
		Purpose: signin.Invite, Offer: offer.ID, Email: s.veras, Organization: s.attacker.ID,
	})
	runtest.Must(t, err)
	s.use(strings.TrimPrefix(link, s.urls.Console))
	s.vera, err = service.AddMember(t.Context(), call, s.victim.ID,
		commands.NewMember{Email: s.veras, Role: organization.Admin})
	runtest.Must(t, err)
	return s
}

// use sets a password by a link, in the browser.
func (s *takeover) use(path string) {
	s.t.Helper()
	got := s.browser.Ask(http.MethodPost, path, url.Values{"password": {"correct horse battery"}})
	if got.Status != 303 || got.Location != "/" {
		s.t.Fatalf("POST %s: %d to %s: %.600s", path, got.Status, got.Location, got.Body)
	}
}

func (s *takeover) mailed(purpose signin.Purpose, email string) (path string) {
	s.t.Helper()
	token, err := s.signin.NewLink(s.t.Context(), signin.Link{Purpose: purpose, Person: s.vera, Email: email})
	runtest.Must(s.t, err)
	return "/link/" + token
}

// opens reports whether the browser opens the pages of an organization, by all ways in.
func (s *takeover) opens(o tenants.Organization) bool {
	s.t.Helper()
	chosen := s.browser.Ask(http.MethodPost, "/organization", url.Values{"organization": {o.ID.String()}}).Status == 303
	project := s.browser.Ask(http.MethodGet, "/p/"+strings.ToLower(strings.Fields(o.Name)[0])+"/keys", nil).Status == 200
	if chosen != project {
		s.t.Errorf("%s: chosen %t, project %t", o.Name, chosen, project)
	}
	return project
}

// An account that was made before the victim's invitation never opens the victim's organization, whatever address its
// holder proves.
func TestTakeover_ByAnotherAddress(t *testing.T) {
	unraced(t)
	t.Parallel()
	s := newTakeover(t)
	if !s.opens(s.attacker) || s.opens(s.victim) {
		t.Fatal("the link of one organization opens another, or not its own")
	}
	s.use(s.mailed(signin.Verification, s.evils))
	p, _, err := s.read.access.Memberships(t.Context(), s.vera)
	runtest.Must(t, err)
	if p.Email != s.evils || len(p.Memberships) != 2 || p.Memberships[1].Given != s.veras {
		t.Fatalf("person %+v", p)
	}
	if !s.opens(s.attacker) || s.opens(s.victim) {
		t.Error("a change of the address opens another organization")
	}
	s.browser = webtest.NewReader(t, s.urls.Console)
	s.use(s.mailed(signin.Recovery, s.evils))
	if s.opens(s.victim) {
		t.Error("a forgotten password opens another organization")
	}
}

// Who proves the address has what both gave to it, and the attacker nothing any more.
func TestTakeover_OwnerOfTheAddressComes(t *testing.T) {
	unraced(t)
	t.Parallel()
	s := newTakeover(t)
	attacker := s.browser
	s.browser = webtest.NewReader(t, s.urls.Console)
	s.use(s.mailed(signin.Recovery, s.veras))
	if !s.opens(s.attacker) || !s.opens(s.victim) {
		t.Error("who proved the address does not open what was given to it")
	}
	s.browser = attacker
	if s.opens(s.attacker) || s.opens(s.victim) {
		t.Error("the session of before the proof lives")
	}
}
