package lexicon

import (
	"iter"
	"strings"
)

// entries returns the lines of a data file without those that begin with "#" and empty ones.
func entries(file string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.Lines(file) {
			line = strings.TrimSpace(line)
			if line != "" && line[0] != '#' && !yield(line) {
				return
			}
		}
	}
}
