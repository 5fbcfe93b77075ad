package web

import (
	"context"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/access"
)

// maxPlaces bounds how many projects of an organization a page offers.
const maxPlaces = 200

// Place is where a program may act for a person: in one project of an organization, or in all that the person may see.
type Place struct {
	// Value is what a form sends. Scopes are what the person may do there.
	Value, Label string
	Scopes       []string
	// Project is zero for all.
	Organization, Project uuid.UUID
}

// Offer is an organization with its places, that of all projects first.
type Offer struct {
	Name   string
	Places []Place
}

// Offers returns where the person may let a program act now. It leaves out organizations that require a second factor
// if the session has shown none, and those in which the person is an auditor.
func (r *Request) Offers(
	projects func(ctx context.Context, organization uuid.UUID) ([]access.Project, error),
) (offers []Offer, err error) {
	for _, m := range r.Person.Memberships {
		if m.SecondFactor && !r.Session.SecondFactor || isAuditor(m) {
			continue
		}
		of := m.Organization
		list, err := projects(r.Context(), of)
		if err != nil {
			return nil, err
		}
		places := []Place{{of.String(), "all my projects", BestScopes(m), of, uuid.Nil}}
		for _, p := range list {
			if may := scopesIn(m, p.ID); !p.Archived && len(may) > 0 && len(places) <= maxPlaces {
				places = append(places, Place{of.String() + "/" + p.ID.String(), p.Slug, may, of, p.ID})
			}
		}
		offers = append(offers, Offer{m.Name, places})
	}
	return offers, nil
}

// Chosen returns the place that the form of a request names. It is false if that is not offered.
func (r *Request) Chosen(offers []Offer) (Place, bool) {
	for _, o := range offers {
		for _, p := range o.Places {
			if p.Value == r.Field("place") {
				return p, true
			}
		}
	}
	return Place{}, false
}

// scopesIn are the scopes that a member may give in a project.
func scopesIn(m access.Membership, project uuid.UUID) (list []string) {
	if Allows(m, project, Read) {
		list = append(list, string(auth.Read))
	}
	if Allows(m, project, Write) {
		list = append(list, string(auth.Write))
	}
	if Allows(m, project, Admin) {
		list = append(list, string(auth.Operate))
	}
	return list
}

// BestScopes are the scopes that a member may give in any project.
func BestScopes(m access.Membership) []string {
	list := scopesIn(m, uuid.Nil) // of an Admin
	for project := range m.Access {
		if more := scopesIn(m, project); len(more) > len(list) {
			list = more
		}
	}
	return list
}
