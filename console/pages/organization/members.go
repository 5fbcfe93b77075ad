package organization

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	peoplecmd "github.com/annals-project/annals/commands/people"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/history"
)

// People is how members sign in, and when they last did.
type People interface {
	// States returns how people sign in.
	States(ctx context.Context, people ...uuid.UUID) (map[uuid.UUID]signin.State, error)
	// LastSeen returns when people last signed in, or used a session that shows an organization.
	LastSeen(ctx context.Context, organization uuid.UUID, people []uuid.UUID) (map[uuid.UUID]time.Time, error)
}

// memberList is the list of members, and the open offers with the form that invites another one.
type memberList struct {
	web.Part[listedMember]

	Filter   string    `json:"filter,omitempty"`
	Offers   []offer   `json:"offers"`
	Projects []project `json:"-"`
	Link     *link     `json:"-"`
}

// listedMember is a member in the list.
type listedMember struct {
	member

	// SecondFactor reports that the person has a second factor. Way is how the person signs in, "" for one who cannot yet.
	SecondFactor bool   `json:"secondFactor"`
	Way          string `json:"signsInWith"`
	// LastSeen is the last sign-in or use of a session, nil for none that is known.
	LastSeen *time.Time `json:"lastSeen"`
	Access   string     `json:"access"`
	// State is offered for an open offer, whose id is that of the offer.
	State string `json:"state"`
}

// The states of members.
const (
	active  = "active"
	offered = "offered"
)

// IsOffered reports whether it is an offer.
func (m listedMember) IsOffered() bool { return m.State == offered }

// withoutFactor is the filter of the members who have no second factor.
const withoutFactor = "no-second-factor"

// WithoutFactor reports whether the list is of those who have no second factor.
func (l memberList) WithoutFactor() bool { return l.Filter == withoutFactor }

func (d Deps) members(r *web.Request) error { return d.showMembers(r, nil) }

// showMembers shows the members, with what is wrong with the form below them, nil for nothing.
func (d Deps) showMembers(r *web.Request, wrong error) error {
	all, err := d.listed(r)
	if err != nil {
		return err
	}
	page := memberList{Filter: r.URL.Query().Get("filter")}
	if page.Offers, err = d.offers(r); err != nil {
		return err
	}
	if page.WithoutFactor() {
		all = slices.DeleteFunc(all, func(m listedMember) bool { return m.SecondFactor })
	} else {
		for _, o := range page.Offers {
			all = append(all, listedMember{member: member{o.ID, o.Email, o.Role}, State: offered})
		}
	}
	return web.List[listedMember]{
		Name: "members", Columns: []string{
			"email", "role", "state", "secondFactor", "signsInWith", "lastSeen", "access", "id",
		},
		Cells: func(m listedMember) []any {
			return []any{m.Email, m.Role, m.State, m.SecondFactor, m.Way, m.LastSeen, m.Access, m.ID}
		},
		Read: func(after, before string, most int) (web.Part[listedMember], error) {
			return web.SliceOf(all, after, before, most), nil
		},
	}.Page(r, "members.html", &page, &page.Part, func() error { return cmp.Or(d.fillMembers(r, &page), wrong) })
}

// offers are the open offers of the organization.
func (d Deps) offers(r *web.Request) ([]offer, error) {
	open, err := d.Access.Offers(r.Context(), r.Membership.Organization, r.Now())
	list := make([]offer, len(open))
	for i, o := range open {
		list[i] = offer{o.ID, o.Email, o.Role, o.ExpiresAt}
	}
	return list, err
}

// fillMembers adds to the page what its forms need.
func (d Deps) fillMembers(r *web.Request, page *memberList) (err error) {
	if page.Link, err = web.Once[*link](r); err == nil {
		page.Projects, err = d.projects(r, nil)
	}
	return err
}

// listed returns all members with how they sign in and what they may do.
func (d Deps) listed(r *web.Request) ([]listedMember, error) {
	of := r.Membership.Organization
	members, err := d.Access.Members(r.Context(), of)
	if err != nil {
		return nil, err
	}
	ids := make([]uuid.UUID, len(members))
	for i, m := range members {
		ids[i] = m.PersonID
	}
	states, err := d.People.States(r.Context(), ids...)
	if err != nil {
		return nil, err
	}
	seen, err := d.People.LastSeen(r.Context(), of, ids)
	if err != nil {
		return nil, err
	}
	accesses, err := d.Access.AccessOf(r.Context(), of)
	if err != nil {
		return nil, err
	}
	list := make([]listedMember, len(members))
	for i, m := range members {
		state := states[m.PersonID]
		list[i] = listedMember{
			member:       member{m.PersonID, m.Email, m.Role},
			SecondFactor: state.SecondFactor, Way: wayOf(state), Access: accessText(m.Role, accesses[m.PersonID]),
			State: active,
		}
		if at, has := seen[m.PersonID]; has {
			list[i].LastSeen = &at
		}
	}
	return list, nil
}

// wayOf is how a person signs in, "" for who cannot.
func wayOf(s signin.State) string {
	switch {
	case s.Password && s.Accounts > 0:
		return "password, provider"
	case s.Password:
		return "password"
	case s.Accounts > 0:
		return "provider"
	default:
		return ""
	}
}

// accessText is what a member may do in which projects.
func accessText(role organization.Role, in map[string]organization.Access) string {
	switch role {
	case organization.Owner, organization.Admin:
		return "writes in all"
	case organization.Auditor:
		return "sees all"
	case organization.Member:
	}
	var list []string
	for slug, access := range in {
		list = append(list, slug+": "+string(access))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

const membersPath = "/settings/members"

// maxProjects is the most projects whose access one form sets.
const maxProjects = 200

type member struct {
	ID    uuid.UUID         `json:"id"`
	Email string            `json:"email"`
	Role  organization.Role `json:"role"`
}

// offer is an open offer.
type offer struct {
	ID        uuid.UUID         `json:"id"`
	Email     string            `json:"email"`
	Role      organization.Role `json:"role"`
	ExpiresAt time.Time         `json:"expiresAt"`
}

// project is what a member may do in a project.
type project struct {
	ID         uuid.UUID           `json:"id"`
	Slug       string              `json:"slug"`
	Name       string              `json:"name"`
	IsArchived bool                `json:"isArchived"`
	Access     organization.Access `json:"access"`
}

// link is an address for somebody to sign in. It is shown once.
type link struct {
	Email, Address string
	Expires        time.Time
	// Offered reports the link of an offer, which was Mailed too.
	Offered, Mailed bool
}

// memberPage is one member.
type memberPage struct {
	member

	Projects []project       `json:"projects"`
	Events   []history.Event `json:"events"`
	MayEdit  bool            `json:"-"`
	Link     *link           `json:"-"`
}

// projects are the oldest projects of the organization, with what somebody may do in them.
func (d Deps) projects(r *web.Request, of map[uuid.UUID]organization.Access) (list []project, err error) {
	all, err := d.Access.Projects(r.Context(), r.Membership.Organization)
	for _, p := range all[:min(len(all), maxProjects)] {
		list = append(list, project{p.ID, p.Slug, p.Name, p.Archived, of[p.ID]})
	}
	return list, err
}

// Roles are those that the person of a request may give. Only an owner makes owners, and changes one.
func (memberList) Roles(r *web.Request) []organization.Role { return rolesOf(r) }

// Roles are those that the person of a request may give.
func (memberPage) Roles(r *web.Request) []organization.Role { return rolesOf(r) }

func rolesOf(r *web.Request) []organization.Role {
	roles := []organization.Role{organization.Member, organization.Auditor, organization.Admin, organization.Owner}
	if !r.May(web.Owner) {
		return roles[:3]
	}
	return roles
}

// mayEdit returns the fault of somebody who may not give or change a role.
func mayEdit(r *web.Request, role organization.Role) error {
	if role == organization.Owner && !r.May(web.Owner) {
		return fault.New(fault.Forbidden, fault.CodeInsufficientScope, "only an owner makes owners, and changes one")
	}
	return nil
}

// find finds the member of the path, with all memberships of that person.
func (d Deps) find(r *web.Request) (p access.Person, m access.Membership, err error) {
	none := fault.New(fault.NotFound, fault.CodeNotFound, "the organization has no such member")
	id, err := uuid.Parse(r.PathValue("member"))
	if err != nil {
		return p, m, none
	}
	if p, _, err = d.Access.Memberships(r.Context(), id); err != nil {
		return p, m, err
	}
	for _, m := range p.Memberships {
		if m.Organization == r.Membership.Organization {
			return p, m, nil
		}
	}
	return p, m, none
}

func (d Deps) member(r *web.Request) (v memberPage, err error) {
	p, m, err := d.find(r)
	if err != nil {
		return v, err
	}
	v = memberPage{member: member{p.ID, p.Email, m.Role}, MayEdit: r.May(web.Admin) && mayEdit(r, m.Role) == nil}
	if v.Projects, err = d.projects(r, m.Access); err != nil {
		return v, err
	}
	if v.Link, err = web.Once[*link](r); err != nil {
		return v, err
	}
	v.Events, err = d.History.Latest(r.Context(), r.HistoryViewer(), history.OfMember+":"+p.ID.String(), lastEvents)
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

// invite offers a membership. The list shows the address at which it is accepted, once. It does not ask whether
// somebody has the e-mail address.
func (d Deps) invite(r *web.Request) error {
	made, err := d.offer(r, peoplecmd.NewOffer{
		Email: r.Field("email"), Role: organization.Role(r.Field("role")), Access: accessOf(r),
	})
	if err != nil {
		return d.showMembers(r, err)
	}
	return web.ShowOnce(r, membersPath, made)
}

func (d Deps) offer(r *web.Request, in peoplecmd.NewOffer) (*link, error) {
	if err := mayEdit(r, in.Role); err != nil {
		return nil, err
	}
	of := r.Membership.Organization
	members, err := d.Access.Members(r.Context(), of)
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		if person.NormalEmail(m.Email) == person.NormalEmail(in.Email) {
			return nil, fault.New(fault.Conflict, fault.CodeConflict, "%s is a member already", m.Email)
		}
	}
	maps.DeleteFunc(in.Access, func(_ uuid.UUID, a organization.Access) bool { return a == organization.NoAccess })
	offered, err := d.Commands.OfferMembership(r.Context(), r.Command(), of, in, d.OfferLife)
	if err != nil {
		return nil, err
	}
	made := &link{Email: in.Email, Offered: true}
	made.Address, made.Expires, made.Mailed, err = d.Links.Invite(r.Context(), signin.Link{
		Purpose: signin.Invite, Offer: offered.ID, Email: in.Email, Organization: of,
	})
	return made, err
}

// withdraw ends an offer.
func (d Deps) withdraw(r *web.Request) error {
	id, err := uuid.Parse(r.PathValue("offer"))
	if err != nil {
		return organization.NoOffer()
	}
	err = d.Commands.EndOffer(r.Context(), r.Command(), r.Membership.Organization, id, organization.Withdrawn)
	if err != nil {
		return err
	}
	return r.Done(membersPath, "deleted")
}

// change does what a button of the page of a member is for.
func (d Deps) change(r *web.Request) error {
	p, m, err := d.find(r)
	if err != nil {
		return err
	}
	var made *link
	do, done, path := r.Field("do"), "saved", web.Path("settings", "members", p.ID.String())
	switch err = mayEdit(r, m.Role); {
	case err != nil:
	case do == "role":
		role := organization.Role(r.Field("role"))
		if err = mayEdit(r, role); err == nil {
			err = d.Commands.SetMemberRole(r.Context(), r.Command(), m.Organization, p.ID, role)
		}
	case do == "access":
		err = d.Commands.SetAccess(r.Context(), r.Command(), m.Organization, p.ID, accessOf(r))
	case do == "remove":
		if err = r.AskFirst("remove-member"); err == nil {
			err, done, path = d.remove(r, p, m), "deleted", membersPath
		}
	default:
		made, err = d.reset(r, p, m, organization.Reset(do))
	}
	switch {
	case err != nil:
		return web.NewPage("member.html", d.member).Again(r, err)
	case made != nil:
		return web.ShowOnce(r, path, made)
	}
	return r.Done(path, done)
}

// remove removes a member, with the links of the organization. Who is a member of nothing then is signed out at once.
func (d Deps) remove(r *web.Request, p access.Person, m access.Membership) error {
	if err := d.Commands.RemoveMember(r.Context(), r.Command(), m.Organization, p.ID); err != nil {
		return err
	}
	if err := d.Links.Revoke(r.Context(), m.Organization, p.ID); err != nil {
		return err
	}
	left, _, err := d.Access.Memberships(r.Context(), p.ID)
	if err != nil || len(left.Memberships) > 0 {
		return err
	}
	return d.Links.End(r.Context(), p.ID)
}

// reset resets how a member signs in. It is refused for a member of another organization too: the holder of the link
// would keep the person out of that one.
func (d Deps) reset(
	r *web.Request, p access.Person, m access.Membership, what organization.Reset,
) (made *link, err error) {
	switch {
	case !slices.Contains([]organization.Reset{organization.ResetPassword, organization.ResetSecondFactor}, what):
		return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest, "there is no such change of a member")
	case len(p.Memberships) != 1:
		return nil, fault.New(fault.Conflict, fault.CodeConflict, "%s", onlyHere)
	}
	if err := r.AskFirst(string(what)); err != nil {
		return nil, err
	}
	if err := d.Commands.RecordReset(r.Context(), r.Command(), m.Organization, p.ID, what); err != nil {
		return nil, err
	}
	if what == organization.ResetSecondFactor {
		return nil, d.Links.ResetSecondFactor(r.Context(), p.ID)
	}
	made = &link{Email: p.Email}
	made.Address, made.Expires, err = d.Links.Reset(r.Context(), m.Organization, p.ID, p.Email)
	return made, err
}

// onlyHere is the rule for resets, which the page of each member shows.
const onlyHere = "a reset works for who is a member of this organization alone. Others use \"Forgot your password?\" " +
	"on the page to sign in, or ask who operates this service for a link (annals person link)"

// OnlyHere is the rule for resets.
func (memberPage) OnlyHere() string { return onlyHere }
