package account

import (
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/projections/access"
)

// leave ends a membership of the person. Who is a member of nothing then is signed out at once.
func (d Deps) leave(r *web.Request) error {
	m, err := leaves(r)
	if err == nil {
		err = d.Commands.RemoveMember(r.Context(), r.Command(), m.Organization, r.Person.ID)
	}
	if err != nil {
		return d.change(r, func() (string, error) { return "", err })
	}
	left, err := d.SignIn.IsMember(r.Context(), r.Person.ID)
	if err != nil {
		return err
	}
	if left {
		return r.Done("/account", "left")
	}
	if err := d.SignIn.EndPerson(r.Context(), r.Person.ID); err != nil {
		return err
	}
	return d.signOut(r)
}

// leaves is the membership that a form ends.
func leaves(r *web.Request) (access.Membership, error) {
	for _, m := range r.Person.Memberships {
		if m.Organization.String() != r.Field("organization") {
			continue
		}
		if r.Field("sure") == "" {
			return m, fault.New(fault.Invalid, fault.CodeInvalidRequest, "tick the box to leave %s", m.Name)
		}
		return m, nil
	}
	return access.Membership{}, fault.New(fault.NotFound, fault.CodeNotFound, "you are not a member of this organization")
}
