package grammar

import (
	"strings"

	"github.com/alecthomas/kong"
)

// ShowExamples adds examples to the help of each command, by its path, and to that of a group of commands the first
// one of each of its commands, at most two.
func ShowExamples(model *kong.Application, examples map[string][2]string) {
	for _, leaf := range model.Leaves(false) {
		if shown, ok := examples[leaf.Path()]; ok {
			leaf.Detail = detail(shown[:])
		}
	}
	for _, node := range model.Children {
		if node.Leaf() {
			continue
		}
		var first, second []string
		for _, child := range node.Children {
			if of, ok := examples[child.Path()]; ok {
				first, second = append(first, of[0]), append(second, of[1])
			}
		}
		if shown := append(first, second...); len(shown) > 1 {
			node.Detail = detail(shown[:2])
		}
	}
}

// detail is a list of calls that the help does not wrap.
func detail(calls []string) string { return "Examples:\n\n\t" + strings.Join(calls, "\n\t") }
