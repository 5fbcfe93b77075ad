package archtest

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// checkImport returns what is wrong with an import by a file of the folder dir, "" if it is allowed.
func checkImport(dir, imported string, test bool) string {
	top, _, _ := strings.Cut(dir, "/")
	if few, is := narrow[dir]; is && !test && strings.Contains(strings.Split(imported, "/")[0], ".") &&
		!slices.ContainsFunc(few, func(p string) bool { return below(imported, p) }) {
		return fmt.Sprintf("%s may import %s only, not %s", dir, strings.Join(few, ", "), imported)
	}
	if ours, ok := strings.CutPrefix(imported, Module+"/"); ok {
		return checkOurs(dir, top, ours, test)
	}
	if !strings.Contains(strings.Split(imported, "/")[0], ".") {
		return ""
	}
	if test {
		// Tests may look at a part from below or from outside, with whatever they need for it.
		if below(imported, "github.com/stretchr/testify") {
			return "tests use the standard library and go-cmp, not " + imported
		}
		return ""
	}
	if folders, ok := bound(imported); ok && !within(dir, folders) {
		return fmt.Sprintf("%s may be imported in %s only", imported, strings.Join(folders, ", "))
	}
	if top == "client" {
		return "client may import the standard library alone, not " + imported
	}
	if top == "domain" && !slices.ContainsFunc(domainMay, func(p string) bool { return below(imported, p) }) {
		return fmt.Sprintf("domain may import the standard library and %s, not %s", strings.Join(domainMay, ", "), imported)
	}
	if slices.ContainsFunc(testOnly, func(p string) bool { return below(imported, p) }) && !forTests(dir) {
		return imported + " is for tests"
	}
	return ""
}

func checkOurs(dir, top, ours string, test bool) string {
	if test {
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
	if forTests(ours) && !forTests(dir) {
		return ours + " is for tests"
	}
	return ""
}

// bound finds the folders that an import is bound to.
func bound(imported string) ([]string, bool) {
	var longest string
	for p := range only {
		if below(imported, p) && len(p) > len(longest) {
			longest = p
		}
	}
	return only[longest], longest != ""
}

// forTests reports whether a folder holds a package of tests: a conformance suite or the test kit.
func forTests(dir string) bool {
	base := path.Base(dir)
	return strings.HasSuffix(base, "test") || base == "testkit" || strings.Contains(dir, "/testkit/")
}

func within(dir string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return below(dir, f) })
}

func below(p, parent string) bool { return p == parent || strings.HasPrefix(p, parent+"/") }
