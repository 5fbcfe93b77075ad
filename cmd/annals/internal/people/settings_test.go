package people

import (
	"strings"
	"testing"
)

func TestSettings_People(t *testing.T) {
	const issuer, server = "https://login.example.com", "smtps://user:hidden@mail.example.com?from=annals@example.com"
	for name, c := range map[string]struct {
		settings Settings
		bad      string
	}{
		"defaults":            {Settings{OwnerEmail: "owner@annals.local"}, ""},
		"a provider":          {Settings{Issuer: issuer, ClientID: "annals", Secret: "hidden", SignUp: "on"}, ""},
		"a mail server":       {Settings{SMTP: server, SignUp: "on"}, ""},
		"no address":          {Settings{OwnerEmail: "owner"}, "OWNER_EMAIL"},
		"no secret":           {Settings{Issuer: issuer, ClientID: "annals"}, "OIDC_CLIENT_ID"},
		"no issuer":           {Settings{Secret: "hidden"}, "OIDC_ISSUER"},
		"an issuer of no use": {Settings{Issuer: "login.example.com", ClientID: "annals", Secret: "hidden"}, "OIDC_ISSUER"},
		"no mail server":      {Settings{SMTP: "https://hidden@mail.example.com"}, "SMTP_URL"},
		"nothing verifies":    {Settings{SignUp: "on"}, "SIGN_UP"},
		"the most of limits":  {Settings{Members: 1000, OpenOffers: 1000, HourOffers: 10_000}, ""},
		"too many members":    {Settings{Members: 1001}, "MEMBERS_PER_ORGANIZATION"},
		"too many offers":     {Settings{OpenOffers: 1001}, "OPEN_OFFERS"},
		"negative offers":     {Settings{OpenOffers: -1}, "OPEN_OFFERS"},
		"too many an hour":    {Settings{HourOffers: 10_001}, "OFFERS_PER_HOUR"},
	} {
		var bad, text string
		c.settings.ValidatePeople(func(name, format string, _ ...any) { bad, text = name, format })
		if bad != c.bad || strings.Contains(text, "hidden") {
			t.Errorf("%s: %q (%s), want %q", name, bad, text, c.bad)
		}
	}
	on := Settings{SMTP: server, SignUp: "on", TrustEmail: "on", Issuer: issuer}.SignIn()
	if !on.SignUp || !on.Mail.Set() || !on.Provider.TrustEmail || on.Provider.Issuer != issuer {
		t.Errorf("%+v", on)
	}
}
