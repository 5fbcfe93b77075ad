// Package recall is the playground: a person asks as an identity, and sees what the API would answer, and why.
package recall

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	queries "github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/explained"
	"github.com/annals-project/annals/projections/why"
)

//go:embed *.html
var templates embed.FS

// Deps are what the page calls.
type Deps struct {
	// API answers recalls. They are charged and logged as those of a key that is named console.
	API     httpx.Inner
	Explain explained.Explainer
	// Calls has the recalls that were answered before.
	Calls  why.Calls
	Logger *slog.Logger
	Plans  metering.PlanTerms
	APIURL string
	// Words finds the words of a question.
	Words *recall.Analyzer
}

// Area returns the pages.
func Area(d Deps) web.Area {
	const path = "/p/{project}/recall"
	return web.Area{Templates: templates, Routes: []web.Route{
		{Pattern: "GET " + path, Needs: web.Read, Auditors: web.AuditedTexts, Serve: d.show},
		{Pattern: "POST " + path, Needs: web.Read, Auditors: web.AuditedTexts, Live: true, Serve: d.ask},
		{Pattern: "GET " + path + "/explain", Needs: web.Read, Auditors: web.AuditedTexts, Live: true, Serve: d.explain},
	}}
}

// names are the fields of a recall, as the API names them.
var names = []string{
	"query", "identity", "limit", "level", "maxTokens", "queryTimestamp", "occurredFrom", "occurredTo", "sort",
}

// page is the question with its answer, once it was asked, and the explanation of it.
type page struct {
	Question map[string]string `json:"question"`
	// Sources are the source ids to look for, one a line.
	Sources string `json:"-"`
	// Link opens the page with the question. It asks nothing by itself: an answer may cost credits.
	Link string `json:"-"`
	Curl string `json:"-"`
	// PriceTenths is what an answer costs, nil if it costs nothing.
	PriceTenths *int64 `json:"priceTenths"`
	RequestID   string `json:"requestId,omitempty"`
	Budget      int    `json:"budget,omitempty"`
	// Answer is that of the API, and Found its content.
	Answer json.RawMessage   `json:"answer,omitempty"`
	Found  *queries.Response `json:"-"`
	// LeftOut counts what the page does not show by its name.
	LeftOut   map[string]int         `json:"leftOut,omitempty"`
	Explained *explained.Explanation `json:"explanation,omitempty"`
	// Missing is why the answer of a call is not shown. Waiting reports that the call is not in the log yet.
	Missing string `json:"missing,omitempty"`
	Waiting bool   `json:"waiting,omitempty"`

	words []string
}

// Raw is the beginning of the answer. The request log has the whole.
func (p page) Raw() string {
	return strings.ToValidUTF8(string(p.Answer[:min(len(p.Answer), 64<<10)]), "\uFFFD")
}

// page makes the page of a question, and the body of its recall.
func (d Deps) page(r *web.Request, from url.Values) (page, []byte, error) {
	p := page{Question: map[string]string{}, Sources: strings.ReplaceAll(from.Get("sources"), "\r\n", "\n")}
	link, sent := url.Values{}, map[string]any{}
	for _, name := range names {
		value := strings.TrimSpace(from.Get(name))
		if value == "" {
			continue
		}
		p.Question[name] = value
		link.Set(name, value)
		sent[name] = value
		if n, err := strconv.Atoi(value); err == nil && (name == "limit" || name == "maxTokens") {
			sent[name] = n
		}
	}
	if price := d.Plans.Of(r.Membership.Plan).RecallTenths; price > 0 {
		p.PriceTenths = &price
	}
	p.words = d.Words.Words(p.Question["query"])
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false) // "<" stays "<"
	err := encoder.Encode(sent)
	p.Link = r.ProjectPath("recall") + "?" + link.Encode()
	p.Curl = `curl -sS '` + d.APIURL + auth.Prefix + `/recall' -H "Authorization: Bearer $ANNALS_PROJECT_KEY" \` + "\n" +
		`  -H 'Content-Type: application/json' -d '` + strings.ReplaceAll(strings.TrimSpace(body.String()), "'", `'\''`) + "'"
	return p, bytes.TrimSpace(body.Bytes()), err
}

// Word is a term of the explanation as people read it: the stem of a word stands for other forms of it.
func (p page) Word(term string) string {
	for _, t := range p.Explained.Question.Terms {
		if t.Term == term && t.StemOf != "" {
			return fmt.Sprintf(otherForms, t.StemOf)
		}
	}
	return term
}

// otherForms names the stem of a word.
const otherForms = "other forms of %s"

// Mark marks the words of the question, and other forms of them, in a text.
func (p page) Mark(text string) template.HTML {
	var out strings.Builder
	for len(text) > 0 {
		first, _ := utf8.DecodeRuneInString(text)
		inWord := isWord(first)
		end := strings.IndexFunc(text, func(c rune) bool { return isWord(c) != inWord })
		if end < 0 {
			end = len(text)
		}
		part := template.HTMLEscapeString(text[:end])
		if inWord && p.asks(strings.ToLower(text[:end])) {
			part = "<mark>" + part + "</mark>"
		}
		out.WriteString(part)
		text = text[end:]
	}
	return template.HTML(out.String()) //nolint:gosec // each part is escaped
}

func isWord(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) || unicode.IsMark(c) }

// asks reports whether a word is one of the question, or its beginning or end is up to three letters away from one.
func (p page) asks(word string) bool {
	for _, w := range p.words {
		short, long := min(len(w), len(word)), max(len(w), len(word))
		if w == word || short >= 4 && long-short <= 3 && w[:short] == word[:short] {
			return true
		}
	}
	return false
}
