package elastic

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// format is how a generation keeps documents, part of the names of its index and aliases. Raise the
// newest with every change of the mapping, of the ids or of the documents. The one before is read and
// written until a generation of the newest is built.
//
// Each format has its own names: a program of another one that runs at the same time neither uses nor
// removes what it cannot read.
type format string

const (
	formerFormat   format = "2"
	newestFormat   format = "v3"
	formerAnalysis        = 1
)

// formats are those that are used, in the order in which they are looked for.
var formats = []format{newestFormat, formerFormat}

// generation is one build of the index. Its zero value is none.
type generation struct {
	// index is the name of the index, id the one in its mapping.
	index, id string
	format    format
	analysis  int
}

func (g generation) String() string { return "elasticsearch:" + g.index + "/" + g.id }

// The aliases; see doc.go.
func (o Options) live(f format) string {
	if f == formerFormat {
		return o.Name
	}
	return o.Name + "-" + string(f)
}
func (o Options) next() string                   { return o.live(newestFormat) + "-next" }
func (o Options) writeAlias(g generation) string { return o.Name + "-w-" + g.id }
func (o Options) readAlias(g generation) string {
	if g.format == formerFormat {
		return o.Name + "-read"
	}
	return o.Name + "-r-" + g.id
}

func (o Options) indexName(number int) string {
	return fmt.Sprintf("%s-%s-%06d", o.Name, newestFormat, number)
}

// indexPattern matches the indexes of this format and of all before.
func (o Options) indexPattern() (*regexp.Regexp, error) {
	return regexp.Compile(`^` + regexp.QuoteMeta(o.Name) + `-(?:[0-9]+|` + string(newestFormat) + `)-([0-9]{6,})$`)
}

// inUse are the aliases of a complete generation in use.
func (o Options) inUse(g generation) []string { return []string{o.live(g.format), o.readAlias(g)} }

// newAliases are those of an empty generation in use.
func (x *Index) newAliases(g generation) []string {
	if x.options.HoldNew {
		return []string{x.options.live(g.format)}
	}
	return x.options.inUse(g)
}

// isUsed reports whether an alias is one of those that only a generation in use has.
func (o Options) isUsed(alias string) bool {
	return slices.ContainsFunc(formats, func(f format) bool { return alias == o.live(f) }) ||
		alias == o.readAlias(generation{format: formerFormat}) ||
		strings.HasPrefix(alias, o.readAlias(generation{format: newestFormat}))
}
