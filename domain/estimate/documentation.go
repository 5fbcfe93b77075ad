package estimate

import (
	"cmp"
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/rawjson"
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
	if d.audience != "" && !limit.IsAudienceSlug(d.audience) {
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

// notebook is a notebook of Jupyter; that of format 3 has its cells in sheets.
type notebook struct {
	Cells      []notebookCell
	Worksheets []struct{ Cells []notebookCell }
	Metadata   struct {
		Title   string
		Authors []struct{ Name string }
	}
}

// notebookCell is a text, or code with what it printed.
type notebookCell struct {
	Kind    string          `json:"cell_type"`
	Source  json.RawMessage `json:"source"`
	Input   json.RawMessage `json:"input"`
	Level   int             `json:"level"`
	Outputs []struct {
		Text   json.RawMessage            `json:"text"`
		Data   map[string]json.RawMessage `json:"data"`
		Ename  string                     `json:"ename"`
		Evalue string                     `json:"evalue"`
	} `json:"outputs"`
}

// isNotebook reports whether a file is a notebook, by its name: JSON of the same shape may be anything.
func isNotebook(path string) bool { return extension(path) == ".ipynb" }

// notebookDocument writes the cells of a notebook as Markdown, with code and what it printed in fences, and cuts that.
func (c *cut) notebookDocument() (document, error) {
	if err := c.nesting(Documentation, c.text); err != nil {
		return document{}, err
	}
	var n notebook
	if err := json.NewDecoder(c.reader(strings.NewReader(c.text))).Decode(&n); err != nil && !isTypeError(err) {
		return document{}, unparseable(Documentation, "%v", err)
	}
	for _, sheet := range n.Worksheets {
		n.Cells = append(n.Cells, sheet.Cells...)
	}
	var b strings.Builder
	for _, cell := range n.Cells {
		source := joined(cell.Source)
		if source == "" {
			source = joined(cell.Input)
		}
		if c.over(len(source)) {
			return document{}, c.ended
		}
		switch cell.Kind {
		case "code":
			fence(&b, source)
			c.outputs(&b, cell)
		case "heading":
			b.WriteString(strings.Repeat("#", max(1, min(cell.Level, 6))) + " " + source + "\n\n")
		default:
			if strings.TrimSpace(source) != "" {
				b.WriteString(strings.Trim(source, "\n") + "\n\n")
			}
		}
	}
	m := &markdown{}
	d := document{title: fitName(n.Metadata.Title, 200), sections: c.lineSections(b.String(), m.begins)}
	if len(n.Metadata.Authors) == 1 {
		d.author = n.Metadata.Authors[0].Name
	}
	return d, nil
}

// outputs writes what a cell printed. Of a picture there is only that it was left out.
func (c *cut) outputs(b *strings.Builder, of notebookCell) {
	for _, out := range of.Outputs {
		text := joined(out.Text)
		if out.Ename != "" {
			text += out.Ename + ": " + out.Evalue
		}
		isPicture := false
		for kind := range out.Data {
			isPicture = isPicture || !strings.HasPrefix(kind, "text/") && kind != "application/json"
		}
		plain := joined(out.Data["text/plain"])
		switch {
		case isPicture:
			c.remarks.add(NotText, "an output")
		case out.Data["text/markdown"] != nil:
			text += joined(out.Data["text/markdown"])
		case plain != "" && !strings.HasPrefix(plain, "<IPython."):
			text += plain
		case out.Data["text/html"] != nil:
			text += strings.TrimSpace(c.htmlText(joined(out.Data["text/html"])))
		case out.Data["text/latex"] != nil:
			text += joined(out.Data["text/latex"])
		case out.Data["application/json"] != nil:
			text += string(out.Data["application/json"])
		default:
			text += plain
		}
		fence(b, onTerminal(text))
	}
}

// colors are the sequences by which a terminal changes colors and moves.
var colors = regexp.MustCompile(`\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Za-z0-9])`)

// onTerminal returns what a terminal shows at last of what was printed: without colors, and of a line that was printed
// over itself, such as a bar of progress, the last state.
func onTerminal(text string) string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if !strings.ContainsAny(text, "\x1b\r") {
		return text
	}
	lines := strings.Split(colors.ReplaceAllString(text, ""), "\n")
	for i, line := range lines {
		line = strings.TrimRight(line, "\r")
		lines[i] = line[strings.LastIndexByte(line, '\r')+1:]
	}
	return strings.Join(lines, "\n")
}

// joined returns a text that may be written as a list of its lines.
func joined(value json.RawMessage) string {
	if len(value) > 0 && value[0] == '"' {
		text, _ := rawjson.Text(value)
		return text
	}
	var b strings.Builder
	if len(value) > 0 && value[0] == '[' {
		for _, line := range rawjson.Elements(value) {
			if line[0] == '"' {
				text, _ := rawjson.Text(line)
				b.WriteString(text)
			}
		}
	}
	return b.String()
}

// fence writes a text as a block of code, between marks that it does not have.
func fence(b *strings.Builder, text string) {
	if text = strings.Trim(text, "\n"); strings.TrimSpace(text) == "" {
		return
	}
	mark := "```"
	for strings.Contains(text, mark) && len(mark) < 64 {
		mark += "`"
	}
	b.WriteString(mark + "\n" + text + "\n" + mark + "\n\n")
}

// isTypeError reports whether JSON has a value of another type in some place: all others are read.
func isTypeError(err error) bool {
	_, is := errors.AsType[*json.UnmarshalTypeError](err)
	return is
}

// cutNotes cuts plain text: one data point, or parts of a long text.
func cutNotes(c *cut) error {
	label := cmp.Or(title(c.text), c.base)
	at := dateInName(c.path, c.zone)
	n := 0
	return parts(c.text, func(part string) error {
		n++
		p := Point{ID: c.id(), Content: part, Label: label, At: at, Metadata: c.metadata()}
		if n > 1 {
			p.ID = c.id("part-" + strconv.Itoa(n))
			p.Label = label + " (" + strconv.Itoa(n) + ")"
		}
		return c.emit(p)
	})
}
