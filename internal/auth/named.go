package auth

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/annals-project/annals/domain/fault"
)

// projectParam is the parameter of a query that names a project by its slug.
const projectParam = "project"

// SelectProject applies the rules of ?project= to a caller that Authenticate found. On every route,
// a project key may name only its own project, and an agent token that of its header. On a route that
// needs a project, a management key names it, and the principal gets that project and its caps. An
// empty value counts as none.
//
// The fault is project-mismatch, project-required or invalid-request (400), not-found (404),
// project-archived (403), or service-unavailable (503) if the project could not be looked up.
func (a *Authenticator) SelectProject(
	ctx context.Context, route Route, query url.Values, p Principal,
) (Principal, error) {
	if route.Unknown {
		return p, nil
	}
	var named []string
	for _, slug := range query[projectParam] {
		if slug != "" {
			named = append(named, slug)
		}
	}
	switch {
	case p.Kind == ProjectKey, p.Kind == AgentToken:
		for _, slug := range named {
			if slug != p.Project.Slug {
				return Principal{}, fault.New(fault.Invalid, fault.CodeProjectMismatch,
					"project names another project than that of the %s", p.Kind)
			}
		}
		return p, nil
	case p.Kind != ManagementKey || !route.ProjectQuery:
		return p, nil
	case len(named) == 0:
		return Principal{}, fault.New(fault.Invalid, fault.CodeProjectRequired,
			"with a management key this route needs ?project=<slug>")
	case len(named) > 1:
		return Principal{}, fault.New(fault.Invalid, fault.CodeInvalidRequest, "project is given more than once")
	}
	n, found, err := a.named(ctx, p, named[0])
	switch {
	case err != nil:
		unavailable := fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the project could not be looked up; send the request again")
		return Principal{}, fmt.Errorf("%w: %w", unavailable, err)
	case !found:
		return Principal{}, fault.New(fault.NotFound, fault.CodeNotFound, "the organization has no project of this slug")
	case n.Archived:
		return Principal{}, fault.New(fault.Forbidden, fault.CodeProjectArchived, "the project is archived")
	}
	p.Project, p.Limits.IngestionCap, p.Limits.CreditCapTenths = n.Project, n.IngestionCap, n.CreditCapTenths
	return p, nil
}

// named finds a project of the caller's organization. It does not look up a value that cannot be a
// slug: the database rejects U+0000.
func (a *Authenticator) named(ctx context.Context, p Principal, slug string) (Named, bool, error) {
	if strings.Trim(slug, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return Named{}, false, nil
	}
	return a.keys.ProjectNamed(ctx, p.OrganizationID, slug)
}
