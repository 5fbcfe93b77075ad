package main

import (
	"cmp"
	"net/url"

	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/console/authserver"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/internal/mail"
	"github.com/annals-project/annals/projections/access"
)

// PeopleSettings are the settings of "serve" about people.
type PeopleSettings struct {
	OwnerEmail    string `name:"owner-email" setting:"ANNALS_OWNER_EMAIL" group:"People" default:"owner@annals.local" help:"Address of the person who becomes the Owner of organizations without one at a start."`
	Issuer        string `name:"oidc-issuer" setting:"ANNALS_OIDC_ISSUER" group:"People" help:"Issuer of the OpenID Connect provider by which members sign in, such as https://login.example.com."`
	ClientID      string `name:"oidc-client-id" setting:"ANNALS_OIDC_CLIENT_ID" group:"People" help:"Client id of the console at the provider, whose redirect address is that of the console with /sign-in/oidc/callback."`
	Secret        string `name:"oidc-client-secret" setting:"ANNALS_OIDC_CLIENT_SECRET" group:"People" help:"Secret of that client; better set in the environment than as a flag."`
	TrustEmail    string `name:"oidc-trust-email" setting:"ANNALS_OIDC_TRUST_EMAIL" group:"People" default:"off" help:"Whether an address counts as verified if the provider is silent about that."`
	RequireReason string `name:"require-reason" setting:"ANNALS_REQUIRE_REASON" group:"People" default:"off" help:"Whether commands of an operator that show texts or secrets are refused without --reason."`
	SignUp        string `name:"sign-up" setting:"ANNALS_SIGN_UP" group:"People" default:"off" help:"Whether a stranger with a verified address may create an organization on Pay as you go."`
	Documents     string `name:"oauth-cimd" setting:"ANNALS_OAUTH_CIMD" group:"People" default:"off" help:"Whether programs may be known by an address at which a document describes them (client id metadata documents): on, off, or the hosts of such addresses, separated by commas."`
	Clients       int    `name:"oauth-registrations" setting:"ANNALS_OAUTH_REGISTRATIONS" group:"People" default:"300" help:"Registrations of programs that a network address may make in any 60 minutes, up to 100000."`
	Members       int    `name:"members-per-organization" setting:"ANNALS_MEMBERS_PER_ORGANIZATION" group:"Limits" default:"1000" help:"Members that an organization may have, up to 1000."`
	OpenOffers    int    `name:"open-offers" setting:"ANNALS_OPEN_OFFERS" group:"Limits" default:"200" help:"Offers of a membership that an organization may have open at once, up to 1000."`
	HourOffers    int    `name:"offers-per-hour" setting:"ANNALS_OFFERS_PER_HOUR" group:"Limits" default:"100" help:"Offers of a membership that an organization may make in any 60 minutes, up to 10000."`
	SMTP          string `name:"smtp-url" setting:"ANNALS_SMTP_URL" group:"People" help:"Mail server for links that verify addresses, such as smtps://user:password@mail.example.com?from=annals@example.com, or smtp:// for STARTTLS; better set in the environment than as a flag."`
}

// validatePeople reports settings that cannot work. It does not repeat values that may hold a password.
func (s PeopleSettings) validatePeople(bad func(name, format string, args ...any)) {
	if s.OwnerEmail != "" && !person.ValidEmail(s.OwnerEmail) {
		bad("OWNER_EMAIL", "is %q: want an address such as owner@example.com", s.OwnerEmail)
	}
	issuer, err := url.Parse(s.Issuer)
	switch {
	case s.Issuer == "" && (s.ClientID != "" || s.Secret != ""):
		bad("OIDC_ISSUER", "is not set, but ANNALS_OIDC_CLIENT_ID or ANNALS_OIDC_CLIENT_SECRET is: set all three, or none")
	case s.Issuer == "":
	case err != nil || issuer.Host == "" || issuer.Scheme != "https" && issuer.Scheme != "http":
		bad("OIDC_ISSUER", "is %q: want an address such as https://login.example.com", s.Issuer)
	case s.ClientID == "" || s.Secret == "":
		bad("OIDC_CLIENT_ID", "or ANNALS_OIDC_CLIENT_SECRET is not set, but ANNALS_OIDC_ISSUER is: set all three, or none")
	}
	if _, err := authserver.ParseDocuments(s.Documents); err != nil {
		bad("OAUTH_CIMD", "%v", err)
	}
	if _, err := mail.Parse(s.SMTP); s.SMTP != "" && err != nil {
		bad("SMTP_URL", "%v", err)
	}
	s.validatePeopleLimits(bad)
	if s.SignUp == "on" && s.Issuer == "" && s.SMTP == "" {
		bad("SIGN_UP", "is on, but nothing verifies addresses: set ANNALS_OIDC_ISSUER or ANNALS_SMTP_URL, or turn it off")
	}
}

func (s PeopleSettings) validatePeopleLimits(bad func(name, format string, args ...any)) {
	for _, n := range []struct {
		name       string
		value, max int
	}{
		{"MEMBERS_PER_ORGANIZATION", s.Members, access.MaxMembers},
		{"OPEN_OFFERS", s.OpenOffers, access.MaxMembers},
		{"OFFERS_PER_HOUR", s.HourOffers, maxHourOffers},
		{"OAUTH_REGISTRATIONS", s.Clients, maxHourClients},
	} {
		if n.value < 0 || n.value > n.max {
			bad(n.name, "is %d: want a number up to %d, 0 for the default", n.value, n.max)
		}
	}
}

// maxHourOffers is the most offers an hour that can be set: a decision reads the times of all.
const maxHourOffers = 10_000

// maxHourClients is the most registrations of programs an hour that can be set.
const maxHourClients = 100_000

// memberLimits bound the members and the offers of each organization.
func (s PeopleSettings) memberLimits() organization.Limits {
	usual := organization.DefaultLimits()
	return organization.Limits{
		Members: cmp.Or(s.Members, usual.Members), OpenOffers: cmp.Or(s.OpenOffers, usual.OpenOffers),
		OffersPerHour: cmp.Or(s.HourOffers, usual.OffersPerHour),
	}
}

// signIn returns the configuration of the service. The settings must be valid.
func (s PeopleSettings) signIn() server.SignIn {
	in := server.SignIn{
		OwnerEmail: s.OwnerEmail, SignUp: s.SignUp == "on", Registrations: s.Clients,
		Provider: signin.Provider{
			Issuer: s.Issuer, ClientID: s.ClientID, ClientSecret: s.Secret, TrustEmail: s.TrustEmail == "on",
		},
	}
	in.Documents, _ = authserver.ParseDocuments(s.Documents) // valid
	if server, err := mail.Parse(s.SMTP); err == nil {       // none without an address
		in.Mail = server
	}
	return in
}
