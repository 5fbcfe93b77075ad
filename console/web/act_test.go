package web_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/access"
)

// A program is offered what the person may open now, and only what is offered can be chosen.
func TestOffers(t *testing.T) {
	acme, guarded, readable, hidden, archived := uuid.UUID{1}, uuid.UUID{2}, uuid.UUID{3}, uuid.UUID{4}, uuid.UUID{5}
	projects := func(_ context.Context, of uuid.UUID) ([]access.Project, error) {
		if of != acme {
			return nil, nil
		}
		return []access.Project{
			{Project: auth.Project{ID: readable, Slug: "readable"}},
			{Project: auth.Project{ID: hidden, Slug: "hidden"}},
			{Project: auth.Project{ID: archived, Slug: "archived"}, Archived: true},
		}, nil
	}
	person := access.Person{Memberships: []access.Membership{
		{Organization: acme, Name: "Acme", Role: organization.Member, Access: map[uuid.UUID]organization.Access{
			readable: organization.ReadAccess, archived: organization.WriteAccess,
		}},
		{Organization: guarded, Name: "Guarded", Role: organization.Owner, SecondFactor: true},
	}}
	for name, c := range map[string]struct {
		second bool
		want   []string
		chosen map[string]uuid.UUID
	}{
		"without a second factor": {false, []string{
			"Acme: all my projects [memory:read memory:write]", "Acme: readable [memory:read]",
		}, map[string]uuid.UUID{acme.String() + "/" + readable.String(): readable, acme.String(): {}}},
		"with one": {true, []string{
			"Acme: all my projects [memory:read memory:write]", "Acme: readable [memory:read]",
			"Guarded: all my projects [memory:read memory:write memory:operate]",
		}, map[string]uuid.UUID{guarded.String(): {}}},
	} {
		form := func(place string) *web.Request {
			sent := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/",
				strings.NewReader(url.Values{"place": {place}}.Encode()))
			sent.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			return &web.Request{Request: sent, Person: person, Session: signin.Session{SecondFactor: c.second}}
		}
		offers, err := form("").Offers(projects)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range offers {
			for _, p := range o.Places {
				got = append(got, fmt.Sprintf("%s: %s %v", o.Name, p.Label, p.Scopes))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: offered %q", name, got)
		}
		for value, project := range c.chosen {
			p, ok := form(value).Chosen(offers)
			if !ok || p.Project != project || !strings.HasPrefix(value, p.Organization.String()) {
				t.Errorf("%s: %q is %+v, %t", name, value, p, ok)
			}
		}
		for _, value := range []string{"", acme.String() + "/" + hidden.String(), readable.String(), uuid.NewString()} {
			if p, ok := form(value).Chosen(offers); ok {
				t.Errorf("%s: %q is %+v", name, value, p)
			}
		}
		if _, ok := form(guarded.String()).Chosen(offers); ok != c.second {
			t.Errorf("%s: what requires a second factor can be chosen: %t", name, ok)
		}
	}
	failed := errors.New("failed")
	r := &web.Request{Request: httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), Person: person}
	_, err := r.Offers(func(context.Context, uuid.UUID) ([]access.Project, error) { return nil, failed })
	if !errors.Is(err, failed) {
		t.Errorf("projects that cannot be read: %v", err)
	}
}
