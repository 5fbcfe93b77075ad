// Package recall is the playground: a person asks as an identity, and sees what the API would answer, and why.
package recall

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/shorten"
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

const (
	endpoint = auth.Prefix + "/recall"
	// justNow is how long the row of a call may take until it is in the log.
	justNow = 10 * time.Second
	// notStored, tooLong and refused are why a call has no answer to show.
	notStored = "The answer of this call is not stored, or no longer: bodies of calls expire, and they go with a data " +
		"point that is deleted and with a person who is erased."
	tooLong = "The answer of this call was so long that the log kept only the beginning of it."
	refused = "This call was refused."
)

// limits are what a page shows of an answer.
var limits = shorten.Limits{Whole: 1 << 20, Most: 4 << 20, Text: 64 << 10, Value: 2000, Entries: 100}

// pageBytes is the memory of a byte of an answer, besides that of its page: as JSON, decoded, and marked.
const pageBytes = 6

// answered is a recall with its answer, as the page shows it.
type answered struct {
	Body, Answer json.RawMessage
	LeftOut      map[string]int
}

// show is the form, filled from the URL, or the recall that the URL names.
func (d Deps) show(r *web.Request) error {
	if call := r.URL.Query().Get("call"); call != "" {
		return d.answered(r, call)
	}
	p, _, err := d.page(r, r.URL.Query())
	if err != nil {
		return err
	}
	return r.Render("recall.html", p)
}

// ask recalls as a call of the API, and leads to the address of that call.
func (d Deps) ask(r *web.Request) error {
	p, body, err := d.page(r, r.PostForm)
	if err != nil {
		return err
	}
	text := shorten.New(r.Context(), limits)
	answer, err := d.API.Do(r.Context(), httpx.InnerCall{
		As: r.Command().Principal, Method: http.MethodPost,
		Path: endpoint, ContentType: "application/json", Body: body,
		To: text, Values: httpx.Values{Total: int64(limits.Whole), Each: 4 * int64(limits.Value)},
	})
	if p.RequestID = answer.RequestID.String(); err != nil {
		return r.Invalid(err, "recall.html", p)
	}
	was := answered{body, text.Bytes(), map[string]int{}}
	for _, counts := range []map[string]int{answer.LeftOut, text.LeftOut()} {
		for name, n := range counts {
			was.LeftOut[name] += n
		}
	}
	kept, err := json.Marshal(was)
	if err == nil {
		err = r.KeepOnce(answer.RequestID, r.ProjectPath("recall"), string(kept))
	}
	if err != nil { // the log has it in a moment
		d.Logger.WarnContext(r.Context(), "answer of a recall not kept", "requestId", r.ID(), "err", err)
	}
	r.Redirect(r.ProjectPath("recall") + "?call=" + p.RequestID)
	return nil
}

// answered shows a recall that was answered: the first time what was kept of it, and then what the request log has.
func (d Deps) answered(r *web.Request, call string) error {
	id, err := uuid.Parse(call)
	if err != nil {
		return noCall()
	}
	var was answered
	missing, waiting := "", false
	kept, found, err := r.TakeOnce(id)
	switch {
	case err != nil:
	case found:
		err = json.Unmarshal([]byte(kept), &was)
	default:
		was, missing, waiting, err = d.logged(r, id)
	}
	if err != nil {
		return err
	}
	question, err := fieldsOf(was.Body)
	if err != nil {
		return err
	}
	p, body, err := d.page(r, question)
	if err != nil {
		return err
	}
	p.RequestID, p.Missing, p.Waiting = id.String(), missing, waiting
	if len(was.Answer) == 0 {
		return r.Render("recall.html", p)
	}
	p.Answer, p.LeftOut, p.Budget = was.Answer, was.LeftOut, d.budget(r, body)
	if err := r.Reserve(pageBytes * int64(len(p.Answer))); err != nil {
		return r.Invalid(err, "recall.html", p)
	}
	if err := json.Unmarshal(p.Answer, &p.Found); err != nil {
		return err
	}
	return r.Render("recall.html", p)
}

func noCall() error {
	return fault.New(fault.NotFound, fault.CodeNotFound, "the project has no such recall")
}

// logged reads a recall from the request log, with why its answer is missing. waiting is true if the call was made a
// moment ago, and is not in the log yet: then the page loads itself again.
func (d Deps) logged(r *web.Request, id uuid.UUID) (was answered, missing string, waiting bool, err error) {
	found, err := d.Calls.Get(r.Context(), r.Project.Project, id, r.Now())
	if err != nil && httpx.Fault(err).Kind == fault.NotFound {
		seconds, nanos := id.Time().UnixTime()
		age := r.Now().Sub(time.Unix(seconds, nanos))
		if id.Version() != 7 || age < -justNow || age >= justNow {
			return was, "", false, noCall()
		}
		r.Writer().Header().Set("Refresh", "1")
		return was, "", true, nil
	}
	if err != nil {
		return was, "", false, err
	}
	if found.Endpoint != http.MethodPost+" "+endpoint {
		return was, "", false, noCall()
	}
	payload := found.Logged.Payload
	if payload == nil {
		return was, notStored, false, nil
	}
	if !payload.RequestTruncated {
		was.Body = payload.Request
	}
	switch {
	case found.Status != http.StatusOK:
		return was, refused, false, nil
	case payload.ResponseTruncated:
		return was, tooLong, false, nil
	}
	text := shorten.New(r.Context(), limits)
	if _, err := text.Write(payload.Response); err != nil {
		return was, "", false, err
	}
	was.Answer, was.LeftOut = text.Bytes(), text.LeftOut()
	return was, "", false, nil
}

// fieldsOf are the fields of the form that a recall was asked with.
func fieldsOf(body []byte) (url.Values, error) {
	fields, sent := url.Values{}, map[string]any{}
	if len(body) == 0 {
		return fields, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&sent); err != nil {
		return nil, fmt.Errorf("read a recall: %w", err)
	}
	for _, name := range names {
		switch value := sent[name].(type) {
		case string:
			fields.Set(name, value)
		case json.Number:
			fields.Set(name, value.String())
		}
	}
	return fields, nil
}

// budget is the tokens that an answer may have: those that it asks for, up to the ceiling of the plan.
func (d Deps) budget(r *web.Request, body []byte) int {
	q, err := queries.ParseQuery(body)
	if err != nil {
		return 0 // it was answered, so this does not happen
	}
	return min(q.Budget, d.Plans.Of(r.Membership.Plan).EvidenceCeiling)
}

// explain shows how the question is answered, and where it lost sources. It costs nothing.
func (d Deps) explain(r *web.Request) error {
	p, body, err := d.page(r, r.URL.Query())
	if err != nil {
		return err
	}
	found, err := d.Explain.Explain(r.Context(), explained.Request{
		Organization: r.Membership.Organization.String(), Project: r.Project.Project.Slug, Recall: body,
		SourceIDs: strings.FieldsFunc(p.Sources, func(c rune) bool { return c == '\n' }),
	})
	if err != nil {
		return r.Invalid(err, "recall.html", p)
	}
	p.Explained, p.Budget = &found, found.Budget
	return r.Render("recall.html", p)
}
