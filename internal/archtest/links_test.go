package archtest

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence     = regexp.MustCompile("(?ms)^```.*?^```$")
	heading   = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	notAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Every relative link of a page leads to a file or folder of the tree, and to a heading if it names one.
func TestLinks_LeadSomewhere(t *testing.T) {
	root := os.DirFS("../..")
	links := 0
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		// Templates of issues are hidden, and links in them are those of the forge.
		if entry.IsDir() && name != "." && isSkipped(name) {
			return fs.SkipDir
		}
		if path.Ext(name) != ".md" {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		for _, found := range link.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
			target := found[1]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(target, "#")
			if file == "" {
				file = path.Base(name)
			}
			file = path.Join(path.Dir(name), file)
			if _, err := fs.Stat(root, file); err != nil {
				t.Errorf("%s links to %s, which is not there", name, target)
				continue
			}
			if anchor != "" && !anchors(t, root, file)[anchor] {
				t.Errorf("%s links to %s, but %s has no such heading", name, target, file)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if links == 0 {
		t.Fatal("no page has a link")
	}
}

// The index of docs/ leads to each of its pages.
func TestLinks_IndexHasEachPage(t *testing.T) {
	root := os.DirFS("../..")
	index, err := fs.ReadFile(root, "docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := fs.Glob(root, "docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if name := path.Base(page); name != "README.md" && !strings.Contains(string(index), "]("+name+")") {
			t.Errorf("docs/README.md has no link to %s", name)
		}
	}
}

// anchors are the names of the headings of a page, as forges make them.
func anchors(t *testing.T, root fs.FS, file string) map[string]bool {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, found := range heading.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
		title := link.ReplaceAllString(found[1], "]")
		names[strings.ReplaceAll(notAnchor.ReplaceAllString(strings.ToLower(title), ""), " ", "-")] = true
	}
	return names
}

var pathInPage = regexp.MustCompile("`((?:cmd|commands|deploy|docs|domain|eventstore|internal|projections|readapi|writeapi)/[A-Za-z0-9_./-]+)`")

// Every file and folder that a page for developers names is there.
func TestPages_NameWhatIsThere(t *testing.T) {
	root := os.DirFS("../..")
	named := 0
	for _, page := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md", "GLOSSARY.md", "docs/design.md", "docs/how-recall-ranks.md"} {
		text, err := fs.ReadFile(root, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range pathInPage.FindAllStringSubmatch(string(text), -1) {
			named++
			if _, err := fs.Stat(root, strings.TrimSuffix(found[1], "/")); err != nil {
				t.Errorf("%s names %s, which is not there", page, found[1])
			}
		}
	}
	if named == 0 {
		t.Fatal("no page names a file")
	}
}
