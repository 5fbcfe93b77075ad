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
