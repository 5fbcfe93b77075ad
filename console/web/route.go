// Package web is what the pages of the console share: the table of routes and who may open which, the person of a
// request, forms, lists and the layout.
//
// A page is a Route of an Area. Its handler reads the queries that the API reads, calls the commands that the API
// calls, and answers with a method of Request: Render, Invalid, Redirect, Done or Rows. Everything works without
// scripts: a list is a form of the method GET with its filters in the URL, a change is a POST that redirects. Scripts
// make it quicker (static/app.js, htmx).
package web

import (
	"context"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/access"
)

// Area is some pages with their templates. A template defines "title" and "main"; Request.Render names its file.
type Area struct {
	Templates fs.FS
	Routes    []Route
}

// Route is a page, or what a form does.
type Route struct {
	// Pattern is a method and a path as http.ServeMux takes them. {project} is the slug of a project.
	Pattern string
	Needs   Needs
	// Auditors is what the page shows an auditor, who may open no other.
	Auditors Auditing
	// Body is the most bytes of the body of a request, 0 for 64 KiB.
	Body int64
	// Time is the most time that a request takes once its body is there, with the answer, 0 for 30 s.
	Time time.Duration
	// Leaves reports that a POST of the page redirects to another host, which the policy of forms would forbid.
	Leaves bool
	// Unguarded routes may be opened before the second factor that an organization requires: those that set it up.
	Unguarded bool
	// Outside routes may be opened by a session that opens no organization: they show what is offered to the person.
	Outside bool
	// Live routes change data, which an archived project refuses: the fault is project-archived.
	Live bool
	// Public routes are for programs. They look neither at the session nor at the origin, and parse their body themselves.
	Public bool
	// Identify finds which program calls a Public route, by the headers of the request. Without it all callers share the
	// places of visitors.
	Identify func(*Request) (Program, error)
	// Refuse answers a program that is refused; nil shows a page.
	Refuse func(*Request, error) error
	Serve  func(*Request) error
}

// Program is a program that calls.
type Program struct {
	// Owner is who shares its places.
	Owner allowance.Owner
	// Caller is what Identify found, for Serve.
	Caller any
}

const (
	pageBody = 64 << 10
	pageTime = 30 * time.Second
)

// AnyOrigin lets the scripts of every site call Public routes, and adds the routes that answer their preflights.
func AnyOrigin(routes ...Route) []Route {
	methods := map[string][]string{}
	for i, route := range routes {
		method, path, _ := strings.Cut(route.Pattern, " ")
		methods[path] = append(methods[path], method)
		routes[i].Serve = func(r *Request) error {
			r.w.Header().Set("Access-Control-Allow-Origin", "*")
			return route.Serve(r)
		}
		if route.Refuse != nil {
			routes[i].Refuse = func(r *Request, err error) error {
				r.w.Header().Set("Access-Control-Allow-Origin", "*")
				return route.Refuse(r, err)
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(methods)) {
		routes = append(routes, Route{Pattern: "OPTIONS " + path, Public: true, Serve: func(r *Request) error {
			h := r.w.Header()
			h.Set("Access-Control-Allow-Origin", "*")
			h.Set("Access-Control-Allow-Methods", strings.Join(methods[path], ", "))
			h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, MCP-Protocol-Version, Mcp-Method, Mcp-Name")
			r.w.WriteHeader(http.StatusNoContent)
			return nil
		}})
	}
	return routes
}

// Needs is what a person must be to open a page. Each request decides it again, from what the tables hold then.
type Needs int

// The needs. Those from Read to Manage are of the project in the path, the others of the current organization.
const (
	Nothing  Needs = iota // no session: sign-in
	SignedIn              // a session: one's own account
	Member                // a member of the organization
	Read                  // may read the project
	Write                 // may change data of the project
	Manage                // Admin or Owner, in the project: keys, caps, export, erasure
	Admin                 // Admin or Owner
	Owner
	Operator // Owner of the first organization: the deployment
)

// String is the need as pages and tests name it.
func (n Needs) String() string {
	return [...]string{"nothing", "signed in", "member", "read", "write", "manage", "admin", "owner", "operator"}[n]
}

// OfProject reports whether the need is one of the project in the path.
func (n Needs) OfProject() bool { return n >= Read && n <= Manage }

// Allows reports whether a member may do what needs n in a project of the organization, for programs that act for a
// person.
func Allows(m access.Membership, project uuid.UUID, n Needs) bool {
	return allows(m, m.Access[project], n)
}

// allows reports whether a member may do what needs n, with the access that the member has to the project of the
// request. It is the only place that compares roles.
func allows(m access.Membership, projectAccess organization.Access, n Needs) bool {
	admin := m.Role == organization.Owner || m.Role == organization.Admin
	if m.Role != organization.Member {
		projectAccess = organization.NoAccess // it is for that role alone
	}
	switch n {
	case Nothing, SignedIn:
		return true
	case Member:
		return m.Role.Valid()
	case Read:
		return admin || projectAccess == organization.ReadAccess || projectAccess == organization.WriteAccess
	case Write:
		return admin || projectAccess == organization.WriteAccess
	case Manage, Admin:
		return admin
	case Owner:
		return m.Role == organization.Owner
	case Operator:
		return m.Role == organization.Owner && m.First
	default:
		return false
	}
}

// Auditing is what an auditor may open. A route is closed to auditors unless it names one of these.
type Auditing int

// What auditors may open: nothing, what shows no text, and what shows texts, if the organization allows it.
const (
	Unaudited Auditing = iota
	Audited
	AuditedTexts
)

// isAuditor reports whether a member may open nothing but what Auditing opens.
func isAuditor(m access.Membership) bool { return m.Role == organization.Auditor }

// sees reports whether a project exists for a member: who may read it, and auditors.
func sees(m access.Membership, project uuid.UUID) bool {
	return isAuditor(m) || allows(m, m.Access[project], Read)
}

// seesTexts reports whether a member may see texts, where it may see what has them.
func seesTexts(m access.Membership) bool { return !isAuditor(m) || m.AuditorTexts }

// audits reports whether an auditor may open a route. What is for operators stays closed.
func audits(m access.Membership, route Route) bool {
	switch {
	case route.Needs <= SignedIn:
		return true
	case route.Needs > Owner:
		return false
	default:
		return route.Auditors == Audited || route.Auditors == AuditedTexts && seesTexts(m)
	}
}

// mayOpen reports whether the person may open a page, in the current organization and project.
func (r *Request) mayOpen(route Route) bool {
	if isAuditor(r.Membership) {
		return audits(r.Membership, route)
	}
	return r.May(route.Needs)
}

// Sees reports whether another project of the current organization exists for the person.
func (r *Request) Sees(project uuid.UUID) bool { return sees(r.Membership, project) }

// Audits reports whether the person is an auditor.
func (r *Request) Audits() bool { return isAuditor(r.Membership) }

// NoTexts is the fault of an auditor who asks for texts that the organization does not show.
func NoTexts() error {
	return fault.New(fault.Forbidden, fault.CodeInsufficientScope, "%s", words.noTexts)
}

// SeesTexts reports whether the person may see texts: contents, labels, metadata, memories and values of traits. An
// auditor does if the organization allows it.
func (r *Request) SeesTexts() bool { return seesTexts(r.Membership) }

// MayExport reports whether the person may have more of a list than a page shows.
func (r *Request) MayExport() bool {
	if r.Project.Project.ID != uuid.Nil {
		return r.May(Manage) || isAuditor(r.Membership)
	}
	return r.May(Admin) || isAuditor(r.Membership)
}

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
