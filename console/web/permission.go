package web

import (
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/projections/access"
)

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

// Auditing is what an auditor may open. A route is closed to auditors unless it names one of these.
type Auditing int

// What auditors may open: nothing, what shows no text, and what shows texts, if the organization allows it.
const (
	Unaudited Auditing = iota
	Audited
	AuditedTexts
)

// Allows reports whether a member may do what needs n in a project of the organization, for programs that act for a
// person.
func Allows(m access.Membership, project uuid.UUID, n Needs) bool {
	return allows(m, m.Access[project], n)
}

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

// allows reports whether a member may do what needs n, with the access that the member has to the project of the
// request. It is the only place that compares roles.
func allows(m access.Membership, projectAccess organization.Access, n Needs) bool {
	admin := m.Role == organization.Owner || m.Role == organization.Admin
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
