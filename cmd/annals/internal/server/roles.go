package server

import (
	"fmt"
	"slices"
	"strings"
)

// Role is a share of the service that a process takes.
type Role string

// The roles, as setting ANNALS_ROLES names them.
const (
	RoleWrite     Role = "write"
	RoleRead      Role = "read"
	RoleProjector Role = "projector"
	RolePipeline  Role = "pipeline"
	RoleConsole   Role = "console"
)

// AllRoles returns every role: those of a process that is the whole service.
func AllRoles() Roles {
	return Roles{RoleWrite, RoleRead, RoleProjector, RolePipeline, RoleConsole}
}

// Roles are the roles of one process. None are all.
type Roles []Role

// ParseRoles reads roles that are separated by commas. An empty text means all.
func ParseRoles(text string) (Roles, error) {
	if text == "" {
		return AllRoles(), nil
	}
	var roles Roles
	for _, name := range strings.Split(text, ",") {
		role := Role(strings.TrimSpace(name))
		if !slices.Contains(AllRoles(), role) {
			return nil, fmt.Errorf("names the role %q: want some of %s, separated by commas", role, AllRoles())
		}
		if !slices.Contains(roles, role) {
			roles = append(roles, role)
		}
	}
	return roles, nil
}

// String lists the roles as ParseRoles reads them.
func (r Roles) String() string {
	names := make([]string, len(r))
	for i, role := range r {
		names[i] = string(role)
	}
	return strings.Join(names, ",")
}

// Has reports whether the process has a role.
func (r Roles) Has(role Role) bool { return len(r) == 0 || slices.Contains(r, role) }

// CheckEmbedded returns why the roles cannot be those of one process of several, if a part of it is
// embedded and so serves this process alone. setting is the setting of that part.
func (r Roles) CheckEmbedded(eventStore, postgres, index string) (setting string, err error) {
	missing := slices.DeleteFunc(AllRoles(), r.Has)
	if len(missing) == 0 {
		return "", nil
	}
	for _, part := range []struct{ setting, value string }{{"EVENTSTORE", eventStore}, {"POSTGRES", postgres}} {
		if part.value == Embedded {
			return part.setting, fmt.Errorf("is embedded, so no other process can have the roles %s: set it to the "+
				"address of a server, or leave ANNALS_ROLES unset", missing)
		}
	}
	// The process that feeds an embedded index also answers recall and erases.
	together := []Role{RoleRead, RoleProjector, RolePipeline}
	has := slices.ContainsFunc(together, r.Has)
	apart := slices.ContainsFunc(missing, func(m Role) bool { return slices.Contains(together, m) })
	if index == Embedded && has && apart {
		return "INDEX", fmt.Errorf("is embedded, so one process has the roles %s: set it to the address of an "+
			"Elasticsearch, or give the process of ANNALS_ROLES=%s all three", Roles(together), r)
	}
	return "", nil
}

// parts are the parts of a process that its roles require. Every process has the operation routes
// and the operator socket, and waits for projections through their checkpoints.
type parts struct {
	// writes and reads are the routes of the API that change state, and those that only read.
	writes, reads bool
	// firstStart fills an empty log and prepares organizations. A process without it waits for one
	// that has it.
	firstStart bool
	// backpressure watches what refuses writes and holds derivation up.
	backpressure bool
	// index opens the recall index: to search, feed or purge it.
	index bool
	// projections runs the projectors, each while this process has its lease.
	projections bool
	// pipeline derives, confirms, finishes and charges.
	pipeline bool
	// console listens on the console's address.
	console bool
}

// partsOf lists what each role needs.
var partsOf = map[Role]parts{
	RoleWrite:     {writes: true, firstStart: true, backpressure: true},
	RoleRead:      {reads: true, index: true},
	RoleProjector: {projections: true, index: true},
	RolePipeline:  {pipeline: true, backpressure: true, index: true},
	RoleConsole:   {console: true},
}

// parts returns the parts of a process: those of all its roles.
func (r Roles) parts() (all parts) {
	for role, of := range partsOf {
		if !r.Has(role) {
			continue
		}
		all.writes, all.reads = all.writes || of.writes, all.reads || of.reads
		all.firstStart, all.backpressure = all.firstStart || of.firstStart, all.backpressure || of.backpressure
		all.index, all.projections = all.index || of.index, all.projections || of.projections
		all.pipeline, all.console = all.pipeline || of.pipeline, all.console || of.console
	}
	return all
}

// needsProjections reports whether any part of the process depends on projections.
func (p parts) needsProjections() bool { return p.writes || p.reads || p.projections || p.pipeline }
