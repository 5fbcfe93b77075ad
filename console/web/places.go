package web

import (
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
)

// places are what the requests of a site share, in turn between organizations and between the addresses of visitors.
type places struct{ sessions, visitors, pages *allowance.Allowance }

func newPlaces() places {
	return places{admission.Sessions.New(), admission.Visitors.New(), admission.Pages.New()}
}

// take reserves a place for a request whose person is known, or known to be nobody. The caller releases it.
func (p places) take(r *Request) (*allowance.Hold, error) {
	place := p.visitors.Open(r.visitor())
	if r.SignedIn() {
		place = p.pages.Open(allowance.Owner{Organization: r.Membership.Organization})
	}
	return place, place.Reserve(r.Context(), 1)
}

// visitor is who shares as long as no organization is known: all of one address.
func (r *Request) visitor() (o allowance.Owner) {
	if caller := r.Caller(); caller.IsValid() {
		o.Organization = caller.As16()
	}
	return o
}
