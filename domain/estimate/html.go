package estimate

import (
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// htmlWalk reads the text of HTML. It uses the tokenizer alone: a tree of a hostile page takes a multiple
// of its memory, and time that grows with its depth.
type htmlWalk struct {
	tokens *html.Tokenizer
	b      strings.Builder
	// hidden is the element whose text is not read, and depth how often it is open inside of itself.
	hidden atom.Atom
	depth  int
	// marks writes "> " before the lines of block quotations, which are open quoted times.
	marks  bool
	quoted int
	// pre counts the open elements whose white space is kept.
	pre int
	// heading is the level of the heading that is open, 0 for none; it began at begin.
	heading, begin int
	// onHeading is called at the end of each heading, with where its text begins.
	onHeading func(level, begin int) error

	title, author, date string
	// space is true if white space is due before the next word.
	space bool
}

func (c *cut) htmlWalk(text string) *htmlWalk {
	return &htmlWalk{
		tokens:    html.NewTokenizer(c.reader(strings.NewReader(c.shortTags(text)))),
		onHeading: func(int, int) error { return nil },
	}
}

// htmlText returns the text of HTML without markup. Lines of block quotations begin with "> ", as in plain mail.
func (c *cut) htmlText(text string) string {
	w := c.htmlWalk(text)
	w.marks = true
	if err := w.run(); err != nil {
		return ""
	}
	return c.tidyLines(w.b.String())
}

// htmlDocument cuts HTML at its headings.
func (c *cut) htmlDocument() document {
	// Title and author are in the head, which ends before the first section is known.
	head := c.htmlWalk(c.text[:min(len(c.text), headBytes)])
	d := document{}
	if err := head.run(); err == nil {
		d.title, d.author, d.at = fitName(head.title, 200), head.author, head.date
	}
	d.sections = func(yield func(section) error) error {
		w := c.htmlWalk(c.text)
		current, start := section{}, 0
		w.onHeading = func(level, begin int) error {
			current.text = c.tidyLines(w.b.String()[start:begin])
			if err := yield(current); err != nil {
				return err
			}
			current, start = section{level: level, heading: fitName(w.b.String()[begin:], 200)}, begin
			return nil
		}
		if err := w.run(); err != nil {
			return err
		}
		current.text = c.tidyLines(w.b.String()[start:])
		return yield(current)
	}
	return d
}

// run reads all tokens. The error is that of onHeading.
func (w *htmlWalk) run() error {
	for {
		switch kind := w.tokens.Next(); kind {
		case html.ErrorToken:
			return nil
		case html.TextToken:
			w.text(string(w.tokens.Text()))
		case html.StartTagToken, html.SelfClosingTagToken:
			w.start(kind == html.SelfClosingTagToken)
		case html.EndTagToken:
			if err := w.end(); err != nil {
				return err
			}
		case html.CommentToken, html.DoctypeToken:
		}
	}
}

// unread are elements whose text is not read.
var unread = map[atom.Atom]bool{
	atom.Script: true, atom.Style: true, atom.Template: true, atom.Noscript: true, atom.Svg: true, atom.Iframe: true,
	atom.Nav: true, atom.Title: true,
}

// blocks are elements that begin and end a line.
var blocks = map[atom.Atom]bool{
	atom.P: true, atom.Div: true, atom.Br: true, atom.Li: true, atom.Tr: true, atom.Section: true, atom.Article: true,
	atom.Header: true, atom.Footer: true, atom.Table: true, atom.Ul: true, atom.Ol: true, atom.Pre: true, atom.Main: true,
	atom.Blockquote: true, atom.Hr: true, atom.Dt: true, atom.Dd: true, atom.Dl: true, atom.Figure: true, atom.Aside: true,
	atom.H1: true, atom.H2: true, atom.H3: true, atom.H4: true, atom.H5: true, atom.H6: true,
}

func headingLevel(name atom.Atom) int {
	for i, h := range []atom.Atom{atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6} {
		if name == h {
			return i + 1
		}
	}
	return 0
}

// start reads a start tag.
func (w *htmlWalk) start(closed bool) {
	raw, more := w.tokens.TagName()
	name := atom.Lookup(raw)
	if w.hidden != 0 {
		if name == w.hidden && !closed {
			w.depth++
		}
		return
	}
	if more && name == atom.Meta {
		w.meta()
	}
	if !closed && unread[name] {
		w.hidden, w.depth = name, 1
		return
	}
	switch {
	case blocks[name]:
		w.line()
	case name == atom.Td || name == atom.Th:
		w.space = true
	}
	switch {
	case name == atom.Li:
		w.word("-", false)
		w.space = true
	case name == atom.Pre && !closed:
		w.pre++
	case name == atom.Blockquote && !closed:
		w.quoted++
	case headingLevel(name) > 0 && !closed && w.heading == 0:
		w.heading, w.begin = headingLevel(name), w.b.Len()
	}
}

// meta reads the author and the date of a page.
func (w *htmlWalk) meta() {
	values := map[string]string{}
	for n := 0; n < 50; n++ {
		key, value, more := w.tokens.TagAttr()
		if len(value) < 1000 {
			values[string(key)] = string(value)
		}
		if !more {
			break
		}
	}
	switch strings.ToLower(firstOf(values["name"], values["property"])) {
	case "author":
		w.author = values["content"]
	case "date", "article:published_time", "dcterms.date", "last-modified":
		w.date = firstOf(w.date, values["content"])
	}
}

func (w *htmlWalk) end() error {
	raw, _ := w.tokens.TagName()
	name := atom.Lookup(raw)
	if w.hidden != 0 {
		if name == w.hidden {
			if w.depth--; w.depth == 0 {
				w.hidden = 0
			}
		}
		return nil
	}
	if level := headingLevel(name); level > 0 && w.heading > 0 {
		level, w.heading = w.heading, 0
		if err := w.onHeading(level, w.begin); err != nil {
			return err
		}
	}
	switch name {
	case atom.Pre:
		w.pre = max(0, w.pre-1)
	case atom.Blockquote:
		w.quoted = max(0, w.quoted-1)
	default:
	}
	if blocks[name] && name != atom.Li {
		w.line()
	}
	if name == atom.P {
		w.line()
	}
	return nil
}

func (w *htmlWalk) text(text string) {
	switch {
	case w.hidden == atom.Title:
		w.title = firstOf(w.title, text)
	case w.hidden != 0 || text == "":
	case w.pre > 0:
		w.mark()
		if w.marks && w.quoted > 0 {
			text = strings.ReplaceAll(text, "\n", "\n> ")
		}
		w.b.WriteString(text)
	default:
		begin := w.space || isSpace(text[0])
		w.space = false
		for word := range strings.FieldsSeq(text) {
			w.word(word, begin)
			begin = true
		}
		w.space = isSpace(text[len(text)-1]) || begin && strings.TrimSpace(text) == ""
	}
}

func isSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\f' }

func (w *htmlWalk) word(word string, space bool) {
	if written := w.b.String(); space && written != "" && !isSpace(written[len(written)-1]) {
		w.b.WriteByte(' ')
	}
	w.mark()
	w.b.WriteString(word)
	w.space = false
}

// mark begins a line of a quotation.
func (w *htmlWalk) mark() {
	if written := w.b.String(); w.marks && w.quoted > 0 && (written == "" || written[len(written)-1] == '\n') {
		w.b.WriteString("> ")
	}
}

func (w *htmlWalk) line() {
	w.b.WriteByte('\n')
	w.space = false
}

// tidyLines removes white space at the end of lines, and empty lines after an empty one.
func (c *cut) tidyLines(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	empty := 0
	for text != "" {
		var line string
		line, text = c.line(text)
		line = strings.TrimRight(line, " \t\f\u00a0")
		if line == "" {
			empty++
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
			if empty > 0 {
				b.WriteByte('\n')
			}
		}
		empty = 0
		b.WriteString(line)
	}
	return b.String()
}

// maxTag is the longest tag whose attributes are read: the tokenizer keeps a multiple of them.
const maxTag = 64 << 10

// shortTags returns HTML without the attributes of long tags, such as that of an image with its data.
func (c *cut) shortTags(text string) string {
	var b strings.Builder
	kept, end := 0, 0 // what is before kept is in b; end is the first > that is not before at
	for at := 0; at < len(text); {
		next := strings.IndexByte(text[at:], '<')
		if next < 0 || c.over(next+1) {
			break
		}
		at += next + 1
		if at > end {
			end = len(text)
			if n := strings.IndexByte(text[at:], '>'); n >= 0 {
				end = at + n
			}
		}
		if name := tagName(text[at:end]); end-at > maxTag && name > 0 {
			if c.over(end - at) {
				break
			}
			b.WriteString(text[kept : at+name])
			kept, at = end, end
		}
	}
	if kept == 0 {
		return text
	}
	b.WriteString(text[kept:])
	return b.String()
}

// longestName is how much of a tag is looked at for its name.
const longestName = 100

// tagName returns how long the name at the beginning of a tag is, with its slash, 0 if there is none.
func tagName(tag string) int {
	for i, r := range tag[:min(len(tag), longestName)] {
		isLetter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || i == 0 && r == '/' || i > 0 && r >= '0' && r <= '9'
		if !isLetter {
			return i
		}
	}
	return min(len(tag), longestName)
}
