package web_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
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
