// Package environment finds variables of the environment whose name is misspelt.
package environment

import (
	"regexp"
	"slices"
	"strings"
)

const prefix = "ANNALS_"

// foreign are names that others set: Kubernetes for each service whose name begins with "annals", tests, and who loads
// the credentials file.
var foreign = regexp.MustCompile(`^ANNALS_(.+_)?(SERVICE_(HOST|PORT)(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_.*)?)?)$|^ANNALS_TEST_|^ANNALS_(OWNER_PASSWORD|MANAGEMENT_KEY)$`)

// Unknown is a variable that no setting reads.
type Unknown struct {
	Name string
	// Nearest is the setting with the most similar name, "" if none is similar.
	Nearest string
}

// Find returns the variables of an environment that begin like those of the service and that no setting reads.
func Find(environment, known []string) []Unknown {
	var found []Unknown
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, prefix) || slices.Contains(known, name) || foreign.MatchString(name) {
			continue
		}
		found = append(found, Unknown{name, nearest(name, known)})
	}
	slices.SortFunc(found, func(a, b Unknown) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// nearest returns the known name that the fewest edits make of a name, if they are a third of its letters or fewer.
func nearest(name string, known []string) (best string) {
	least := (len(name)-len(prefix))/3 + 1
	for _, other := range known {
		if n := edits(name, other); n < least {
			best, least = other, n
		}
	}
	return best
}

// edits counts the insertions, deletions and replacements that make one name of another. Underscores and the case of
// letters do not count.
func edits(a, b string) int {
	bare := func(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "_", "")) }
	a, b = bare(a), bare(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := before
			if a[i] != b[j] {
				replaced++
			}
			before = row[j+1]
			row[j+1] = min(replaced, before+1, row[j]+1)
		}
	}
	return row[len(b)]
}
