package web

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// ProjectPath is a path below the project of the request: its parts are escaped.
func (r *Request) ProjectPath(parts ...string) string {
	return Path(slices.Concat([]string{"p", r.Project.Project.Slug}, parts)...)
}

// dots are parts that a browser takes for a step in the path, however they are escaped, with marks before them.
var dots = regexp.MustCompile(`^~*\.{1,2}$`)

// Part is a parameter of the path, as it was given to Path.
func (r *Request) Part(name string) string {
	part := r.PathValue(name)
	if dots.MatchString(part) {
		part = strings.TrimPrefix(part, "~")
	}
	return part
}

// Path joins parts to a path from the root, each escaped. Part reads them.
func Path(parts ...string) string {
	var b strings.Builder
	for _, part := range parts {
		b.WriteByte('/')
		if dots.MatchString(part) {
			b.WriteByte('~')
		}
		b.WriteString(url.PathEscape(part))
	}
	return b.String()
}
