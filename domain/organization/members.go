package organization

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/person"
)

// Roles are all roles.
func Roles() []Role { return []Role{Owner, Admin, Member, Auditor} }

// Valid reports whether the role is one of Roles.
func (r Role) Valid() bool { return slices.Contains(Roles(), r) }

func (s *State) setRole(id uuid.UUID, role Role) {
	if s.Members == nil {
		s.Members = make(map[uuid.UUID]Role)
	}
	s.Members[id], s.Staffed = role, true
	delete(s.Access, id)
}

// Valid reports whether the access is one of the three.
func (a Access) Valid() bool { return a == NoAccess || a == ReadAccess || a == WriteAccess }

func (s *State) setAccess(id, project uuid.UUID, access Access) {
	if access == NoAccess {
		delete(s.Access[id], project)
		return
	}
	if s.Access == nil {
		s.Access = make(map[uuid.UUID]map[uuid.UUID]Access)
	}
	if s.Access[id] == nil {
		s.Access[id] = make(map[uuid.UUID]Access)
	}
	s.Access[id][project] = access
}

// Add makes a person a member, unless the person is one with the same role. The fault is conflict
// for a member with another role, and for too many members.
func (s *State) Add(m MemberAdded, limits Limits) ([]event.Event, error) {
	switch role, is := s.Members[m.MemberID]; {
	case !is && len(s.Members) >= limits.Members:
		return nil, fault.New(fault.Conflict, fault.CodeConflict, "an organization has at most %d members", limits.Members)
	case !is:
		return []event.Event{m}, nil
	case role == m.Role:
		return nil, nil
	default:
		return nil, fault.New(fault.Conflict, fault.CodeConflict,
			"the person is a member already, with the role %s; change the role instead", role)
	}
}

// SetRole gives a member another role. Its faults are not-found, and conflict for the last owner.
func (s *State) SetRole(set MemberRoleSet) ([]event.Event, error) {
	switch role, is := s.Members[set.MemberID]; {
	case !is:
		return nil, noMember()
	case role == set.Role:
		return nil, nil
	case s.isLastOwner(set.MemberID):
		return nil, lastOwner()
	default:
		return []event.Event{set}, nil
	}
}

// SetAccess gives a member access to a project, or ends it. Its faults are not-found, and conflict for
// another role, which is for all projects, and for more than limit.MemberProjects projects.
func (s *State) SetAccess(set ProjectAccessSet) ([]event.Event, error) {
	role, is := s.Members[set.MemberID]
	current, has := s.Access[set.MemberID][set.ProjectID]
	switch {
	case !is:
		return nil, noMember()
	case role != Member:
		return nil, fault.New(fault.Conflict, fault.CodeConflict,
			"access to projects is for the role %s, and this member has the role %s", Member, role)
	case current == set.Access:
		return nil, nil
	case !has && len(s.Access[set.MemberID]) >= limit.MemberProjects:
		return nil, fault.New(fault.Conflict, fault.CodeConflict,
			"a member has access to at most %d projects; end one or give another role", limit.MemberProjects)
	default:
		return []event.Event{set}, nil
	}
}

// SetSecondFactor records whether members need a second factor.
func (s *State) SetSecondFactor(set SecondFactorSet) []event.Event {
	if s.SecondFactor == set.Required {
		return nil
	}
	return []event.Event{set}
}

// The bounds of the time for visits, and what an organization has that set none, in days.
const (
	LeastVisitDays   = 30
	MostVisitDays    = 3650
	DefaultVisitDays = 365
)

// KeepVisits sets for how many days visits are kept. Its fault is invalid-request.
func (s *State) KeepVisits(set VisitsKeptSet) ([]event.Event, error) {
	if set.Days < LeastVisitDays || set.Days > MostVisitDays {
		return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest, "visits are kept for %d to %d days, not %d",
			LeastVisitDays, MostVisitDays, set.Days)
	}
	if s.VisitDays() == set.Days {
		return nil, nil
	}
	return []event.Event{set}, nil
}

// VisitDays is for how many days visits are kept.
func (s *State) VisitDays() int { return cmp.Or(s.visitDays, DefaultVisitDays) }

// AllowTexts records whether auditors may read texts.
func (s *State) AllowTexts(set AuditorTextsSet) []event.Event {
	if s.AuditorTexts == set.Allowed {
		return nil
	}
	return []event.Event{set}
}

// RecordReset records that somebody resets how a member signs in. Its fault is not-found.
func (s *State) RecordReset(reset SignInReset) ([]event.Event, error) {
	if _, is := s.Members[reset.MemberID]; !is {
		return nil, noMember()
	}
	return []event.Event{reset}, nil
}

// Remove ends a membership. Its faults are not-found, and conflict for the last owner.
func (s *State) Remove(id, organization uuid.UUID, at time.Time) ([]event.Event, error) {
	if _, is := s.Members[id]; !is {
		return nil, noMember()
	}
	if s.isLastOwner(id) {
		return nil, lastOwner()
	}
	return s.Erase(id, uuid.Nil, organization, at), nil
}

// Erase ends the membership of a person who is erased, also that of the last owner. creator is the
// owner that the preparation adds.
func (s *State) Erase(id, creator, organization uuid.UUID, at time.Time) []event.Event {
	if !s.Has(id, creator) {
		return nil
	}
	return []event.Event{MemberRemoved{OrganizationID: organization, MemberID: id, RemovedAt: at}}
}

// Has reports whether a person is a member, or is the creator and becomes one in the preparation.
func (s *State) Has(id, creator uuid.UUID) bool {
	_, is := s.Members[id]
	return is || !s.Staffed && id == creator
}

func (s *State) isLastOwner(id uuid.UUID) bool {
	for other, role := range s.Members {
		if role == Owner && other != id {
			return false
		}
	}
	return s.Members[id] == Owner
}

func noMember() error {
	return fault.New(fault.NotFound, fault.CodeNotFound, "the organization has no such member")
}

func lastOwner() error {
	return fault.New(fault.Conflict, fault.CodeConflict,
		"the last owner of an organization stays its owner; make another member an owner first")
}

// The starting credits in tenths, and those of an owner with a work email.
const (
	startingTenths     = 150_000 * 10
	startingWorkTenths = 400_000 * 10
)

// StartingTenths returns the starting credits of an organization on a metered plan, in tenths of a
// credit. workEmail is true if its owner had a work email when it was created.
func StartingTenths(workEmail bool) int64 {
	if workEmail {
		return startingWorkTenths
	}
	return startingTenths
}

// WorkEmail reports whether an address is one of an employer: its domain is not that of a free-mail
// provider, nor below one.
func WorkEmail(email string) bool {
	if !person.ValidEmail(email) {
		return false
	}
	domain := strings.ToLower(email[strings.LastIndexByte(email, '@')+1:])
	for {
		if freeMail(domain) {
			return false
		}
		_, parent, ok := strings.Cut(domain, ".")
		if !ok {
			return true
		}
		domain = parent
	}
}

// freeMail reports whether a domain is that of a free-mail provider.
func freeMail(domain string) bool {
	switch domain {
	case "gmail.com", "googlemail.com",
		"outlook.com", "hotmail.com", "live.com", "msn.com", "passport.com",
		"hotmail.co.uk", "hotmail.de", "hotmail.es", "hotmail.fr", "hotmail.it", "live.co.uk", "live.de", "live.fr", "live.it", "live.nl",
		"outlook.de", "outlook.es", "outlook.fr", "outlook.it", "outlook.jp", "outlook.com.br",
		"yahoo.com", "ymail.com", "rocketmail.com", "yahoo.ca", "yahoo.co.in", "yahoo.co.jp", "yahoo.co.uk", "yahoo.com.ar", "yahoo.com.au",
		"yahoo.com.br", "yahoo.com.mx", "yahoo.de", "yahoo.es", "yahoo.fr", "yahoo.in", "yahoo.it", "aol.com", "aim.com",
		"icloud.com", "me.com", "mac.com",
		"proton.me", "protonmail.com", "protonmail.ch", "pm.me", "tutanota.com", "tutanota.de", "tuta.io", "tuta.com", "hey.com",
		"fastmail.com", "fastmail.fm", "hushmail.com", "mailbox.org", "posteo.de", "posteo.net", "runbox.com", "startmail.com", "zoho.com", "zohomail.com",
		"gmx.com", "gmx.net", "gmx.de", "gmx.at", "gmx.ch", "gmx.fr", "web.de", "freenet.de", "t-online.de", "mail.com", "email.com", "inbox.com",
		"orange.fr", "wanadoo.fr", "free.fr", "laposte.net", "sfr.fr", "libero.it", "virgilio.it", "tiscali.it", "terra.es", "telefonica.net",
		"btinternet.com", "sky.com", "virginmedia.com", "talktalk.net", "comcast.net", "verizon.net", "att.net", "sbcglobal.net", "bellsouth.net", "cox.net",
		"charter.net", "earthlink.net", "juno.com", "optonline.net", "rogers.com", "shaw.ca", "sympatico.ca", "bigpond.com", "optusnet.com.au",
		"mail.ru", "bk.ru", "inbox.ru", "list.ru", "internet.ru", "yandex.ru", "yandex.com", "ya.ru", "rambler.ru", "ukr.net", "seznam.cz", "wp.pl", "o2.pl",
		"onet.pl", "interia.pl", "abv.bg", "centrum.cz", "azet.sk",
		"qq.com", "foxmail.com", "163.com", "126.com", "yeah.net", "sina.com", "sina.cn", "sohu.com", "aliyun.com", "naver.com", "daum.net", "hanmail.net",
		"rediffmail.com", "uol.com.br", "bol.com.br", "terra.com.br", "ig.com.br",
		"mailinator.com", "guerrillamail.com", "10minutemail.com", "yopmail.com", "sharklasers.com", "tempmail.com", "temp-mail.org", "trashmail.com",
		"duck.com", "simplelogin.com", "anonaddy.com", "privaterelay.appleid.com":
		return true
	default:
		return false
	}
}

// Agent is what decisions need of an agent of an organization.
type Agent struct {
	Member  uuid.UUID
	Scopes  []string
	Project uuid.UUID
	// Revoked and Stopped are as in AgentRevoked and AgentStopped. A denied agent is both.
	Revoked, Stopped bool
}

// Of returns what a role may do in a project, given the access of a member.
func (a Access) Of(r Role) Access {
	switch r {
	case Owner, Admin:
		return WriteAccess
	case Member:
		return a
	default:
		return NoAccess
	}
}

func (s *State) setAgent(id uuid.UUID, a Agent) {
	if s.Agents == nil {
		s.Agents = make(map[uuid.UUID]Agent)
	}
	s.Agents[id] = a
}

func (s *State) endAgent(id uuid.UUID, stopped bool) {
	a := s.Agents[id]
	a.Revoked, a.Stopped = true, a.Stopped || stopped
	s.setAgent(id, a)
}

// endAgentsOf stops the agents of a member who left. They do not come back with the member.
func (s *State) endAgentsOf(member uuid.UUID) {
	for id, a := range s.Agents {
		if a.Member == member {
			s.endAgent(id, true)
		}
	}
}

// ApproveAgent lets an agent call for a member, once. Its faults are not-found for somebody who is no member, and
// conflict for an agent that was decided on otherwise and for more than limit.OrganizationAgents agents.
func (s *State) ApproveAgent(a AgentApproved) ([]event.Event, error) {
	known, is := s.Agents[a.AgentID]
	switch {
	case s.Members[a.MemberID] == "":
		return nil, noMember()
	case is && (known.Revoked || known.Member != a.MemberID || known.Project != a.ProjectID ||
		!slices.Equal(known.Scopes, a.Scopes)):
		return nil, fault.New(fault.Conflict, fault.CodeConflict, "the agent was decided on already; let it register again")
	case is:
		return nil, nil
	case s.liveAgents() >= limit.OrganizationAgents:
		return nil, fault.New(fault.Conflict, fault.CodeConflict,
			"an organization has at most %d agents; revoke one first", limit.OrganizationAgents)
	default:
		return []event.Event{a}, nil
	}
}

func (s *State) liveAgents() (n int) {
	for _, a := range s.Agents {
		if !a.Revoked {
			n++
		}
	}
	return n
}

// DenyAgent refuses an agent, or revokes it if the member approved it before. Its fault is not-found for somebody who
// is no member.
func (s *State) DenyAgent(d AgentDenied) ([]event.Event, error) {
	known, is := s.Agents[d.AgentID]
	switch {
	case s.Members[d.MemberID] == "":
		return nil, noMember()
	case !is:
		return []event.Event{d}, nil
	case known.Revoked:
		return nil, nil
	default:
		return s.RevokeAgent(AgentRevoked{OrganizationID: d.OrganizationID, AgentID: d.AgentID, RevokedAt: d.DeniedAt},
			d.MemberID)
	}
}

// RevokeAgent ends the registration of an agent. of is the member whose agent it must be, zero for anybody's. Its fault
// is not-found.
func (s *State) RevokeAgent(r AgentRevoked, of uuid.UUID) ([]event.Event, error) {
	known, is := s.Agents[r.AgentID]
	switch {
	case !is || of != uuid.Nil && known.Member != of:
		return nil, noAgent()
	case known.Revoked:
		return nil, nil
	default:
		return []event.Event{r}, nil
	}
}

// StopAgent ends the registration of an agent and its tokens. Its fault is not-found.
func (s *State) StopAgent(e AgentStopped) ([]event.Event, error) {
	known, is := s.Agents[e.AgentID]
	switch {
	case !is:
		return nil, noAgent()
	case known.Stopped:
		return nil, nil
	default:
		return []event.Event{e}, nil
	}
}

func noAgent() error {
	return fault.New(fault.NotFound, fault.CodeNotFound, "the organization has no such agent")
}
