package estimate

import (
	"cmp"
	"strings"
	"time"
	"unicode"

	"github.com/annals-project/annals/domain/audience"
)

// section is a part of a document under one heading.
type section struct {
	// level is that of the heading, 0 for what is before the first.
	level   int
	heading string
	text    string
}

// document is what a reader of a format found.
type document struct {
	title  string
	author string
	at     string
	// audience is who may read it, "" for all. It is left out if that is no slug.
	audience string
	sections func(yield func(section) error) error
}

// cutDocumentation cuts a document by its sections: one data point each.
func cutDocumentation(c *cut) error {
	d, err := readDocument(c)
	if err != nil {
		return err
	}
	if d.audience != "" && !audience.ValidSlug(d.audience) {
		return skip("names the audience %.100q, which is no slug: nobody is known who may read it", d.audience)
	}
	var at time.Time
	if parsed, ok := parseTime(d.at, c.zone, false); ok {
		at = parsed
	} else {
		at = dateInName(c.path, c.zone)
	}
	root := cmp.Or(d.title, c.base)
	var headings, slugs [7]string
	taken := newNames()
	return d.sections(func(s section) error {
		level := min(s.level, 6)
		headings[level], slugs[level] = s.heading, ""
		if s.heading != "" {
			slugs[level] = slug(s.heading)
		}
		clear(headings[level+1:])
		clear(slugs[level+1:])
		if level <= 1 && s.level > 0 && d.title == "" {
			root = s.heading
		}
		p := Point{
			Label: labelOf(root, headings[1:]), Identity: d.author, Audience: d.audience, At: at, Metadata: c.metadata(),
		}
		p.ID, p.Content = c.id(taken.unique(anchor(slugs[1:]), "")), s.text
		return c.emit(p)
	})
}

// readDocument reads by the extension, else by what the text begins with.
func readDocument(c *cut) (document, error) {
	if isNotebook(c.path) {
		return c.notebookDocument()
	}
	return c.textDocument(), nil
}

func (c *cut) textDocument() document {
	switch ext := extension(c.path); {
	case ext == ".html" || ext == ".htm" || ext == ".xhtml":
		return c.htmlDocument()
	case ext == ".adoc" || ext == ".asciidoc" || ext == ".asc":
		return c.asciiDocument()
	case ext == ".md" || ext == ".markdown" || ext == ".mdx":
		return c.markdownDocument()
	}
	start := strings.ToLower(strings.TrimSpace(c.text[:min(len(c.text), 1024)]))
	if strings.HasPrefix(start, "<!doctype html") || strings.HasPrefix(start, "<html") {
		return c.htmlDocument()
	}
	if strings.HasPrefix(start, "= ") || strings.HasPrefix(start, "== ") {
		return c.asciiDocument()
	}
	return c.markdownDocument()
}

// labelOf joins the title of a document and the headings on the way to a section.
func labelOf(root string, headings []string) string {
	parts := []string{root}
	for _, h := range headings {
		if h != "" && h != root {
			parts = append(parts, h)
		}
	}
	return strings.Join(parts, " › ")
}

// anchor returns the name of a section within its document, "top" for what is before the first.
func anchor(slugs []string) string {
	var parts []string
	for _, s := range slugs {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if len(parts) == 0 {
		return "top"
	}
	return strings.Join(parts, "/")
}

// slug keeps the letters and digits of a heading.
func slug(heading string) string {
	var b strings.Builder
	gap := false
	for _, r := range strings.ToLower(cutRunes(heading, 200)) {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			gap = b.Len() > 0
			continue
		case gap:
			b.WriteByte('-')
		}
		gap = false
		b.WriteRune(r)
	}
	if b.Len() == 0 {
		return "section"
	}
	return b.String()
}

// lineSections cuts a text at the lines that begins names as headings.
func (c *cut) lineSections(
	text string, begins func(line, next string) (level int, heading string, used int),
) func(yield func(section) error) error {
	return func(yield func(section) error) error {
		current, start, at := section{}, 0, 0
		for at < len(text) {
			line, rest := c.line(text[at:])
			next, _ := c.line(rest)
			if c.ended != nil {
				return c.ended
			}
			level, heading, used := begins(line, next)
			end := min(at+len(line)+1, len(text))
			if level == 0 {
				at = end
				continue
			}
			current.text = text[start:at]
			if err := yield(current); err != nil {
				return err
			}
			current, start = section{level: level, heading: fitName(heading, 200)}, at
			if at = end; used == 2 {
				at = min(at+len(next)+1, len(text))
			}
		}
		current.text = text[start:]
		return yield(current)
	}
}
