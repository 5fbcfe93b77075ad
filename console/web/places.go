package web

import (
	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
)

// places are what the requests of a site share, in turn between organizations and between the addresses of visitors. A
// place is held for work alone: bodies arrive before it is taken, and answers are read after it was returned. What is
// held meanwhile is counted in bytes, and a peer that is silent gives way to others.
type places struct {
	sessions, visitors, browsers, pages, tools, exports *allowance.Allowance
	visiting, forms, longForms, unread                  *allowance.Allowance
}

func newPlaces() places {
	return places{
		sessions: admission.Sessions.New(), visitors: admission.Visitors.New(), browsers: admission.Known.New(),
		pages: admission.Pages.New(), tools: admission.Tools.New(), exports: admission.Exports.New(),
		visiting: admission.Visiting.New(), forms: admission.Forms.New(), longForms: admission.LongForms.New(),
		unread: admission.Unread.New(),
	}
}

// Shared is something that the requests of a site share.
type Shared struct {
	*allowance.Allowance

	// Class names it in the metrics. Bytes is true if its unit is a byte, not a place.
	Class string
	Bytes bool
}

// Shared lists what the requests share.
func (s *Site) Shared() []Shared {
	p := s.places
	return []Shared{
		{p.sessions, "sessions", false},
		{p.visitors, "visitors", false},
		{p.browsers, "known-browsers", false},
		{p.pages, "pages", false},
		{p.tools, "tools", false},
		{p.exports, "exports", false},
		{p.visiting, "visitors-bodies", true},
		{p.forms, "forms", true},
		{p.longForms, "long-forms", true},
		{p.unread, "unread", true},
	}
}

// owner is who shares: an organization once it is known, else the person of a known browser, or all of one address.
func (r *Request) owner() allowance.Owner {
	switch {
	case r.known():
		return r.program.Owner
	case r.inside():
		return allowance.Owner{Organization: r.Membership.Organization}
	case r.browser != uuid.Nil:
		return allowance.Owner{Organization: r.browser}
	default:
		return r.visitor()
	}
}

// known reports whether the request is of a program whose organization is known.
func (r *Request) known() bool { return r.program.Owner != allowance.Owner{} }

// inside reports whether the session opens an organization. Who is outside shares what visitors and known browsers do.
func (r *Request) inside() bool { return r.SignedIn() && !r.shut }

// visitor is who shares as long as no organization is known: all of one address.
func (r *Request) visitor() (o allowance.Owner) {
	if caller := r.Caller(); caller.IsValid() {
		o.Organization = caller.As16()
	}
	return o
}

// enter takes a place for a request whose caller is known, or known to be nobody. leave returns it.
func (r *Request) enter() error {
	among := r.site.places.visitors
	switch {
	case r.known():
		among = r.site.places.tools
	case r.inside():
		among = r.site.places.pages
	case r.browser != uuid.Nil:
		among = r.site.places.browsers
	}
	r.place = among.Open(r.owner())
	return r.place.Reserve(r.Context(), 1)
}

func (r *Request) leave() { r.place.Release() }

// open opens a hold that lasts until the end of the request.
func (r *Request) open(of *allowance.Allowance) *allowance.Hold {
	hold := of.Open(r.owner())
	r.holds = append(r.holds, hold)
	return hold
}

// end returns all that the request holds.
func (r *Request) end() {
	r.leave()
	for _, hold := range r.holds {
		hold.Release()
	}
	for _, cancel := range r.cancels {
		cancel()
	}
}

// LookUp takes a short place to find who has a credential. The caller calls done.
func (r *Request) LookUp() (done func(), err error) {
	place := r.site.places.sessions.Open(r.visitor())
	return place.Release, place.Reserve(r.Context(), 1)
}
