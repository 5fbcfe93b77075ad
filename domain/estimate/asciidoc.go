package estimate

import (
	"strings"
)

// asciiDocument finds the headings of AsciiDoc outside of delimited blocks. No maintained parser of
// AsciiDoc in Go works in bounded time; headings need one line.
func (c *cut) asciiDocument() document {
	d := document{}
	line, rest := firstLine(c.text)
	if strings.HasPrefix(line, "= ") {
		d.title = fitName(line[2:], 200)
		d.author, d.at = asciiHeader(rest)
	}
	a := &asciidoc{}
	d.sections = c.lineSections(c.text, a.begins)
	return d
}

// asciiHeader reads the lines below the title: the author, the revision with its date, and attributes.
func asciiHeader(text string) (author, date string) {
	for n := range 50 {
		var line string
		if line, text = firstLine(text); strings.TrimSpace(line) == "" || len(line) > 500 {
			break
		}
		name, value, isAttribute := strings.Cut(strings.TrimPrefix(line, ":"), ":")
		switch {
		case strings.HasPrefix(line, ":") && isAttribute && name == "author":
			author = strings.TrimSpace(value)
		case strings.HasPrefix(line, ":") && isAttribute && (name == "revdate" || name == "docdate"):
			date = strings.TrimSpace(value)
		case n == 0 && !strings.HasPrefix(line, ":") && !strings.HasPrefix(line, "//"):
			author, _, _ = strings.Cut(line, "<")
			author, _, _ = strings.Cut(author, ";")
			author = strings.TrimSpace(author)
		case n == 1 && !strings.HasPrefix(line, ":"):
			_, date, _ = strings.Cut(line, ",")
			date, _, _ = strings.Cut(strings.TrimSpace(date), ":")
			date = strings.TrimSpace(date)
		}
	}
	return author, date
}

// asciidoc is the state between lines.
type asciidoc struct {
	// block is the line that ends the delimited block of this line, "" outside of one.
	block string
}

func (a *asciidoc) begins(line, _ string) (level int, heading string, used int) {
	trimmed := strings.TrimRight(line, " \t")
	if a.block != "" {
		if trimmed == a.block {
			a.block = ""
		}
		return 0, "", 0
	}
	if isDelimiter(trimmed) {
		a.block = trimmed
		return 0, "", 0
	}
	n := len(trimmed) - len(strings.TrimLeft(trimmed, "="))
	if n == 0 || n > 6 || len(trimmed) <= n+1 || trimmed[n] != ' ' {
		return 0, "", 0
	}
	return n, inlineText(trimmed[n:]), 1
}

// isDelimiter reports whether a line opens and closes a block of listing, literal text, comment,
// passthrough, sidebar, quotation or table.
func isDelimiter(line string) bool {
	if line == "|===" || line == "```" {
		return true
	}
	return len(line) >= 4 && strings.IndexByte("-./+*_", line[0]) >= 0 && strings.Trim(line, line[:1]) == ""
}
