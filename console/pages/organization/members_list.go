package organization

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/organization"
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
