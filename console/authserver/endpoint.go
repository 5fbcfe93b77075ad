package authserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/ratelimit"
)

// Error is a refusal as OAuth has it (RFC 6749, section 5.2).
type Error struct {
	Status      int    `json:"-"` // 0 is 400
	Code        string `json:"error"`
	Description string `json:"error_description"`
	// RetryAfter is in seconds, 0 for none.
	RetryAfter int `json:"retry_after,omitempty"`
}

// Error implements error.
func (e *Error) Error() string { return e.Code + ": " + e.Description }

// Codes of Error.
const (
	invalidRequest  = "invalid_request"
	invalidGrant    = "invalid_grant"
	invalidTarget   = "invalid_target"
	invalidScope    = "invalid_scope"
	invalidRedirect = "invalid_redirect_uri"
	invalidMetadata = "invalid_client_metadata"
	accessDenied    = "access_denied"
)

func refuse(code, format string, args ...any) *Error {
	return &Error{Code: code, Description: fmt.Sprintf(format, args...)}
}

// answer is what an endpoint answers: a status and a value, nil for an empty body.
type answer struct {
	status int
	value  any
}

// endpoint serves a program: its errors are JSON, and nothing is cached.
func (s *Service) endpoint(do func(*web.Request) (answer, error)) func(*web.Request) error {
	return func(r *web.Request) error {
		out, err := do(r)
		if err != nil {
			return s.refuse(r, err)
		}
		return out.write(r)
	}
}

// refuse answers a program that is refused.
func (s *Service) refuse(r *web.Request, err error) error { return s.refusal(r, err).write(r) }

func (out answer) write(r *web.Request) error {
	h := r.Writer().Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Pragma", "no-cache")
	if out.value == nil {
		r.Writer().WriteHeader(out.status)
		return nil
	}
	text, err := json.Marshal(out.value)
	if err != nil {
		return err
	}
	h.Set("Content-Type", "application/json")
	r.Writer().WriteHeader(out.status)
	_, _ = r.Writer().Write(text) // a client that left reads no more
	return nil
}

func (s *Service) refusal(r *web.Request, err error) answer {
	refused, is := errors.AsType[*Error](err)
	if !is {
		f := httpx.Fault(err)
		status := httpx.Status(f.Kind)
		refused = &Error{Status: status, Code: "server_error", Description: "nothing was decided: try again"}
		switch {
		case status == http.StatusServiceUnavailable:
			refused.Code, refused.RetryAfter = "temporarily_unavailable", 2
		case status < http.StatusInternalServerError: // of the body
			refused.Code, refused.Description = invalidRequest, f.Msg
		default:
			s.Logger.ErrorContext(r.Context(), "oauth failed", "requestId", r.ID(), "path", r.URL.Path, "err", err)
		}
	}
	if refused.RetryAfter > 0 {
		r.Writer().Header().Set("Retry-After", strconv.Itoa(refused.RetryAfter))
	}
	if refused.Status == 0 {
		refused.Status = http.StatusBadRequest
	}
	return answer{refused.Status, refused}
}

// limited counts a call of a network address.
func limited(r *web.Request, windows *ratelimit.Windows, limit int) error {
	var id uuid.UUID
	if caller := r.Caller(); caller.IsValid() {
		id = caller.As16()
	}
	if retry, ok := windows.Allow(id, limit); !ok {
		return tooMany("too many calls of this network address: wait", retry)
	}
	return nil
}

func tooMany(description string, retry time.Duration) *Error {
	return &Error{http.StatusTooManyRequests, "rate_limit_exceeded", description, int(retry/time.Second) + 1}
}

// parameters are those of a form or of a query. Each may be there once, and is text.
type parameters url.Values

func (p parameters) get(name string) string { return url.Values(p).Get(name) }

func (p parameters) has(name string) bool { return url.Values(p).Has(name) }

func (p parameters) check() error {
	for name, values := range p {
		if len(values) > 1 && name != "resource" {
			return refuse(invalidRequest, "%.40q is there more than once", name)
		}
		for _, value := range values {
			if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
				return refuse(invalidRequest, "%.40q is no text", name)
			}
		}
	}
	return nil
}

// formOf reads the form of a program: parameters of the URL do not count.
func formOf(r *web.Request) (parameters, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil ||
		kind != "application/x-www-form-urlencoded" {
		return nil, refuse(invalidRequest, "want a form: application/x-www-form-urlencoded")
	}
	if err := r.ParseForm(); err != nil {
		return nil, refuse(invalidRequest, "the form cannot be read")
	}
	form := parameters(r.PostForm)
	return form, form.check()
}
