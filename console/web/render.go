package web

import (
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"strings"

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
