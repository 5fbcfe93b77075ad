package estimate

import (
	"strings"
)

// markdownDocument finds the headings of CommonMark outside of code blocks and comments. A parser of
// Markdown builds a node for each line; headings need a look at two lines.
func (c *cut) markdownDocument() document {
	values, body := frontMatter(c.text)
	m := &markdown{}
	d := document{
		title: fitName(values["title"], 200), audience: values.audience(), at: values.first(frontTimes...),
		sections: c.lineSections(body, m.begins),
	}
	// Of several writers none is the author of a section.
	if author := values.first("author", "authors", "generatedby", "createdby"); !strings.Contains(author, "\n") {
		d.author = author
	}
	return d
}

// frontTimes are the values that say when a text was written, the first that is there counts.
var frontTimes = []string{
	"date", "created", "createdat", "datecreated", "createdon", "updated", "updatedat", "dateupdated", "generatedat", "generated",
	"timestamp", "published", "publishedat", "publishdate", "pubdate", "lastmodified", "lastmod", "modified", "datemodified", "lastupdated",
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// markdown is the state between lines.
type markdown struct {
	// fence is the mark that ends the code block of this line, "" outside of one.
	fence string
	// comment is true inside of <!-- -->.
	comment bool
	// paragraph is true if the line before belongs to a paragraph.
	paragraph bool
}

func (m *markdown) begins(line, next string) (level int, heading string, used int) {
	indent := len(line) - len(strings.TrimLeft(line, " "))
	trimmed := strings.TrimSpace(line)
	inParagraph := m.paragraph
	m.paragraph = false
	switch {
	case m.comment:
		m.comment = !strings.Contains(line, "-->")
		return 0, "", 0
	case m.fence != "":
		if indent < 4 && strings.HasPrefix(trimmed, m.fence) && strings.Trim(trimmed, m.fence[:1]) == "" {
			m.fence = ""
		}
		return 0, "", 0
	case indent >= 4 || strings.HasPrefix(line, "\t"):
		m.paragraph = inParagraph
		return 0, "", 0
	case strings.HasPrefix(trimmed, "<!--"):
		m.comment = !strings.Contains(trimmed[4:], "-->")
		return 0, "", 0
	}
	if mark := fenceOf(trimmed); mark != "" {
		m.fence = mark
		return 0, "", 0
	}
	if n := len(trimmed) - len(strings.TrimLeft(trimmed, "#")); n > 0 && n <= 6 &&
		(len(trimmed) == n || trimmed[n] == ' ' || trimmed[n] == '\t') {
		return n, inlineText(closedHeading(trimmed[n:])), 1
	}
	if trimmed == "" {
		return 0, "", 0
	}
	m.paragraph = true
	// A heading that is underlined is one line here.
	if level := underline(next); level > 0 && !inParagraph && len(line) < 300 && !isList(trimmed) {
		m.paragraph = false
		return level, inlineText(trimmed), 2
	}
	return 0, "", 0
}

// fenceOf returns the mark that opens a code block, "" for none.
func fenceOf(line string) string {
	for _, mark := range []string{"```", "~~~"} {
		if !strings.HasPrefix(line, mark) {
			continue
		}
		n := len(line) - len(strings.TrimLeft(line, mark[:1]))
		if mark == "```" && strings.Contains(line[n:], "`") {
			return ""
		}
		return line[:n]
	}
	return ""
}

// underline returns the level of the heading that a line underlines, 0 for none.
func underline(line string) int {
	trimmed := strings.TrimSpace(line)
	switch {
	case len(trimmed) < 2 || strings.HasPrefix(line, "    "):
		return 0
	case strings.Trim(trimmed, "=") == "":
		return 1
	case strings.Trim(trimmed, "-") == "":
		return 2
	}
	return 0
}

// isList reports whether a line begins a list, a quotation or a table.
func isList(line string) bool {
	return strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "* ") || strings.HasPrefix(line, "+ ") ||
		strings.HasPrefix(line, ">") || strings.HasPrefix(line, "|") || strings.Contains(line, " | ")
}

// closedHeading removes the marks that may close a heading.
func closedHeading(text string) string {
	text = strings.TrimSpace(text)
	if open := strings.TrimRight(text, "#"); open == "" || strings.HasSuffix(open, " ") {
		return strings.TrimSpace(open)
	}
	return text
}

// inlineText removes the marks of emphasis and code, and the anchors that some generators take.
func inlineText(heading string) string {
	heading = cutRunes(heading, 1000)
	if at := strings.LastIndex(heading, "{#"); at > 0 && strings.HasSuffix(heading, "}") {
		heading = heading[:at]
	}
	return strings.TrimSpace(marks.Replace(heading))
}

var marks = strings.NewReplacer("**", "", "__", "", "`", "")
