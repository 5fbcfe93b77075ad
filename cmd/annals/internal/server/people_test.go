package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"github.com/pquerna/otp/totp"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/people"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/tenants"
)

// people returns the commands on people, and a call.
func (h *harness) people() (*commands.Service, engine.Call) {
	h.t.Helper()
	log := engine.NewJournal(h.storage.store, h.storage.codec, h.cfg.Logger)
	log.Namespaces, log.Now = h.journal.Namespaces, h.cfg.now
	return commands.New(commands.Config{Journal: log, Waiter: h.read.waiter}), engine.Call{
		Principal: auth.Principal{Kind: auth.ManagementKey}, RequestID: uuid.New(), ReceivedAt: h.cfg.now(),
	}
}

// endJoins lets so much time pass that no join is under way for the finisher any more: it would leave the erasure of a
// person for later.
func (h *harness) endJoins() { h.ahead.Add(int64(2 * time.Minute)) }

// managePeople writes the events about people. It leaves one member of an organization besides
// the owner.
func (h *harness) managePeople(acme uuid.UUID) {
	h.t.Helper()
	service, call := h.people()
	offer := func(email string) uuid.UUID {
		in := people.NewOffer{Email: email, Role: organization.Member}
		made, err := service.OfferMembership(h.t.Context(), call, acme, in, time.Hour)
		runtest.Must(h.t, err)
		return made.ID
	}
	bo, err := service.AddMember(h.t.Context(), call, acme,
		people.NewMember{Email: "bo@acme.example", Role: organization.Member})
	runtest.Must(h.t, err)
	cy, err := service.AcceptOffer(h.t.Context(), call, acme, offer("cy@acme.example"), "cy@acme.example")
	runtest.Must(h.t, err)
	runtest.Must(h.t, service.EndOffer(h.t.Context(), call, acme, offer("dee@acme.example"), organization.Declined))
	h.endJoins()
	call.Principal.OrganizationID = acme
	project, err := service.CreateProject(h.t.Context(), call, "Project")
	runtest.Must(h.t, err)
	runtest.Must(h.t, errors.Join(
		service.SetProjectAccess(h.t.Context(), call, acme, cy, project.ID, organization.ReadAccess),
		service.ChangeAddress(h.t.Context(), call, bo, "bo@new.example"),
		service.DescribeProject(h.t.Context(), call, project.Slug, "Project", "What Acme does."),
		service.SetMemberRole(h.t.Context(), call, acme, bo, organization.Admin),
		service.RecordReset(h.t.Context(), call, acme, bo, organization.ResetPassword),
		service.ApproveGrant(h.t.Context(), call, organization.GrantApproved{
			OrganizationID: acme, MemberID: bo, GrantID: uuid.New(), ProjectID: project.ID, Scopes: []string{"memory:read"},
		}),
		service.RevokeGrant(h.t.Context(), call,
			organization.GrantRevoked{OrganizationID: acme, MemberID: bo, GrantID: uuid.New()}),
		h.manageAgents(acme, bo),
		service.SetSecondFactor(h.t.Context(), call, acme, true),
		service.RemoveMember(h.t.Context(), call, acme, cy),
	))
	runtest.Await(h.t, "nothing is left of the person", func() bool { return h.count("address.released.v1") == 2 })
}

// manageAgents writes the events about agents of a member. One agent is left.
func (h *harness) manageAgents(org, member uuid.UUID) error {
	h.t.Helper()
	service, call := h.people()
	call.Principal = auth.Principal{Kind: auth.Person, KeyID: member, OrganizationID: org}
	revoked, stopped := uuid.New(), uuid.New()
	var all []error
	for _, id := range []uuid.UUID{uuid.New(), revoked, stopped} {
		all = append(all, service.ApproveAgent(h.t.Context(), call, organization.AgentApproved{
			OrganizationID: org, AgentID: id, Scopes: []string{"memory:read"},
		}))
	}
	return errors.Join(append(all, service.DenyAgent(h.t.Context(), call, org, uuid.New()),
		service.RevokeAgent(h.t.Context(), call, org, revoked, member),
		service.StopAgent(h.t.Context(), call, org, stopped))...)
}

// organizations are what the operator sees of organizations.
func (h *harness) organizations() []tenants.ListedOrganization {
	h.t.Helper()
	list, err := operatorapi.ListOrganizations.Call(h.t.Context(), operatorapi.Dial(h.dir), operatorapi.TenancyRequest{})
	runtest.Must(h.t, err)
	return list
}

// wantNoAddress fails for each stored event that holds an address outside of the streams of people: in its
// data, its metadata or the name of its stream, in clear or as a plain SHA-256.
func (h *harness) wantNoAddress(emails ...string) (inside int) {
	h.t.Helper()
	for _, email := range emails {
		sum := sha256.Sum256([]byte(email))
		for _, text := range []string{
			email, hex.EncodeToString(sum[:])[:16], base64.RawStdEncoding.EncodeToString(sum[:])[:16],
			base64.RawURLEncoding.EncodeToString(sum[:])[:16], string(sum[:]),
		} {
			for _, e := range h.events() {
				stored := bytes.ToLower(slices.Concat([]byte(e.Stream), []byte("\n"), e.Data, []byte("\n"), e.Meta))
				switch {
				case !bytes.Contains(stored, bytes.ToLower([]byte(text))):
				case stream.Category(e.Stream) == stream.Person:
					inside++
				default:
					h.t.Errorf("%s of %s holds %q", e.Type, e.Stream, text)
				}
			}
		}
	}
	return inside
}

const ownerEmail = "owner@annals.local"

// withOwner is a service that makes an owner, and the links that it shows at a terminal.
func withOwner(t *testing.T) (h *harness, links *[]string) {
	links = &[]string{}
	h = newHarness(t)
	h.set = func(c *Config) {
		c.SignIn = SignIn{OwnerEmail: ownerEmail, ShowLink: func(link string) { *links = append(*links, link) }}
	}
	return h, links
}

func (h *harness) signIn(email, password string) (signin.SignedIn, error) {
	return h.signin.SignIn(h.t.Context(), signin.Attempt{Email: email, Password: password})
}

// The first start makes an owner. Organizations without one, also of an older store, get the person who has a password
// already.
func TestOwners_FirstStart(t *testing.T) {
	unraced(t)
	t.Parallel()
	h, links := withOwner(t)
	h.start()
	values := h.credentials()
	password := values[datafolder.OwnerPasswordName]
	if values[datafolder.OwnerEmailName] != ownerEmail || len(password) < signin.MinPassword || len(*links) != 1 {
		t.Fatalf("credentials have the names %v, links %v", maps.Keys(values), *links)
	}
	if info, err := os.Stat(filepath.Join(h.dir, datafolder.CredentialsFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	in, err := h.signIn(ownerEmail, password)
	runtest.Must(t, err)
	p, _, err := h.read.access.Memberships(t.Context(), in.Person)
	runtest.Must(t, err)
	if len(p.Memberships) != 1 || p.Memberships[0].Role != "owner" || !p.Memberships[0].First {
		t.Errorf("person %+v", p)
	}
	states, err := h.signin.States(t.Context(), in.Person)
	runtest.Must(t, err)
	if !h.signin.Verified(states[in.Person], ownerEmail) {
		t.Error("who reads the generated password has the machine, and can let no agent in")
	}

	// Nobody took the account over, and a crash between the file and the password left a person who cannot sign in.
	runtest.Must(t, h.signin.EndPerson(t.Context(), in.Person))
	h.stop()
	h.start()
	if got := h.credentials()[datafolder.OwnerPasswordName]; got != password || len(*links) != 2 {
		t.Errorf("another password %v, links %v", got != password, *links)
	}
	_, err = h.signIn(ownerEmail, password)
	runtest.Must(t, err)
	token := (*links)[1][strings.LastIndex((*links)[1], "/")+1:]
	if (*links)[1] != h.urls.Console+"/link/"+token {
		t.Errorf("link %s", (*links)[1])
	}
	_, err = h.signin.SetPassword(t.Context(), token, signin.Attempt{Password: "a password of my own"})
	runtest.Must(t, err)
	if _, err := h.signIn(ownerEmail, password); err == nil {
		t.Error("the generated password works after the link was used")
	}
	for name, owner := range map[string]string{"Acme": "", "Other": "ana@other.example"} {
		operate(h, operatorapi.CreateOrganization, operatorapi.NewOrganization{
			NewOrganization: tenancy.NewOrganization{Name: name, Plan: metering.SelfHosted, OwnerEmail: owner}, By: "operator",
		})
	}

	h.stop()
	h.start()
	values = h.credentials()
	if values[datafolder.OwnerPasswordName] != "" || values[datafolder.ProjectKeyName] == "" || len(*links) != 2 {
		t.Errorf("after the take-over: password %q, links %v", values[datafolder.OwnerPasswordName], *links)
	}
	_, err = h.signIn(ownerEmail, "a password of my own")
	runtest.Must(t, err)
	owners := map[string]string{}
	for _, o := range h.organizations() {
		owners[o.Name] = o.OwnerEmail
	}
	want := map[string]string{"Annals": ownerEmail, "Acme": ownerEmail, "Other": "ana@other.example"}
	if !maps.Equal(owners, want) {
		t.Errorf("owners %v, want %v", owners, want)
	}
	h.stop()
}

func TestPersonLink_OfTheOperator(t *testing.T) {
	unraced(t)
	h := newTenant(t)
	ask := func(email, organization string) (operatorapi.PersonLink, error) {
		return operatorapi.LinkPerson.Call(t.Context(), operatorapi.Dial(h.dir), operatorapi.PersonLinkRequest{
			Target: h.target(organization), Email: email,
		})
	}
	owner := func() string {
		list := h.organizations()
		return list[slices.IndexFunc(list, func(o tenants.ListedOrganization) bool { return o.ID == h.home() })].OwnerEmail
	}
	made, err := ask(h.mail("ana"), "")
	runtest.Must(t, err)
	token := made.Link[strings.LastIndex(made.Link, "/")+1:]
	in, err := h.signin.SetPassword(t.Context(), token, signin.Attempt{Password: "a password of my own"})
	runtest.Must(t, err)
	states, err := h.signin.States(t.Context(), in.Person)
	runtest.Must(t, err)
	if !h.signin.Verified(states[in.Person], h.mail("ana")) || owner() != h.mail("ana") {
		t.Errorf("state %+v, the owner is %q", states, owner())
	}
	_, err = ask(h.mail("ana"), "") // a second link
	runtest.Must(t, err)
	if _, err := ask(h.mail("bo"), ""); err == nil || !strings.Contains(err.Error(), "has an owner") {
		t.Errorf("a stranger: %v", err)
	}
	if _, err := ask(h.mail("bo"), "Nobody's"); err == nil {
		t.Error("an organization that does not exist has a new owner")
	}
}

// A person signs in with password and second factor, and tokens are valid, after a backup is restored, whether a server
// ran when it was made or not.
func TestSignIn_AfterARestore(t *testing.T) {
	unraced(t)
	h, _ := withOwner(t)
	h.postgres = Embedded
	h.start()
	password := h.credentials()[datafolder.OwnerPasswordName]
	in, err := h.signIn(ownerEmail, password)
	runtest.Must(t, err)
	session, _, err := h.signin.Session(t.Context(), in.Token)
	runtest.Must(t, err)
	e, err := h.signin.Enrol(in.Person, ownerEmail, "")
	runtest.Must(t, err)
	code, err := totp.GenerateCode(e.Secret, time.Now())
	runtest.Must(t, err)
	_, codes, err := h.signin.Confirm(t.Context(), session, signin.Attempt{}, e.Sealed, code)
	runtest.Must(t, err)
	claims := jwt.RegisteredClaims{
		Issuer: "i", Audience: jwt.ClaimStrings{"a"}, ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour)),
	}
	token, err := h.tokens.Sign(t.Context(), "at+jwt", claims)
	runtest.Must(t, err)
	online, offline := filepath.Join(t.TempDir(), "online"), filepath.Join(t.TempDir(), "offline")
	_, err = h.backups.Make(t.Context(), online)
	runtest.Must(t, err)
	h.stop()
	_, err = datafolder.Folder{Dir: h.dir}.BackupOffline(t.Context(), offline)
	runtest.Must(t, err)
	for _, backup := range []string{online, offline} {
		next, _ := withOwner(t)
		_, err = datafolder.Restore(t.Context(), backup, next.dir)
		runtest.Must(t, err)
		next.start()
		pending, err := next.signIn(ownerEmail, password)
		runtest.Must(t, err)
		if !pending.Pending {
			t.Errorf("%s: the second factor is gone", backup)
		}
		_, err = next.signin.SecondFactor(t.Context(), pending.Token, codes[0], signin.Client{})
		runtest.Must(t, err)
		runtest.Must(t, next.tokens.Verify(t.Context(), token, "at+jwt", "i", "a", &claims))
		if _, err := os.Stat(filepath.Join(next.dir, datafolder.SignInsFile)); !os.IsNotExist(err) {
			t.Errorf("%s: the file stays: %v", backup, err)
		}
		next.stop()
	}
}

// A start survives an event store that is away for a moment, ends if it stays away, and ends at once
// for any other reason.
func TestBootstrap_RetriesWhileUnavailable(t *testing.T) {
	away := fmt.Errorf("read the registry: %w", fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "away"))
	wrong := errors.New("wrong key")
	for name, c := range map[string]struct {
		answers []error // the last one is repeated
		want    error
		opened  int
	}{
		"at once":          {[]error{nil}, nil, 1},
		"away for a time":  {[]error{away, away, nil}, nil, 3},
		"stays away":       {[]error{away}, away, openTries},
		"another reason":   {[]error{wrong}, wrong, 1},
		"away, then wrong": {[]error{away, wrong}, wrong, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opened := 0
				err := retryUnavailable(t.Context(), slog.New(slog.DiscardHandler), func() error {
					opened++
					return c.answers[min(opened, len(c.answers))-1]
				})
				if !errors.Is(err, c.want) || opened != c.opened {
					t.Errorf("opened %d times: %v, want %d times: %v", opened, err, c.opened, c.want)
				}
			})
		})
	}
}
