package main

import (
	"strings"
	"testing"
)

func TestSettings_People(t *testing.T) {
	const issuer, server = "https://login.example.com", "smtps://user:hidden@mail.example.com?from=annals@example.com"
	for name, c := range map[string]struct {
		settings PeopleSettings
		bad      string
	}{
		"defaults":            {PeopleSettings{OwnerEmail: "owner@annals.local"}, ""},
		"a provider":          {PeopleSettings{Issuer: issuer, ClientID: "annals", Secret: "hidden", SignUp: "on"}, ""},
		"a mail server":       {PeopleSettings{SMTP: server, SignUp: "on"}, ""},
		"no address":          {PeopleSettings{OwnerEmail: "owner"}, "OWNER_EMAIL"},
		"no secret":           {PeopleSettings{Issuer: issuer, ClientID: "annals"}, "OIDC_CLIENT_ID"},
		"no issuer":           {PeopleSettings{Secret: "hidden"}, "OIDC_ISSUER"},
		"an issuer of no use": {PeopleSettings{Issuer: "login.example.com", ClientID: "annals", Secret: "hidden"}, "OIDC_ISSUER"},
		"no mail server":      {PeopleSettings{SMTP: "https://hidden@mail.example.com"}, "SMTP_URL"},
		"nothing verifies":    {PeopleSettings{SignUp: "on"}, "SIGN_UP"},
		"the most of limits":  {PeopleSettings{Members: 1000, OpenOffers: 1000, HourOffers: 10_000}, ""},
		"too many members":    {PeopleSettings{Members: 1001}, "MEMBERS_PER_ORGANIZATION"},
		"too many offers":     {PeopleSettings{OpenOffers: 1001}, "OPEN_OFFERS"},
		"negative offers":     {PeopleSettings{OpenOffers: -1}, "OPEN_OFFERS"},
		"too many an hour":    {PeopleSettings{HourOffers: 10_001}, "OFFERS_PER_HOUR"},
	} {
		var bad, text string
		c.settings.validatePeople(func(name, format string, _ ...any) { bad, text = name, format })
		if bad != c.bad || strings.Contains(text, "hidden") {
			t.Errorf("%s: %q (%s), want %q", name, bad, text, c.bad)
		}
	}
	on := PeopleSettings{SMTP: server, SignUp: "on", TrustEmail: "on", Issuer: issuer}.signIn()
	if !on.SignUp || !on.Mail.Set() || !on.Provider.TrustEmail || on.Provider.Issuer != issuer {
		t.Errorf("%+v", on)
	}
}
