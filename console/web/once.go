package web

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/httpx"
)

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
