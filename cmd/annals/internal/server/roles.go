package server

import (
	"errors"
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

// HasAny reports whether the process has one of some roles. No roles are all.
func (r Roles) HasAny(roles Roles) bool { return len(roles) == 0 || slices.ContainsFunc(roles, r.Has) }

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
	// The process that feeds an embedded index also answers recall and erases. The console calls recall.
	if index == Embedded && r.Has(RoleConsole) && !r.Has(RoleRead) {
		return "INDEX", errors.New("is embedded, so a process with the role console also has the role read: set it to the " +
			"address of an Elasticsearch, or add read to ANNALS_ROLES")
	}
	if index == Embedded && r.HasAny(rolesOfIndex) && missing.HasAny(rolesOfIndex) {
		return "INDEX", fmt.Errorf("is embedded, so one process has the roles %s: set it to the address of an "+
			"Elasticsearch, or give the process of ANNALS_ROLES=%s all three", rolesOfIndex, r)
	}
	return "", nil
}

// The roles that need the recall index, and a model that embeds.
var (
	rolesOfIndex  = Roles{RoleRead, RoleProjector, RolePipeline}
	rolesOfModels = Roles{RoleRead, RolePipeline, RoleConsole}
	// openIndexRoles are those whose processes open the index: to be asked at least.
	openIndexRoles = append(slices.Clone(rolesOfIndex), RoleConsole)
)
