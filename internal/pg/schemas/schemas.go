// Package schemas names the schemas of this program in a database.
//
// Statements name a schema without a prefix, as in "select from access.people". A service with a prefix has its own
// schemas in a database that it shares: every connection that internal/pg opens sends what Prefix.Statement returns.
package schemas

import (
	"errors"
	"regexp"
	"strings"

	"github.com/annals-project/annals/internal/projection"
)

// Ops is the schema of what is not derived from the log.
const Ops = "ops"

// The ends of the names of schemas that rebuilds make.
const (
	ShadowSuffix = "_next"
	OldSuffix    = "_old_" // a number follows
)

// Names returns the names without a prefix of all schemas: ops and those of the projections.
func Names() []string { return append(projection.Names(), Ops) }

// Prefix begins the names of the schemas of a service. The zero value is no prefix.
type Prefix string

// MaxPrefix is the most bytes of a prefix. The longest name of a schema, with the suffix of one that was live before,
// then still is shorter than the 63 bytes to which Postgres cuts names.
const MaxPrefix = 20

var wellFormed = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// Parse returns the prefix that a setting names, or what is wrong with it.
func Parse(setting string) (Prefix, error) {
	switch {
	case setting == "":
		return "", nil
	case !wellFormed.MatchString(setting):
		return "", errors.New("must begin with a lower-case letter, and have lower-case letters, digits and _ only")
	case strings.HasPrefix(setting, "pg_"):
		return "", errors.New("must not begin with pg_: Postgres keeps such names for itself")
	case len(setting) > MaxPrefix:
		return "", errors.New("must have at most 20 bytes")
	}
	return Prefix(setting), nil
}

// Name returns the name in the database of a schema of this program, its shadow or one that was live before. Another
// name stays as it is.
func (p Prefix) Name(name string) string {
	if isName(name) {
		return string(p) + name
	}
	return name
}

// Projections is a regular expression of Postgres for the names in the database of the schemas of projections, their
// shadows and those that were live before.
func (p Prefix) Projections() string {
	names := strings.Join(projection.Names(), "|")
	return "^" + string(p) + "(" + names + ")(" + ShadowSuffix + "|" + OldSuffix + "[0-9]+)?$"
}

// IsOfAnother reports whether a name in the database is of a schema of this program with another prefix, or with none.
func (p Prefix) IsOfAnother(inDatabase string) bool {
	base := withoutSuffix(inDatabase)
	for _, name := range Names() {
		if strings.HasSuffix(base, name) {
			return base != string(p)+name
		}
	}
	return false
}

// isName reports whether a name without a prefix is of a schema of this program.
func isName(name string) bool {
	return known[withoutSuffix(name)]
}

// known are the values of Names.
var known = func() map[string]bool {
	all := map[string]bool{}
	for _, name := range Names() {
		all[name] = true
	}
	return all
}()

// withoutSuffix returns a name without the end that a rebuild gives it.
func withoutSuffix(name string) string {
	if base, is := strings.CutSuffix(name, ShadowSuffix); is {
		return base
	}
	i := strings.LastIndex(name, OldSuffix)
	if i < 0 {
		return name
	}
	number := name[i+len(OldSuffix):]
	if number == "" || strings.Trim(number, "0123456789") != "" {
		return name
	}
	return name[:i]
}
