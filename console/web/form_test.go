package web_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
)

// watched is a body that looks after each read at what lies in a folder.
type watched struct {
	io.Reader
	folder string
	seen   map[string]bool
}

func (b watched) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	list, failed := os.ReadDir(b.folder)
	if failed != nil {
		return n, failed
	}
	for _, file := range list {
		b.seen[file.Name()] = true
	}
	return n, err
}

// upload sends a form with a field, and files by their names in turn with their texts.
func (s *scene) upload(t *testing.T, change func(io.Reader) io.Reader, files ...string) (answer, string) {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	runtest.Must(t, form.WriteField("field", "value"))
	for i := 0; i < len(files); i += 2 {
		part, err := form.CreateFormFile("file", files[i])
		runtest.Must(t, err)
		_, err = io.WriteString(part, files[i+1])
		runtest.Must(t, err)
	}
	runtest.Must(t, form.Close())
	return s.do(t, http.MethodPost, "/upload", func(r *http.Request) {
		r.Header.Set("Origin", console)
		r.Header.Set("Content-Type", form.FormDataContentType())
		r.Body = io.NopCloser(change(&body))
	})
}

// Nothing of an upload has a name in the folder for temporary files, at no time: a process that is killed meanwhile
// leaves nothing that could be read.
func TestForm_FilesHaveNoName(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	s := newScene(t, organization.Member, "")
	small, big, next := strings.Repeat("s", 100), strings.Repeat("b", 12<<20), strings.Repeat("n", 1<<20)
	seen := map[string]bool{}
	res, text := s.upload(t, func(body io.Reader) io.Reader { return watched{body, folder, seen} },
		"small.txt", small, "big.txt", big, "next.txt", next, "empty.txt", "")
	if res.StatusCode != http.StatusSeeOther {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	for name, want := range map[string]string{
		"small.txt": small, "big.txt": big, "next.txt": next, "empty.txt": "", "field": "value",
	} {
		if got, is := s.uploads[name]; got != want || !is {
			t.Errorf("%s has %d bytes, want %d", name, len(got), len(want))
		}
	}
	left, err := os.ReadDir(folder)
	if err != nil || len(left) > 0 || len(seen) > 0 {
		t.Errorf("%v are left, and %v were there, %v", left, seen, err)
	}
}

func TestForm_Bounds(t *testing.T) {
	s := newScene(t, organization.Member, "")
	whole := func(body io.Reader) io.Reader { return body }
	half := func(body io.Reader) io.Reader { return io.LimitReader(body, 5_000) }
	many := make([]string, 2*1000)
	for i := range many {
		many[i] = "f"
	}
	for name, c := range map[string]struct {
		files []string
		cut   func(io.Reader) io.Reader
		want  int
	}{
		"999 files and a field":   {many[:2*999], whole, http.StatusSeeOther},
		"1,000 files and a field": {many, whole, http.StatusBadRequest},
		"broken off":              {[]string{"f", strings.Repeat("x", 10_000)}, half, http.StatusBadRequest},
		// The names and the other field have 14 bytes.
		"fields of 11 MiB":      {[]string{"", strings.Repeat("x", 11<<20-14)}, whole, http.StatusSeeOther},
		"fields of more":        {[]string{"", strings.Repeat("x", 11<<20-13)}, whole, http.StatusBadRequest},
		"longer than the route": {[]string{"f", strings.Repeat("x", 16<<20)}, whole, http.StatusRequestEntityTooLarge},
	} {
		if res, text := s.upload(t, c.cut, c.files...); res.StatusCode != c.want {
			t.Errorf("%s: %d %s", name, res.StatusCode, text)
		}
	}
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	if res, text := s.upload(t, whole, "f", strings.Repeat("x", 2<<20)); res.StatusCode != http.StatusInternalServerError {
		t.Errorf("without a disk: %d %s", res.StatusCode, text)
	}
}

var (
	postForm  = regexp.MustCompile(`(?s)<form\b[^>]*method="post".*?</form>`)
	spentOnce = regexp.MustCompile(`\{\{once\}\}|name="form" value="\{\{token\}\}"`)
	live      = regexp.MustCompile(`<[a-z]+\b[^>]*hx-post=[^>]*>`)
	unspent   = regexp.MustCompile(`hx-params="not form"`)
)

// Each form that changes something has a token, and what scripts send while somebody types spends none.
func TestTemplates_FormsAreSpentOnce(t *testing.T) {
	forms := 0
	runtest.Must(t, filepath.WalkDir("..", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".html" {
			return err
		}
		text, err := os.ReadFile(file) //nolint:gosec // of the tree
		for _, form := range postForm.FindAllString(string(text), -1) {
			if forms++; !spentOnce.MatchString(form) {
				t.Errorf("%s: %.120s… has no token", file, form)
			}
		}
		for _, part := range live.FindAllString(string(text), -1) {
			if !unspent.MatchString(part) {
				t.Errorf("%s: %.120s… spends the form", file, part)
			}
		}
		return err
	}))
	if forms < 50 {
		t.Errorf("%d forms were found", forms)
	}
}

// memoryForms are web.Forms in memory.
type memoryForms struct {
	mu    sync.Mutex
	sent  map[string]string
	shown map[string]string
	away  error
}

func newMemoryForms() *memoryForms {
	return &memoryForms{sent: map[string]string{}, shown: map[string]string{}}
}

func (m *memoryForms) Begin(_ context.Context, session uuid.UUID, token string) (string, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	answer, sent := m.sent[session.String()+token]
	if !sent && m.away == nil {
		m.sent[session.String()+token] = ""
	}
	return answer, sent, m.away
}

func (m *memoryForms) Answer(_ context.Context, session uuid.UUID, token, answer string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent[session.String()+token] = answer
	return nil
}

func (m *memoryForms) Release(_ context.Context, session uuid.UUID, token string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sent, session.String()+token)
	return nil
}

func (m *memoryForms) Keep(_ context.Context, id, session uuid.UUID, path, value string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shown[id.String()+session.String()+path] = value
	return nil
}

func (m *memoryForms) Take(_ context.Context, id, session uuid.UUID, path string) (string, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, found := m.shown[id.String()+session.String()+path]
	delete(m.shown, id.String()+session.String()+path)
	return value, found, nil
}

// onceScene is a page whose form makes secrets.
type onceScene struct {
	*scene
	t     *testing.T
	forms *memoryForms
	// made counts the secrets, fails is what the form does instead.
	made  int
	fails error
}

func newOnceScene(t *testing.T) *onceScene {
	t.Helper()
	s := &onceScene{scene: newScene(t, organization.Member, ""), t: t, forms: newMemoryForms()}
	s.session.ID = uuid.New()
	cfg := s.site.Config
	cfg.Forms = s.forms
	site, err := web.New(cfg, []web.Area{{Templates: templatesOfTest, Routes: []web.Route{
		{Pattern: "GET /secret", Needs: web.Member, Serve: func(r *web.Request) error {
			value, err := web.Once[string](r)
			if err != nil {
				return err
			}
			return r.Render("page.html", "the value is "+value)
		}},
		{Pattern: "POST /secret", Needs: web.Member, Serve: func(r *web.Request) error {
			if s.made++; s.fails != nil {
				return s.fails
			}
			if r.Field("text") == "" {
				return r.Invalid(fault.New(fault.Invalid, fault.CodeInvalidRequest, "no text"), "page.html", "again")
			}
			return web.ShowOnce(r, "/secret", "zebra")
		}},
		{Pattern: "POST /careless", Needs: web.Member, Serve: func(r *web.Request) error {
			return r.Render("page.html", "zebra")
		}},
		{Pattern: "POST /written", Needs: web.Member, Serve: func(r *web.Request) error {
			return r.Text("text/plain", "zebra")
		}},
	}}})
	runtest.Must(t, err)
	s.site = site
	return s
}

// send sends a form with a token and a text.
func (s *onceScene) send(path, token, text string) (status int, location, body string) {
	s.t.Helper()
	return s.sendForm(path, url.Values{"form": {token}, "text": {text}})
}

func (s *onceScene) sendForm(path string, fields url.Values) (status int, location, body string) {
	s.t.Helper()
	got, body := s.do(s.t, http.MethodPost, path, func(r *http.Request) {
		form := strings.NewReader(fields.Encode())
		sent := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, console+path, form)
		sent.Header = r.Header
		sent.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		sent.Header.Set("Origin", console)
		*r = *sent
	})
	return got.StatusCode, got.Header.Get("Location"), body
}

func TestForm_IsSpentOnce(t *testing.T) {
	s := newOnceScene(t)
	status, first, _ := s.send("/secret", "one", "x")
	if status != 303 || s.made != 1 {
		t.Fatalf("a form is answered %d, and did %d things", status, s.made)
	}
	if status, again, _ := s.send("/secret", "one", "y"); status != 303 || again != first || s.made != 1 {
		t.Errorf("sent again: %d to %s, want %s; did %d things", status, again, first, s.made)
	}
	if _, other, _ := s.send("/secret", "two", "x"); s.made != 2 || other == first {
		t.Errorf("another form did %d things, and leads to %s", s.made, other)
	}
	s.session.ID = uuid.New()
	if _, _, _ = s.send("/secret", "one", "x"); s.made != 3 {
		t.Errorf("the form of another session did nothing")
	}
}

func TestForm_ThatChangedNothingMayBeSentAgain(t *testing.T) {
	s := newOnceScene(t)
	if status, _, body := s.send("/secret", "one", ""); status != 400 || !strings.Contains(body, "no text") {
		t.Fatalf("refused input: %d %s", status, body)
	}
	s.fails = fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "later")
	if status, _, _ := s.send("/secret", "one", "x"); status != 503 {
		t.Errorf("refused: %d", status)
	}
	s.fails = nil
	if status, _, _ := s.send("/secret", "one", "x"); status != 303 || s.made != 3 {
		t.Errorf("after it changed nothing: %d, did %d things", status, s.made)
	}
}

// What may have been changed is not changed twice.
func TestForm_WhoseOutcomeIsNotKnown(t *testing.T) {
	s := newOnceScene(t)
	s.fails = errors.New("the connection broke")
	if status, _, _ := s.send("/secret", "one", "x"); status != 500 {
		t.Errorf("a failure: %d", status)
	}
	s.fails = nil
	if status, _, body := s.send("/secret", "one", "x"); status != 409 || !strings.Contains(body, "was sent already") || s.made != 1 {
		t.Errorf("sent again: %d, did %d things: %s", status, s.made, body)
	}
	s.forms.away = errors.New("the tables are away")
	if status, _, _ := s.send("/secret", "two", "x"); status != 500 || s.made != 1 {
		t.Errorf("a form that cannot be noted: %d, did %d things", status, s.made)
	}
}

func TestOnce_ShowsAValueOnce(t *testing.T) {
	s := newOnceScene(t)
	_, path, body := s.send("/secret", "one", "x")
	if strings.Contains(body+path, "zebra") {
		t.Errorf("the answer of the form holds the value: %s %s", path, body)
	}
	show := func(path string) string { _, body := s.do(t, http.MethodGet, path, nil); return body }
	mine := s.session.ID
	s.session.ID = uuid.New()
	if body := show(path); strings.Contains(body, "zebra") {
		t.Error("another session sees the value")
	}
	s.session.ID = mine
	if body := show(path); !strings.Contains(body, "zebra") || strings.Contains(body, "shown once") ||
		strings.Contains(body, "shown="+path[len("/secret?shown="):]) {
		t.Errorf("the first time: %s", body)
	}
	if body := show(path); strings.Contains(body, "zebra") || !strings.Contains(body, "was shown once") {
		t.Errorf("the second time: %s", body)
	}
	if body := show("/secret"); strings.Contains(body, "shown once") {
		t.Errorf("without a value: %s", body)
	}
}

// A handler that answers a form with a page fails in every test that sends the form.
func TestForm_IsNotAnsweredWithAPage(t *testing.T) {
	s := newOnceScene(t)
	for _, path := range []string{"/careless", "/written"} {
		if status, _, body := s.send(path, path, "x"); status != 500 || strings.Contains(body, "zebra") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// Of two that arrive together, the second gets where the first leads.
func TestForm_DoubleClick(t *testing.T) {
	s := newOnceScene(t)
	answers := make(chan string)
	for range 2 {
		go func() {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, console+"/secret",
				strings.NewReader("form=one&text=x"))
			set := httptest.NewRecorder()
			s.cookies.Set(set, web.SessionCookie, "token", 3600e9)
			r.AddCookie(set.Result().Cookies()[0])
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Origin", console)
			w := httptest.NewRecorder()
			_ = s.site.Serve(w, r, &httpx.PageNote{})
			answers <- w.Header().Get("Location")
		}()
	}
	if a, b := <-answers, <-answers; a != b || a == "" || s.made != 1 {
		t.Errorf("they lead to %q and %q, and did %d things", a, b, s.made)
	}
}
