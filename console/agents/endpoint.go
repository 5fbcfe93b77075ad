package agents

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/annals-project/annals/console/authserver"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/httpx"
)

// Error is what an agent reads of a refusal.
type Error = authserver.Error

func refuse(status int, code, description string) *Error {
	return &Error{Status: status, Code: code, Description: description}
}

func invalidRequest(description string) *Error {
	return refuse(http.StatusBadRequest, "invalid_request", description)
}

// request is the body of every endpoint.
type request struct {
	Type         string `json:"type"`
	LoginHint    string `json:"login_hint"`
	ClientName   string `json:"client_name"`
	Scope        string `json:"scope"`
	RefreshToken string `json:"refresh_token"`
	ClaimToken   string `json:"claim_token"`
	UserCode     string `json:"user_code"`
}

// endpoint serves JSON to a program.
func (s *Service) endpoint(do func(*web.Request, request) (any, error)) func(*web.Request) error {
	return func(r *web.Request) error {
		var in request
		var out any
		err := json.NewDecoder(r.Body).Decode(&in)
		if err != nil {
			err = invalidRequest("the body is no JSON object of at most 64 KiB with texts as values")
		} else {
			out, err = do(r, in)
		}
		if err != nil {
			return s.refuse(r, err)
		}
		return write(r, http.StatusOK, out)
	}
}

// refuse answers an agent that is refused.
func (s *Service) refuse(r *web.Request, err error) error {
	refused := s.refusal(r, err)
	return write(r, refused.Status, refused)
}

func write(r *web.Request, status int, out any) error {
	body, err := json.Marshal(out)
	if err != nil {
		return err
	}
	h := r.Writer().Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "application/json")
	r.Writer().WriteHeader(status)
	_, _ = r.Writer().Write(append(body, '\n')) // a client that left reads no more
	return nil
}

func (s *Service) refusal(r *web.Request, err error) *Error {
	refused, is := errors.AsType[*Error](err)
	if !is {
		f := httpx.Fault(err)
		refused = refuse(httpx.Status(f.Kind), "server_error", "the request failed: quote its X-Request-Id to support")
		switch {
		case f.Kind == fault.Unavailable || f.Kind == fault.Timeout:
			refused.Code, refused.Description, refused.RetryAfter = "temporarily_unavailable", "send the request again", 2
		case refused.Status < http.StatusInternalServerError: // of the body
			refused.Code, refused.Description = "invalid_request", f.Msg
		default:
			s.Logger.ErrorContext(r.Context(), "registration of an agent failed", "requestId", r.ID(), "err", err)
		}
	}
	if refused.RetryAfter > 0 {
		r.Writer().Header().Set("Retry-After", strconv.Itoa(refused.RetryAfter))
	}
	return refused
}
