package docs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"

	"github.com/annals-project/annals/domain/recall"
)

// Page is a page of the documentation, in Markdown.
type Page struct {
	ID, Title, Group, Summary string
	// Text links to other files of the tree, relative to File.
	Text, File string
}

// library is all pages, in the order of the index.
type library struct {
	files   fs.FS
	address string // of the console
	pages   []*Page
	byID    map[string]*Page
	byFile  map[string]*Page
	index   func() *index
	html    sync.Map // id → the page as HTML, made when it is first opened
}

// indexFile lists the pages: a table for each group, whose rows link to pages and say what is there.
const indexFile = "docs/README.md"

var (
	comment   = regexp.MustCompile(`(?m)^<!--.*-->\n`)
	tableHead = regexp.MustCompile(`^\| *([^|]*[^| ]) *\| *\|$`)
	tableRow  = regexp.MustCompile(`^\| *(\[.*?) *\| (.*) \|$`)
	linked    = regexp.MustCompile("(?s)```.*?\n *```|`[^`\n]*`" + `|!?\[([^\]]*)\]\(([^)\s]+)\)`)
	headings  = regexp.MustCompile(`(?m)^#{1,6} .*$`)
	fences    = regexp.MustCompile("(?m)^ *```.*$")
	heading   = regexp.MustCompile(`^(#{1,6}) +(.+)$`)
	notAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	linkText  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// newLibrary reads the pages of the tree that the index lists, and adds others.
func newLibrary(files fs.FS, address string, others ...Page) (*library, error) {
	l := &library{files: files, address: address, byID: map[string]*Page{}, byFile: map[string]*Page{}}
	list, err := fs.ReadFile(files, indexFile)
	if err != nil {
		return nil, err
	}
	group := ""
	for line := range strings.Lines(string(list)) {
		line = strings.TrimSpace(line)
		if head := tableHead.FindStringSubmatch(line); head != nil {
			group = strings.ToUpper(head[1][:1]) + head[1][1:]
		} else if row := tableRow.FindStringSubmatch(line); row != nil {
			for _, link := range linked.FindAllStringSubmatch(row[1], -1) {
				summary := linkText.ReplaceAllString(row[2], "$1")
				if err := l.load(path.Join(path.Dir(indexFile), link[2]), group, summary); err != nil {
					return nil, err
				}
			}
		}
	}
	for i := range others {
		l.add(&others[i])
	}
	l.index = sync.OnceValue(func() *index { return newIndex(l) })
	return l, nil
}

// load adds a page of the tree, unless it is known, no page or not in this program.
func (l *library) load(file, group, summary string) error {
	if path.Ext(file) != ".md" || l.byFile[file] != nil || file == indexFile {
		return nil
	}
	text, err := fs.ReadFile(l.files, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	id := strings.ToLower(strings.TrimSuffix(path.Base(file), ".md"))
	if id == "readme" {
		id = strings.ToLower(path.Base(path.Dir("annals/" + file)))
	}
	p := &Page{ID: id, Group: group, Summary: summary, Text: comment.ReplaceAllString(string(text), ""), File: file}
	if p.Title = sectionsOf(p)[0].Title; p.Title == "" {
		return fmt.Errorf("%s has no title", file)
	}
	l.add(p)
	return nil
}

func (l *library) add(p *Page) {
	l.pages = append(l.pages, p)
	l.byID[p.ID], l.byFile[p.File] = p, p
}

// target is the path on the console of a link in a file of the tree, "" if it leads to nothing that the console serves.
func (l *library) target(from, to, suffix string) string {
	if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") || strings.HasPrefix(to, "/") {
		return to
	}
	file, anchor, _ := strings.Cut(to, "#")
	if anchor != "" {
		anchor = "#" + anchor
	}
	if file != "" {
		file = path.Join(path.Dir(from), file)
	} else {
		file = from
	}
	if p := l.byFile[file]; p != nil {
		return prefix + p.ID + suffix + anchor
	}
	if file == indexFile {
		return "/docs" + suffix + anchor
	}
	if info, err := fs.Stat(l.files, file); err == nil && !info.IsDir() {
		return filePrefix + file
	}
	return ""
}

// relinked is a text of a page whose links lead to the console. What is not there becomes its name.
func (l *library) relinked(p *Page, text, address, suffix string) string {
	return linked.ReplaceAllStringFunc(text, func(found string) string {
		m := linked.FindStringSubmatch(found)
		if m[2] == "" {
			return found
		}
		target := l.target(p.File, m[2], suffix)
		switch {
		case target == "":
			return m[1] + " (`" + path.Join(path.Dir(p.File), m[2]) + "` of the source)"
		case strings.HasPrefix(target, "/"):
			target = address + target
		}
		text := strings.TrimSuffix(found, "("+m[2]+")")
		if to := l.byFile[path.Join(path.Dir(p.File), m[2])]; to != nil && m[1] == path.Base(m[2]) {
			text = "[" + to.Title + "]"
		}
		return text + "(" + target + ")"
	})
}

// Markdown is a page for programs: its links lead to pages in Markdown, with their whole addresses.
func (l *library) markdown(p *Page, text string) string { return l.relinked(p, text, l.address, ".md") }

// url is the address of a page, or of a section of it.
func (l *library) url(id string) string { return l.address + prefix + id }

var converter = goldmark.New(goldmark.WithParserOptions(parser.WithAutoHeadingID()), goldmark.WithExtensions(
	extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), extension.Strikethrough))

// boxes let wide tables and long lines scroll, by keyboard too. Text has its angles escaped.
var boxes = strings.NewReplacer(
	"<table>", `<div class="scroll" tabindex="0"><table>`, "</table>", "</table></div>",
	"<pre><code>", `<pre tabindex="0"><code>`, "<pre><code ", `<pre class="copy" tabindex="0"><code `)

// toHTML is a page for people.
func (l *library) toHTML(p *Page) (string, error) {
	if known, ok := l.html.Load(p.ID); ok {
		return known.(string), nil //nolint:forcetypeassert // as it was stored
	}
	var out bytes.Buffer
	names := parser.WithContext(parser.NewContext(parser.WithIDs(&anchors{})))
	if err := converter.Convert([]byte(l.relinked(p, p.Text, "", "")), &out, names); err != nil {
		return "", err
	}
	made := boxes.Replace(out.String())
	l.html.Store(p.ID, made)
	return made, nil
}

// anchors names headings as forges do. It implements parser.IDs.
type anchors struct{ seen map[string]int }

// Generate implements parser.IDs.
func (a *anchors) Generate(title []byte, _ ast.NodeKind) []byte { return []byte(a.name(string(title))) }

// Put implements parser.IDs.
func (a *anchors) Put([]byte) {}

func (a *anchors) name(title string) string {
	title = strings.ToLower(linkText.ReplaceAllString(title, "$1"))
	name := strings.ReplaceAll(notAnchor.ReplaceAllString(title, ""), " ", "-")
	if a.seen == nil {
		a.seen = map[string]int{}
	}
	n := a.seen[name]
	a.seen[name]++
	if n > 0 {
		return fmt.Sprintf("%s-%d", name, n)
	}
	return name
}

// section is a heading of a page with the text below it.
type section struct {
	Anchor, Title string

	page  *Page
	level int
	text  string
}

// id names the section for programs: that of its page, and its anchor unless it is the first.
func (s section) id() string {
	if s.level == 1 {
		return s.page.ID
	}
	return s.page.ID + "#" + s.Anchor
}

// name is the title of the section with that of its page.
func (s section) name() string {
	if s.level == 1 {
		return s.page.Title
	}
	return s.page.Title + ": " + s.Title
}

// sectionsOf cuts a page at its headings.
func sectionsOf(p *Page) (list []section) {
	list = []section{{page: p, level: 1}}
	var names anchors
	fenced := false
	for line := range strings.Lines(p.Text) {
		bare := strings.TrimSpace(line)
		if strings.HasPrefix(bare, "```") {
			fenced = !fenced
		}
		if found := heading.FindStringSubmatch(bare); found != nil && !fenced {
			s := section{page: p, Anchor: names.name(found[2]), Title: plain(found[2]), level: len(found[1])}
			if last := &list[len(list)-1]; strings.TrimSpace(last.text) == "" && last.Title == "" {
				*last = s
			} else {
				list = append(list, s)
			}
		}
		list[len(list)-1].text += line
	}
	return list
}

var marks = strings.NewReplacer("**", "", "`", "", " | ", " · ", "|---", "", "|", "")

// plain is a text without the marks of Markdown.
func plain(text string) string {
	text = fences.ReplaceAllString(text, "")
	return strings.Join(strings.Fields(marks.Replace(linkText.ReplaceAllString(text, "$1"))), " ")
}

const (
	// maxQuery is the most bytes of a query, and maxTerms how many of its terms are looked for.
	maxQuery = 400
	maxTerms = 64
	// maxOfPage is how many sections of one page a search finds.
	maxOfPage = 3
	// excerptBytes is about how long an excerpt is.
	excerptBytes = 300
	// titleWeight is how many times the words of a heading count, and pageWeight those of the title of its page.
	titleWeight = 5
	pageWeight  = 2
	// innerWeight is that of the pages for who changes the program, which touch on everything.
	innerWeight = .6
	// aliasWeight is that of a word that means the same as one of the query.
	aliasWeight = .9
	// referenceWeight is that of a section of the reference, which has the words of all guides.
	referenceWeight = .75
	// named is the weight of a section whose heading has the query as it was typed, and of the page of settings for one.
	named = 2
)

// The constants of BM25.
const (
	saturation = 1.2
	lengthNorm = 0.6
)

// index finds sections by their words (BM25).
type index struct {
	words    *recall.Analyzer
	sections []section
	lengths  []float64
	average  float64
	postings map[string][]posting
}

type posting struct{ section, count int }

// newIndex reads all sections of a library.
func newIndex(l *library) *index {
	x := &index{words: recall.NewAnalyzer(), postings: map[string][]posting{}}
	for _, p := range l.pages {
		for _, s := range sectionsOf(p) {
			n := len(x.sections)
			terms := x.words.Terms(plain(s.text))
			for range titleWeight {
				terms = append(terms, x.words.Terms(s.Title)...)
			}
			for range pageWeight {
				terms = append(terms, x.words.Terms(p.Title)...)
			}
			if s.level == 1 {
				terms = append(terms, x.words.Terms(p.Summary)...)
			}
			counts := map[string]int{}
			for _, term := range terms {
				counts[term]++
			}
			for term, count := range counts {
				x.postings[term] = append(x.postings[term], posting{n, count})
			}
			x.sections, x.lengths = append(x.sections, s), append(x.lengths, float64(len(terms)))
			x.average += float64(len(terms))
		}
	}
	x.average /= float64(max(1, len(x.sections)))
	return x
}

// aliases are words of users for what the pages call something else, in the words of the pages.
var aliases = map[string]string{
	"delete": "deletion", "forget": "delete deletion", "remove": "delete deletion", "port": "addresses",
	"scrape": "metrics", "prometheus": "metrics", "private": "audience", "permissions": "rights", "docker": "compose",
	"behind": "front", "results": "result rank", "ranked": "ranks",
}

// score scores the sections that have words of a query, or of what means the same, and returns how rare the words are.
// A section with more of the words is better than one with some of them often.
func (x *index) score(query string) (scores map[int]float64, rarity map[string]float64) {
	scores, rarity = map[int]float64{}, map[string]float64{}
	matched, all := map[int]float64{}, 0.0
	for _, word := range strings.Fields(strings.ToLower(query))[:min(len(strings.Fields(query)), maxTerms)] {
		best, most := map[int]float64{}, 0.0
		for i, text := range []string{word, aliases[strings.Trim(word, ".,?!")]} {
			for _, term := range x.words.Terms(text) {
				has := x.postings[term]
				if 2*len(has) > len(x.sections) {
					continue
				}
				rare := math.Log(1 + (float64(len(x.sections))-float64(len(has))+.5)/(float64(len(has))+.5))
				rarity[term], most = rare, max(most, rare)
				if i > 0 {
					rare *= aliasWeight
				}
				for _, p := range has {
					best[p.section] = max(best[p.section], rare*x.frequency(p))
				}
			}
		}
		for section, score := range best {
			scores[section] += score
			matched[section] += most
		}
		all += most
	}
	for section := range scores {
		scores[section] *= x.weight(section) * (.5 + .5*matched[section]/all)
	}
	return scores, rarity
}

// frequency is what the occurrences of a term in a section count.
func (x *index) frequency(p posting) float64 {
	count := float64(p.count)
	return count * (saturation + 1) / (count + saturation*(1-lengthNorm+lengthNorm*x.lengths[p.section]/x.average))
}

// weight is that of a section by its page.
func (x *index) weight(section int) float64 {
	switch x.sections[section].page.Group {
	case referenceGroup:
		return referenceWeight
	case "Why it is so":
		return innerWeight
	}
	if strings.HasPrefix(x.sections[section].Title, "Annals") { // an alert
		return innerWeight
	}
	switch x.sections[section].page.ID {
	case "glossary", "changelog", "limits":
		return innerWeight
	}
	return 1
}

// found is a section that has words of a query, with an excerpt.
type found struct {
	section

	excerpt string
}

// search finds at most so many sections, the best first.
func (x *index) search(query string, limit int) (list []found) {
	if len(query) > maxQuery {
		query = strings.ToValidUTF8(query[:maxQuery], "")
	}
	scores, rarity := x.score(query)
	order := make([]int, 0, len(scores))
	for n := range scores {
		isSetting := strings.Contains(query, "ANNALS_") && x.sections[n].page.ID == "settings"
		if isSetting || strings.Contains(strings.ToLower(x.sections[n].Title), strings.ToLower(query)) {
			scores[n] *= named
		}
		order = append(order, n)
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b)) })
	ofPage := map[*Page]int{}
	for _, n := range order {
		s := x.sections[n]
		if ofPage[s.page]++; ofPage[s.page] > maxOfPage {
			continue
		}
		if list = append(list, found{s, x.excerpt(s, rarity)}); len(list) == limit {
			break
		}
	}
	return list
}

// excerpt is the paragraph or row of a section that has the rarest words of a query.
func (x *index) excerpt(s section, rarity map[string]float64) (best string) {
	most := -1.0
	for paragraph := range strings.SplitSeq(strings.ReplaceAll(s.text, "\n|", "\n\n|"), "\n\n") {
		text := plain(headings.ReplaceAllString(paragraph, ""))
		if strings.Trim(text, "- ·") == "" {
			continue
		}
		terms := x.words.Terms(text)
		slices.Sort(terms)
		score := 0.0
		for _, term := range slices.Compact(terms) {
			score += rarity[term]
		}
		if score > most {
			best, most = text, score
		}
	}
	return cut(strings.Trim(best, " ·"), excerptBytes)
}

// cut shortens a text at a space.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for !utf8.RuneStart(text[most]) {
		most--
	}
	if space := strings.LastIndexByte(text[:most], ' '); space > most/2 {
		most = space
	}
	return text[:most] + "…"
}
