package elastic

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// formatNumber is how a generation keeps documents. Raise it with every change of the mapping, of the ids or of the
// documents: an index of a format before is removed, and a new one is built from the log.
//
// Each format has its own names: a program of another one that runs at the same time does not use what it cannot
// read, and removes nothing that is newer.
const formatNumber = 5

const formatMark = "v"

// format is part of the names of indexes and aliases.
var format = formatMark + strconv.Itoa(formatNumber)

// generation is one build of the index. Its zero value is none.
type generation struct {
	// index is the name of the index, id the one in its mapping.
	index, id string
	analysis  int
}

func (g generation) String() string { return "elasticsearch:" + g.index + "/" + g.id }

// The aliases; see doc.go.
func (o Options) live() string                   { return o.Name + "-" + format }
func (o Options) next() string                   { return o.live() + "-next" }
func (o Options) writeAlias(g generation) string { return o.Name + "-w-" + g.id }
func (o Options) readAlias(g generation) string  { return o.Name + "-r-" + g.id }

func (o Options) indexName(number int) string {
	return fmt.Sprintf("%s-%s-%06d", o.Name, format, number)
}

// indexPattern matches the indexes of all formats; its groups are the numbers of format and index.
func (o Options) indexPattern() (*regexp.Regexp, error) {
	return regexp.Compile(`^` + regexp.QuoteMeta(o.Name) + `-` + formatMark + `([0-9]+)-([0-9]{6,})$`)
}

// numberOf returns the number of an index; ok is false if it is none of this format or of one before.
func numberOf(pattern *regexp.Regexp, name string) (number int, ok bool) {
	groups := pattern.FindStringSubmatch(name)
	if groups == nil {
		return 0, false
	}
	of, err := strconv.Atoi(groups[1])
	if err != nil || of > formatNumber {
		return 0, false
	}
	number, err = strconv.Atoi(groups[2])
	return number, err == nil
}

// inUse are the aliases of a complete generation in use.
func (o Options) inUse(g generation) []string { return []string{o.live(), o.readAlias(g)} }

// newAliases are those of an empty generation in use.
func (x *Index) newAliases(g generation) []string {
	if x.options.HoldNew {
		return []string{x.options.live()}
	}
	return x.options.inUse(g)
}

// isUsed reports whether an alias is one of those that only a generation in use has, of any format.
func (o Options) isUsed(alias string) bool {
	if of, is := strings.CutPrefix(alias, o.Name+"-"+formatMark); is {
		_, err := strconv.Atoi(of)
		return err == nil
	}
	return strings.HasPrefix(alias, o.readAlias(generation{}))
}
