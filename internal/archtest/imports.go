package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// checkImport returns what is wrong with an import by a file of the folder dir, "" if it is allowed.
func checkImport(dir, imported string, test bool) string {
	top, _, _ := strings.Cut(dir, "/")
	outside := strings.Contains(strings.Split(imported, "/")[0], ".")
	if folder, is := longest(narrow, dir); is && outside && !test && !forTests(dir) && !isBelow(imported, narrow[folder]) {
		return fmt.Sprintf("%s may import what narrow lists, not %s", folder, imported)
	}
	if ours, ok := strings.CutPrefix(imported, Module+"/"); ok {
		return checkOurs(dir, top, ours, test)
	}
	if !test && !forTests(dir) && isBelow(imported, testOnly) {
		return imported + " is for tests"
	}
	if !outside {
		return ""
	}
	if test {
		// Tests may look at a part from below or from outside, with whatever they need for it.
		if below(imported, "github.com/stretchr/testify") {
			return "tests use the standard library and go-cmp, not " + imported
		}
		return ""
	}
	if path, ok := longest(only, imported); ok && !isBelow(dir, only[path]) {
		return fmt.Sprintf("%s may be imported in %s only", imported, strings.Join(only[path], ", "))
	}
	if top == "client" {
		return "client may import the standard library alone, not " + imported
	}
	if top == "domain" && !isBelow(imported, domainMay) {
		return fmt.Sprintf("domain may import the standard library and %s, not %s", strings.Join(domainMay, ", "), imported)
	}
	return ""
}

func checkOurs(dir, top, ours string, test bool) string {
	if test || forTests(dir) && forTests(ours) {
		return ""
	}
	to, _, _ := strings.Cut(ours, "/")
	allowed, known := may[top]
	if !known {
		return fmt.Sprintf("folder %s is not in the table of who may import whom", top)
	}
	if !slices.Contains(allowed, to) {
		return fmt.Sprintf("%s may not import %s: declare a small interface here and join it in cmd", top, ours)
	}
	switch {
	case isBelow(dir, measures):
		return ""
	case forTests(ours):
		return ours + " is for tests"
	case isBelow(ours, measures):
		return ours + " is for measurements"
	}
	return ""
}

// longest finds the row of a table by paths that a path is below.
func longest(table map[string][]string, of string) (row string, ok bool) {
	for p := range table {
		if below(of, p) && len(p) >= len(row) {
			row, ok = p, true
		}
	}
	return row, ok
}

// forTests reports whether a folder holds a package of tests, such as a conformance suite, or is below one.
func forTests(dir string) bool {
	isKit := func(name string) bool { return strings.HasSuffix(name, "test") }
	return slices.ContainsFunc(strings.Split(dir, "/"), isKit)
}

// isBelow reports whether a path is one of others, or below one.
func isBelow(p string, others []string) bool {
	return slices.ContainsFunc(others, func(parent string) bool { return below(p, parent) })
}

func below(p, parent string) bool { return p == parent || strings.HasPrefix(p, parent+"/") }
