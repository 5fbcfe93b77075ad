package web

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/httpx"
)

//go:embed templates error.html archived.html confirm.html
var layouts embed.FS

// area is an Area with its templates parsed, by file.
type area struct{ templates map[string]*template.Template }

// parse parses each template of an area together with the layout and the parts that all pages share.
func (s *Site) parse(of fs.FS) (*area, error) {
	base, err := template.New("layout.html").Funcs(s.funcs()).ParseFS(layouts, "templates/*.html")
	if err != nil || of == nil {
		return &area{}, err
	}
	files, err := fs.Glob(of, "*.html")
	if slices.Contains(files, "parts.html") { // what the pages of the area share
		base = template.Must(base.ParseFS(of, "parts.html"))
	}
	own := &area{map[string]*template.Template{}}
	for _, file := range files {
		if own.templates[file], err = template.Must(base.Clone()).ParseFS(of, file); err != nil {
			return nil, fmt.Errorf("parse %s: %w", file, err)
		}
	}
	return own, err
}

// view is what a template sees: the request with its methods, and the data of the page.
type view struct {
	*Request

	Data any
}

// Problem is what went wrong with the form that the page shows again, "" for nothing.
func (v view) Problem() string { return v.problem }

// Notice is what the change before this page did, "" for nothing.
func (v view) Notice() string { return words.done[v.URL.Query().Get("done")] }

// Gone reports that what the page shows once was shown, or is shown no longer.
func (v view) Gone() bool { return v.gone }

// MayWrite reports whether the person may change data of the project now.
func (v view) MayWrite() bool { return v.May(Write) && !v.Project.Archived }

// MayManage reports whether the person may change the settings of the project, and MayAdminister those of the
// organization. An auditor sees both and changes neither.
func (v view) MayManage() bool { return v.May(Manage) }

// MayAdminister is MayManage for the organization.
func (v view) MayAdminister() bool { return v.May(Admin) }

// Unknown reports that the service could not find out who is signed in.
func (v view) Unknown() bool { return v.unknown }

// Instance distinguishes one deployment from another.
func (v view) Instance() Instance { return v.site.Instance }

// Time shows a time in the zone of the reader.
func (v view) Time(at any) template.HTML { return timeTag(at, v.Zone()) }

// Render writes a page: the template of a file of the area, with data as .Data. With ?format=json it writes the data
// instead, so data holds nothing that the person may not see.
//
// It does not answer a form: that is Form, Invalid, or a redirect.
func (r *Request) Render(file string, data any) error {
	if err := r.mayAnswer(); err != nil {
		return err
	}
	return r.write(file, data)
}

func (r *Request) write(file string, data any) error {
	if r.Format() == "json" {
		return r.json(data)
	}
	page, ok := r.area.templates[file]
	if !ok {
		return fmt.Errorf("there is no template %s", file)
	}
	body := made{r: r}
	if err := page.Execute(&body, view{r, data}); err != nil {
		return fmt.Errorf("page %s: %w", file, err)
	}
	out, err := r.deliver(body.length)
	if err != nil {
		return err
	}
	r.header("text/html; charset=utf-8", body.length)
	for _, part := range body.parts {
		if _, err := out.Write(part.Bytes()); err != nil {
			return nil //nolint:nilerr // a browser that left reads no more
		}
	}
	return nil
}

// Invalid shows a form again with what is wrong with its input: a fault whose status is 4xx. Other errors are returned.
func (r *Request) Invalid(err error, file string, data any) error {
	f := httpx.Fault(err)
	if httpx.Status(f.Kind) >= http.StatusInternalServerError {
		return err
	}
	r.problem, r.status = f.Msg, httpx.Status(f.Kind)
	return r.write(file, data)
}

// Form shows a form, with what is wrong with what was sent unless err is nil. Errors of the service are returned. A
// form that is answered by it changed nothing: it shows what it would do.
func (r *Request) Form(err error, file string, data any) error {
	if err != nil {
		return r.Invalid(err, file, data)
	}
	return r.write(file, data)
}

// Format is the format that the URL asks for: "", "json" or "csv".
func (r *Request) Format() string { return r.URL.Query().Get("format") }

func (r *Request) json(data any) error {
	body, err := r.indented(data)
	if err != nil {
		return err
	}
	return r.send("application/json; charset=utf-8", body)
}

// policy lets a page load what the console serves, and nothing else.
const policy = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"

func (r *Request) header(contentType string, length int) {
	h := r.w.Header()
	h.Set("Content-Type", contentType)
	if length > 0 && h.Get("Content-Encoding") == "" {
		h.Set("Content-Length", strconv.Itoa(length))
	}
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Content-Security-Policy", policy)
	if !r.route.Leaves {
		h.Set("Content-Security-Policy", policy+"; form-action 'self'")
	}
	if r.status != 0 {
		r.w.WriteHeader(r.status)
	}
}

// refreshSeconds is after how long a page that waits for the database loads itself again.
const refreshSeconds = "5"

// faultPage is the page of a fault. Elsewhere is where to open the console, "" for here; Retried reports that the page
// loads itself again.
type faultPage struct {
	Status                         int
	Code, Heading, Message, Advice string
	Elsewhere                      string
	Retried                        bool
}

// fail shows the page of an error, with what to do.
func (r *Request) fail(err error) {
	f := r.site.fault(r, err)
	if note := noteOf(r.Request); note != nil {
		note.Code = f.Code
	}
	if r.route.Refuse != nil {
		_ = r.route.Refuse(r, err) // a program that left reads no more
		return
	}
	r.status, r.area = httpx.Status(f.Kind), r.site.areas[0]
	if f.Kind == fault.Unavailable {
		r.w.Header().Set("Retry-After", "2")
	}
	away := r.Method == http.MethodGet && f.Code == fault.CodeTimeout && !r.route.Public
	if away { // to read again changes nothing
		r.status = http.StatusServiceUnavailable
		f = fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "%s", words.away)
		r.w.Header().Set("Refresh", refreshSeconds)
	}
	if strings.HasPrefix(r.Request.Header.Get("Accept"), "application/json") || r.Format() == "json" {
		_ = r.json(map[string]any{"code": f.Code, "status": r.status, "message": f.Msg})
		return
	}
	data := faultPage{
		Status: r.status, Code: f.Code, Heading: words.headings[r.status], Message: f.Msg, Advice: words.help[f.Code],
		Retried: away,
	}
	if data.Heading == "" {
		data.Heading = http.StatusText(r.status)
	}
	if f.Code == codeForeignForm {
		data.Elsewhere = r.site.URL
	}
	if away {
		data.Advice = ""
	}
	if err := r.Render("error.html", data); err != nil {
		http.Error(r.w, f.Msg, r.status)
	}
}

// Page is a page of a template, whose data is loaded for each request.
type Page[T any] struct {
	file string
	load func(*Request) (T, error)
}

// NewPage returns the page of a template of the area.
func NewPage[T any](file string, load func(*Request) (T, error)) Page[T] { return Page[T]{file, load} }

// Show writes the page.
func (p Page[T]) Show(r *Request) error { return p.Again(r, nil) }

// Again writes the page with what is wrong with a form of it, nil for nothing. It returns errors that are no fault of
// the input.
func (p Page[T]) Again(r *Request, wrong error) error {
	if wrong != nil && httpx.Status(httpx.Fault(wrong).Kind) >= http.StatusInternalServerError {
		return wrong
	}
	data, err := p.load(r)
	if err != nil {
		return err
	}
	return r.Form(wrong, p.file, data)
}

// After serves a form of the page: do makes the change and returns where to go on to. There a notice shows what was
// done, by a key of words. If do fails, the page is shown again.
func (p Page[T]) After(done string, do func(*Request) (path string, err error)) func(*Request) error {
	return func(r *Request) error {
		path, err := do(r)
		if err != nil {
			return p.Again(r, err)
		}
		return r.Done(path, done)
	}
}

// funcs are what templates call besides the methods of a view.
func (s *Site) funcs() template.FuncMap {
	return template.FuncMap{
		"path":   Path,
		"asset":  s.static.url,
		"count":  count,
		"total":  Total[int64],
		"cut":    Cut,
		"join":   strings.Join,
		"bytes":  size,
		"credit": credits,
		"list":   func(items ...string) []string { return items },
		"dict":   dict,
		"once":   onceField,
		"token":  formToken,
		"ask":    func(key string) string { return words.ask[key] },
		"plural": func(n int, one, many string) string {
			if n == 1 {
				return one
			}
			return many
		},
	}
}

// dict makes the data of a shared part from names and values in turn.
func dict(pairs ...any) (map[string]any, error) {
	d := make(map[string]any, len(pairs)/2)
	for pair := range slices.Chunk(pairs, 2) {
		name, ok := pair[0].(string)
		if !ok || len(pair) < 2 {
			return nil, fmt.Errorf("dict wants names and values, and got %v", pairs)
		}
		d[name] = pair[1]
	}
	return d, nil
}

// none is what is shown where there is no value.
const none = "–"

// value is what a pointer points to, or a value itself; nil for a pointer to nothing.
func value(of any) any {
	if v := reflect.Indirect(reflect.ValueOf(of)); v.IsValid() {
		return v.Interface()
	}
	return nil
}

// count shows a number with separators of thousands.
func count(n any) string {
	switch n := value(n).(type) {
	case int:
		return humanize.Comma(int64(n))
	case int64:
		return humanize.Comma(n)
	case uint64:
		return humanize.Comma(int64(min(n, math.MaxInt64))) //nolint:gosec // not above
	}
	return none
}

// size shows a number of bytes.
func size(n any) string {
	switch n := value(n).(type) {
	case int:
		return size(int64(n))
	case int64:
		return humanize.IBytes(uint64(max(n, 0))) //nolint:gosec // not negative
	case uint64:
		return humanize.IBytes(n)
	}
	return none
}

// credits shows credits from tenths or from the decimal of an answer.
func credits(n any) string {
	switch n := value(n).(type) {
	case int64:
		if n%10 != 0 {
			return humanize.Comma(n/10) + "." + strconv.FormatInt(max(n%10, -n%10), 10)
		}
		return humanize.Comma(n / 10)
	case json.Number:
		return cmp.Or(n.String(), none)
	}
	return none
}

// timeTag shows an instant in a zone, and in UTC when pointed at.
func timeTag(at any, zone *time.Location) template.HTML {
	t, _ := value(at).(time.Time)
	if t.IsZero() {
		return none
	}
	utc, shown := t.UTC().Format("2006-01-02 15:04:05.999")+" UTC", t.In(zone).Format("2006-01-02 15:04:05")
	if zone == time.UTC {
		shown += " UTC"
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`, //nolint:gosec // digits alone
		t.UTC().Format(time.RFC3339Nano), utc, shown))
}

// Cut shortens a text to some characters for a table.
func Cut(text string, most int) string {
	n := 0
	for i := range text {
		if n++; n > most {
			return strings.TrimSpace(text[:i]) + "…"
		}
	}
	return text
}

type messages struct {
	foreignForm, signInFirst, needs, unverified, guest, wrongPlace, formSent, away, noTexts string
	// headings are those of pages of faults, by status.
	headings map[int]string
	// ask is what is asked before a change, by the key that Request.AskFirst takes.
	ask map[string]string
	// done is the notice of a page after a change, by the key that Request.Done takes.
	done map[string]string
	// help is what to do after a fault, by its code.
	help map[string]string
}

// words are the messages of the console that are in no template. A translation replaces them and the templates.
var words = messages{
	foreignForm: "this form was not sent from a page of this console, so nothing was changed. This console is at %s: " +
		"open it there, and send the form again",
	away: "the database does not answer. Nothing was changed. This page tries again every few seconds",
	headings: map[int]string{
		http.StatusBadRequest:            "This cannot be done as it was sent",
		http.StatusUnauthorized:          "Sign in first",
		http.StatusForbidden:             "You may not do this",
		http.StatusNotFound:              "There is no such page",
		http.StatusMethodNotAllowed:      "This address takes no such request",
		http.StatusConflict:              "It is not as it was",
		http.StatusRequestEntityTooLarge: "That is too much at once",
		http.StatusTooManyRequests:       "Too often",
		http.StatusInternalServerError:   "It failed",
		http.StatusServiceUnavailable:    "Not available now",
	},
	ask: map[string]string{
		"archive":         "Archive this project? Its keys and webhooks are refused until it is unarchived.",
		"remove-member":   "Remove this person from the organization? It ends at once.",
		"password":        "Make a link by which another password is set? What the person signs in with ends when it is used.",
		"second-factor":   "End the second factor and all sessions of this person?",
		"management-key":  "Replace the management key? The present one is refused at once.",
		"delete-audience": "Delete this audience? Nobody reads its data points then.",
	},
	signInFirst: "you are not signed in: sign in, then send the form again",
	needs:       "you may not do this: it needs the right %q here. An Admin of the organization can give it to you",
	unverified: "you did not prove the address that your organization invited, and another one let you in: use \"Forgot " +
		"your password?\" on the page to sign in, or ask an Admin of yours or who operates this service for a link",
	guest: "you are a member of no organization: accept an offer first, on the page \"Offers\"",
	noTexts: "auditors of this organization see no texts, and this page has some: an Owner can allow it under " +
		"\"Organization\"",
	formSent: "this form was sent already, so it did nothing again: it may still be worked on. Look at the page of what " +
		"it changes before you fill it in once more",
	wrongPlace: "the place in the list is wrong: open the list again",
	done: map[string]string{
		"saved":    "Saved.",
		"created":  "Created.",
		"deleted":  "Deleted.",
		"revoked":  "Revoked. It is refused from now on.",
		"sent":     "Sent.",
		"retried":  "It is being tried again.",
		"ended":    "Ended.",
		"left":     "You left the organization.",
		"declined": "Declined.",
	},
	help: map[string]string{
		fault.CodeNotFound:             "Check the address, or look for an id with the search box.",
		fault.CodeInsufficientScope:    "Ask an Admin of the organization.",
		fault.CodeServiceUnavailable:   "Nothing was changed. Try again in a moment; Health shows what is wrong.",
		fault.CodeTimeout:              "It is not known whether it took effect. Open the page again to see.",
		fault.CodeInternal:             "Quote the id of the request to who runs this service.",
		fault.CodeConflict:             "Open the page again: it has changed since you opened it.",
		fault.CodeContentTooLarge:      "Send less at once.",
		fault.CodeProjectArchived:      "Unarchive the project first.",
		fault.CodeOrganizationNotReady: "The organization is still being created. Try again in a moment.",
		codeSignIn:                     "Sign in, then send the form again.",
	},
}
