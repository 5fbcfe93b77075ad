package organization

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/history"
)

const membersPath = "/settings/members"

// maxProjects is the most projects whose access one form sets.
const maxProjects = 200

// membersView is the list of members, with the form that invites another one.
type membersView struct {
	Members  []memberRow         `json:"members"`
	Email    string              `json:"-"`
	Role     organization.Role   `json:"-"`
	Roles    []organization.Role `json:"-"`
	Projects []projectRow        `json:"-"`
	Link     *linkView           `json:"-"`
}

type memberRow struct {
	ID    uuid.UUID         `json:"id"`
	Email string            `json:"email"`
	Role  organization.Role `json:"role"`
}

// projectRow is what a member may do in a project.
type projectRow struct {
	ID         uuid.UUID           `json:"id"`
	Slug       string              `json:"slug"`
	Name       string              `json:"name"`
	IsArchived bool                `json:"isArchived"`
	Access     organization.Access `json:"access"`
}

// linkView is an address for somebody to sign in. It is shown once.
type linkView struct {
	Email, Address string
	Expires        time.Time
}

// memberView is one member.
type memberView struct {
	memberRow

	Projects []projectRow        `json:"projects"`
	Events   []history.Event     `json:"events"`
	MayEdit  bool                `json:"-"`
	Roles    []organization.Role `json:"-"`
	Link     *linkView           `json:"-"`
}

func (d Deps) members(r *web.Request) error {
	if text := r.URL.Query().Get("member"); text != "" {
		view, err := d.memberOf(r, text)
		if err != nil {
			return err
		}
		return r.Render("member.html", view)
	}
	view, err := d.listOf(r)
	if err != nil {
		return err
	}
	return r.Render("members.html", view)
}

func (d Deps) listOf(r *web.Request) (v membersView, err error) {
	members, err := d.Access.Members(r.Context(), r.Membership.Organization)
	if err != nil {
		return v, err
	}
	v = membersView{Members: make([]memberRow, len(members)), Role: organization.Member, Roles: rolesFor(r)}
	for i, m := range members {
		v.Members[i] = memberRow{m.PersonID, m.Email, m.Role}
	}
	v.Projects, err = d.projects(r, nil)
	return v, err
}

// projects are the oldest projects of the organization, with what somebody may do in them.
func (d Deps) projects(r *web.Request, of map[uuid.UUID]organization.Access) (list []projectRow, err error) {
	all, err := d.Access.Projects(r.Context(), r.Membership.Organization)
	for _, p := range all[:min(len(all), maxProjects)] {
		list = append(list, projectRow{p.ID, p.Slug, p.Name, p.Archived, of[p.ID]})
	}
	return list, err
}

// rolesFor are the roles that the person of a request may give. Only an owner makes owners, and changes one.
func rolesFor(r *web.Request) []organization.Role {
	if r.May(web.Owner) {
		return []organization.Role{organization.Member, organization.Admin, organization.Owner}
	}
	return []organization.Role{organization.Member, organization.Admin}
}

// mayEdit returns the fault of somebody who may not give or change a role.
func mayEdit(r *web.Request, role organization.Role) error {
	if role == organization.Owner && !r.May(web.Owner) {
		return fault.New(fault.Forbidden, fault.CodeInsufficientScope, "only an owner makes owners, and changes one")
	}
	return nil
}

// member finds the member that a request names, with all memberships of that person.
func (d Deps) member(r *web.Request, text string) (p access.Person, m access.Membership, err error) {
	none := fault.New(fault.NotFound, fault.CodeNotFound, "the organization has no such member")
	id, err := uuid.Parse(text)
	if err != nil {
		return p, m, none
	}
	p, ok, err := d.Access.Memberships(r.Context(), id)
	if err != nil {
		return p, m, err
	}
	i := slices.IndexFunc(p.Memberships, func(m access.Membership) bool {
		return m.Organization == r.Membership.Organization
	})
	if !ok || i < 0 {
		return p, m, none
	}
	return p, p.Memberships[i], nil
}

func (d Deps) memberOf(r *web.Request, text string) (v memberView, err error) {
	p, m, err := d.member(r, text)
	if err != nil {
		return v, err
	}
	v = memberView{
		memberRow: memberRow{p.ID, p.Email, m.Role}, MayEdit: mayEdit(r, m.Role) == nil, Roles: rolesFor(r),
	}
	if v.Projects, err = d.projects(r, m.Access); err != nil {
		return v, err
	}
	v.Events, err = d.latest(r, history.Member(m.Organization, p.ID))
	return v, err
}

// accessOf reads the access that a form gives, by project.
func accessOf(r *web.Request) map[uuid.UUID]organization.Access {
	given := map[uuid.UUID]organization.Access{}
	accesses := r.PostForm["access"]
	for i, text := range r.PostForm["project"] {
		if id, err := uuid.Parse(text); err == nil && i < len(accesses) && len(given) < maxProjects {
			given[id] = organization.Access(accesses[i])
		}
	}
	return given
}

// invite makes somebody a member. It answers with the address at which that person signs in, which is shown only here.
func (d Deps) invite(r *web.Request) error {
	in := commands.NewMember{Email: r.Field("email"), Role: organization.Role(r.Field("role"))}
	link, err := d.add(r, in)
	view, failed := d.listOf(r)
	if failed != nil {
		return failed
	}
	view.Link = link
	if err != nil {
		view.Email, view.Role = in.Email, in.Role
		return r.Invalid(err, "members.html", view)
	}
	return r.Render("members.html", view)
}

func (d Deps) add(r *web.Request, in commands.NewMember) (*linkView, error) {
	if err := mayEdit(r, in.Role); err != nil {
		return nil, err
	}
	id, err := d.Commands.AddMember(r.Context(), r.Command(), r.Membership.Organization, in)
	if err != nil {
		return nil, err
	}
	given := accessOf(r)
	for project, access := range given {
		if access == organization.NoAccess {
			delete(given, project)
		}
	}
	if in.Role == organization.Member && len(given) > 0 {
		if err := d.Commands.SetAccess(r.Context(), r.Command(), r.Membership.Organization, id, given); err != nil {
			return nil, err
		}
	}
	p, _, err := d.Access.Memberships(r.Context(), id)
	if err != nil {
		return nil, err
	}
	link := &linkView{Email: in.Email}
	if len(p.Memberships) != 1 {
		// No admin of one organization may set the password of a member of another one: not by a link of before either.
		return link, d.Links.Revoke(r.Context(), id)
	}
	link.Address, link.Expires, err = d.Links.Invite(r.Context(), r.Membership.Organization, id, in.Email)
	return link, err
}

// change makes a change of the member that a form names, and shows the member.
func (d Deps) change(r *web.Request, do func(access.Person, access.Membership) (*linkView, error)) error {
	p, m, err := d.member(r, r.Field("member"))
	if err != nil {
		return err
	}
	var link *linkView
	if err = mayEdit(r, m.Role); err == nil {
		link, err = do(p, m)
	}
	if err == nil && link == nil {
		return r.Done(membersPath+"?member="+p.ID.String(), "saved")
	}
	view, failed := d.memberOf(r, p.ID.String())
	if failed != nil {
		return failed
	}
	if view.Link = link; err != nil {
		return r.Invalid(err, "member.html", view)
	}
	return r.Render("member.html", view)
}

func (d Deps) setRole(r *web.Request) error {
	role := organization.Role(r.Field("role"))
	return d.change(r, func(p access.Person, m access.Membership) (*linkView, error) {
		if err := mayEdit(r, role); err != nil {
			return nil, err
		}
		return nil, d.Commands.SetMemberRole(r.Context(), r.Command(), m.Organization, p.ID, role)
	})
}

func (d Deps) setAccess(r *web.Request) error {
	return d.change(r, func(p access.Person, m access.Membership) (*linkView, error) {
		return nil, d.Commands.SetAccess(r.Context(), r.Command(), m.Organization, p.ID, accessOf(r))
	})
}

func (d Deps) remove(r *web.Request) error {
	removed := false
	err := d.change(r, func(p access.Person, m access.Membership) (*linkView, error) {
		err := d.Commands.RemoveMember(r.Context(), r.Command(), m.Organization, p.ID)
		removed = err == nil
		return &linkView{}, err
	})
	if removed {
		return r.Done(membersPath, "deleted")
	}
	return err
}

// reset is what resets how a member signs in. It is refused for a member of another organization too, who would lose
// the other one to the holder of the link; the operator can make one.
func (d Deps) reset(r *web.Request, what organization.Reset, do func(access.Person) (*linkView, error)) error {
	return d.change(r, func(p access.Person, m access.Membership) (*linkView, error) {
		if len(p.Memberships) != 1 {
			return nil, fault.New(fault.Conflict, fault.CodeConflict,
				"this person signs in to other organizations too: ask who operates this service for a link "+
					"(annals person link)")
		}
		if err := d.Commands.RecordReset(r.Context(), r.Command(), m.Organization, p.ID, what); err != nil {
			return nil, err
		}
		return do(p)
	})
}

func (d Deps) resetPassword(r *web.Request) error {
	return d.reset(r, organization.ResetPassword, func(p access.Person) (*linkView, error) {
		address, expires, err := d.Links.Reset(r.Context(), r.Membership.Organization, p.ID, p.Email)
		return &linkView{p.Email, address, expires}, err
	})
}

func (d Deps) resetSecondFactor(r *web.Request) error {
	return d.reset(r, organization.ResetSecondFactor, func(p access.Person) (*linkView, error) {
		return nil, d.Links.ResetSecondFactor(r.Context(), p.ID)
	})
}
