package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"maps"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/fsx"
	"github.com/annals-project/annals/internal/httpx"
)

// readForm reads the form of a POST, also one with files. Its faults are invalid-request and content-too-large.
func (r *Request) readForm() error {
	var err error
	if r.isMultipart() {
		err = r.readParts()
	} else {
		err = r.ParseForm()
	}
	if arriving, is := errors.AsType[*fault.Error](err); is {
		return arriving
	}
	if _, ours := errors.AsType[*fs.PathError](err); ours {
		return err
	}
	if err != nil {
		return fault.New(fault.Invalid, fault.CodeInvalidRequest, "the form could not be read: send it again")
	}
	return nil
}

// Field is a field of the form, without spaces around it.
func (r *Request) Field(name string) string { return strings.TrimSpace(r.PostFormValue(name)) }

// Raw is a field of the form as it was sent, with the line ends of this service: browsers send CR LF.
func (r *Request) Raw(name string) string {
	return strings.ReplaceAll(r.PostFormValue(name), "\r\n", "\n")
}

func (route Route) limit() int64 {
	if route.Body > 0 {
		return route.Body
	}
	return pageBody
}

// Forms keep what forms leave: that one was sent, and what the page after it shows once.
type Forms interface {
	// Begin reports that a form of a session is being sent. If sent is true it was before, and answer is where that led.
	Begin(ctx context.Context, session uuid.UUID, token string) (answer string, sent bool, err error)
	// Answer keeps where a form leads.
	Answer(ctx context.Context, session uuid.UUID, token, answer string) error
	// Release forgets a form that changed nothing.
	Release(ctx context.Context, session uuid.UUID, token string) error
	// Keep keeps what the page of a path shows once.
	Keep(ctx context.Context, id, session uuid.UUID, path, value string) error
	// Take returns what Keep kept, the first time.
	Take(ctx context.Context, id, session uuid.UUID, path string) (value string, found bool, err error)
}

const (
	// formField is the field of a form with its token. Each form that is shown has another one.
	formField = "form"
	// shownParameter names what a page shows once.
	shownParameter = "shown"
	// keepTime bounds how long the answer of a form is written after its request ended.
	keepTime = 5 * time.Second

	codeFormSent = "form-sent"
)

// formKey is a form of a session.
type formKey struct {
	session uuid.UUID
	token   string
}

// formToken is the token of a form that is shown.
func formToken() string { return rand.Text() }

// onceField is the field of a form by which it is spent once.
func onceField() template.HTML {
	return template.HTML(`<input type="hidden" name="` + formField + `" value="` + formToken() + `">`) //nolint:gosec // letters
}

// serveForm serves a form once: sent again, it does nothing and leads where it led before. A form that is shown again
// changed nothing, and may be sent again.
func (r *Request) serveForm() (err error) {
	form := formKey{r.Session.ID, r.PostFormValue(formField)}
	if form.token == "" || form.session == uuid.Nil || r.site.Forms == nil {
		return r.route.Serve(r)
	}
	// Of a double click, the second waits for what the first leads to.
	unlock, err := r.site.sending.Lock(r.Context(), form)
	if err != nil {
		return err
	}
	defer unlock()
	answer, sent, err := r.site.Forms.Begin(r.Context(), form.session, form.token)
	switch {
	case err != nil:
		return err
	case answer != "":
		http.Redirect(r.w, r.Request, answer, http.StatusSeeOther)
		return nil
	case sent:
		return fault.New(fault.Conflict, codeFormSent, "%s", words.formSent)
	}
	r.form = form
	defer func() {
		if r.led || unknownOutcome(err) {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), keepTime)
		defer cancel()
		if failed := r.site.Forms.Release(ctx, form.session, form.token); failed != nil {
			r.site.Logger.WarnContext(r.Context(), "form not released", "requestId", r.ID(), "err", failed)
		}
	}()
	return r.route.Serve(r)
}

// unknownOutcome reports a failure after which a change may have been made.
func unknownOutcome(err error) bool {
	if err == nil || errors.Is(err, errAnswered) {
		return false
	}
	f := httpx.Fault(err)
	return httpx.Status(f.Kind) >= http.StatusInternalServerError && f.Code != fault.CodeServiceUnavailable
}

// leads keeps that the form of the request was sent, and where it leads. An address elsewhere may hold a secret.
func (r *Request) leads(path string) {
	if r.led = true; r.form.token == "" || !strings.HasPrefix(path, "/") {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), keepTime)
	defer cancel()
	if err := r.site.Forms.Answer(ctx, r.form.session, r.form.token, path); err != nil {
		r.site.Logger.WarnContext(r.Context(), "answer of a form not kept", "requestId", r.ID(), "err", err)
	}
}

// ShowOnce ends a change with a page that shows a value once: the page of the path takes it with Once, within a minute
// and in this session.
func ShowOnce[T any](r *Request, path string, value T) error {
	return ShowOnceTo(r, r.Session.ID, path, value)
}

// ShowOnceTo is ShowOnce for a session that begins with the answer.
func ShowOnceTo[T any](r *Request, session uuid.UUID, path string, value T) error {
	id := uuid.New()
	text, err := json.Marshal(value)
	if err == nil {
		err = r.keepOnce(id, session, path, string(text))
	}
	if err != nil {
		return err
	}
	u, err := url.Parse(path)
	if err != nil {
		return err
	}
	query := u.Query()
	query.Set(shownParameter, id.String())
	u.RawQuery = query.Encode()
	r.Redirect(u.String())
	return nil
}

// KeepOnce keeps a value for the page of a path, which takes it with TakeOnce.
func (r *Request) KeepOnce(id uuid.UUID, path, value string) error {
	return r.keepOnce(id, r.Session.ID, path, value)
}

func (r *Request) keepOnce(id, session uuid.UUID, path, value string) error {
	u, err := url.Parse(path)
	if err != nil {
		return fmt.Errorf("the page of what is shown once: %w", err)
	}
	return r.site.Forms.Keep(r.Context(), id, session, u.Path, value)
}

// Once returns what the page shows once, zero for nothing. If its address names a value that was shown before, the page
// has a notice.
func Once[T any](r *Request) (value T, err error) {
	id, wrong := uuid.Parse(r.URL.Query().Get(shownParameter))
	if wrong != nil || r.Method != http.MethodGet {
		return value, nil //nolint:nilerr // the address names none
	}
	text, found, err := r.TakeOnce(id)
	if r.gone = err == nil && !found; found {
		err = json.Unmarshal([]byte(text), &value)
	}
	return value, err
}

// TakeOnce returns a value that KeepOnce kept for the page, the first time.
func (r *Request) TakeOnce(id uuid.UUID) (value string, found bool, err error) {
	if r.Method != http.MethodGet || r.Format() != "" {
		return "", false, nil
	}
	return r.site.Forms.Take(r.Context(), id, r.Session.ID, r.URL.Path)
}

// mayAnswer is the rule for forms: one that changed something leads to another page, so that nobody repeats it by going
// back or loading the page again.
func (r *Request) mayAnswer() error {
	if r.Method != http.MethodPost || r.route.Public || r.route.Serve == nil || r.status != 0 {
		return nil
	}
	return fmt.Errorf("%s answers a form with a page", r.route.Pattern)
}

// confirmation is the page that asks before a change. Fields are those of the form.
type confirmation struct {
	Question string              `json:"question"`
	Fields   map[string][]string `json:"-"`
	Back     string              `json:"-"`
}

// AskFirst asks before a change, with a question of words, unless the form has that the person is sure: scripts
// have asked then, or this page. Its error ends the request.
func (r *Request) AskFirst(question string) error {
	if r.Field("sure") == "yes" {
		return nil
	}
	page := confirmation{Question: words.ask[question], Fields: maps.Clone(r.PostForm), Back: "/"}
	delete(page.Fields, formField)
	if from, err := url.Parse(r.Referer()); err == nil && from.Path != "" {
		page.Back = (&url.URL{Path: from.Path, RawQuery: from.RawQuery}).String()
	}
	r.area = r.site.areas[0]
	return cmp.Or(r.write("confirm.html", page), errAnswered)
}

const (
	// freeBody is the size up to which a body needs no reservation.
	freeBody = 4 << 10
	// bodyTime is the most time in which a body arrives. It does not count as that of the page.
	bodyTime = 5 * time.Minute
)

// receive reads the body of a request before it has a place. A short one is read at once. A longer one is read once
// the right of the caller was checked, and the caller is looked for again afterwards.
func (r *Request) receive() error {
	if r.Method != http.MethodPost {
		r.Body = http.NoBody
		return nil
	}
	limit := r.route.limit()
	if r.ContentLength > limit {
		return httpx.TooLarge(limit)
	}
	ctx, cancel := context.WithTimeout(r.base, bodyTime)
	defer cancel()
	among := r.site.places.visiting
	if r.known() || r.inside() {
		among = r.site.places.forms
	}
	body := httpx.NewArriving(ctx, r.w, r.Body, limit, r.open(among), freeBody)
	var start []byte
	if r.ContentLength <= pageBody {
		var err error
		if start, err = io.ReadAll(io.LimitReader(body, pageBody+1)); err != nil {
			return err
		}
	}
	if r.ContentLength <= pageBody && len(start) <= pageBody {
		r.arrived(start)
		r.begin()
		return body.End()
	}
	if err := r.receiveLong(start, body); err != nil {
		return err
	}
	r.begin()
	if err := body.End(); err != nil {
		return err
	}
	return r.identify()
}

// receiveLong reads a long body. Files go to the disk as they arrive.
func (r *Request) receiveLong(start []byte, body *httpx.Arriving) error {
	if err := r.checkRight(); err != nil {
		return err
	}
	if err := body.Reserve(r.open(r.site.places.longForms)); err != nil {
		return err
	}
	whole := io.MultiReader(bytes.NewReader(start), body)
	if !r.route.Public && r.isMultipart() {
		r.Body = io.NopCloser(whole)
		return r.readForm()
	}
	text, err := io.ReadAll(whole)
	r.arrived(text)
	return err
}

// arrived makes a body that is there that of the request. net/http reads more than 10 MiB of a form only if the body
// has a bound.
func (r *Request) arrived(body []byte) {
	r.Body = http.MaxBytesReader(nil, io.NopCloser(bytes.NewReader(body)), int64(len(body)))
}

// checkRight decides whether the caller may send a long body, at a place that is returned before the body arrives.
func (r *Request) checkRight() error {
	if r.route.Public {
		return nil // the program was found, or the route takes no long body
	}
	defer r.leave()
	if err := r.enter(); err != nil {
		return err
	}
	return r.authorize()
}

func (r *Request) isMultipart() bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/")
}

// The bounds of a form with files, besides the length of its body.
const (
	// formMemory is how much of the files stays in memory. The rest goes to a file without a name, so that nothing of a
	// customer lies on the disk when the process dies.
	formMemory = 1 << 20
	// maxFields is the most bytes of the fields that are no files, and maxParts the most of fields and files.
	maxFields = 11 << 20
	maxParts  = 1000
)

// File is a file of a form. It can be read until the request is answered.
type File struct {
	Name string
	Size int64

	at     int64
	stored io.ReaderAt
}

// Open returns the content from its beginning.
func (f File) Open() io.Reader { return io.NewSectionReader(f.stored, f.at, f.Size) }

// Files returns the files of a field of the form, in the order of the form.
func (r *Request) Files(field string) []File { return r.files[field] }

// closeFiles frees the files of the form.
func (r *Request) closeFiles() {
	if r.spool != nil {
		_ = r.spool.Close() // it has no name
	}
}

var errForm = errors.New("the form has too many or too long fields")

// readParts reads a form with files as ParseMultipartForm does, which would give its files a name. It reads it once: a
// long form is read before the request has its place.
func (r *Request) readParts() error {
	if r.files != nil {
		return nil
	}
	if err := r.ParseForm(); err != nil { // the query
		return err
	}
	parts, err := r.MultipartReader()
	if err != nil {
		return err
	}
	r.files = map[string][]File{}
	fields, memory := int64(maxFields), int64(formMemory)
	for count := 0; ; count++ {
		part, err := parts.NextRawPart()
		if err == io.EOF { // a form that breaks off is an error that wraps it
			return nil
		}
		if err != nil {
			return err
		}
		name := part.FormName()
		switch {
		case count == maxParts:
			return errForm
		case name == "":
		case part.FileName() != "":
			file, err := r.keep(part, &memory)
			if err != nil {
				return err
			}
			r.files[name] = append(r.files[name], file)
		default:
			value, err := io.ReadAll(io.LimitReader(part, fields+1))
			if err != nil {
				return err
			}
			if fields -= int64(len(name) + len(value)); fields < 0 {
				return errForm
			}
			r.Request.Form.Add(name, string(value))
			r.PostForm.Add(name, string(value))
		}
	}
}

// keep reads a file into what is left of the memory, else into the file without a name.
func (r *Request) keep(part *multipart.Part, memory *int64) (File, error) {
	file := File{Name: part.FileName()}
	var text bytes.Buffer
	size, err := io.CopyN(&text, part, *memory+1)
	if errors.Is(err, io.EOF) {
		*memory -= size
		file.Size, file.stored = size, bytes.NewReader(text.Bytes())
		return file, nil
	}
	if err != nil {
		return File{}, err
	}
	if r.spool == nil {
		if r.spool, err = fsx.Unnamed(); err != nil {
			return File{}, err
		}
	}
	if file.at, err = r.spool.Seek(0, io.SeekEnd); err != nil {
		return File{}, err
	}
	file.stored = r.spool
	file.Size, err = io.Copy(r.spool, io.MultiReader(&text, part))
	return file, err
}
