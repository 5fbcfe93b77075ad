package web

import (
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/projections/access"
)

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
