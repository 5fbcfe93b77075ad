package operator

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/google/uuid"
)

// refusal is the body of every answer that is no 2xx.
type refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// The codes of a refusal.
const (
	codeInvalid    = "invalid"
	codeNotFound   = "not-found"
	codeNotStopped = "not-stopped"
	codeDisabled   = "disabled"
	codeFailed     = "failed"
)

// Routes adds the routes of one concern to the handler; each lies in a file of its own, with its half of the client.
type Routes func(mux *http.ServeMux, out answers)

// Handler serves the operator's routes: GET /operator/failed?limit=&after=, POST /operator/failed/{id}/retry, and more.
// It asks for no credential: it must be served on the socket only.
func Handler(sends Sends, log *slog.Logger, more ...Routes) http.Handler {
	out := answers{log}
	h := &handler{sends, out}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /operator/failed", h.failed)
	mux.HandleFunc("POST /operator/failed/{id}/retry", h.retry)
	for _, add := range more {
		add(mux, out)
	}
	return mux
}

type handler struct {
	sends Sends
	answers
}

// answers writes what every route answers alike.
type answers struct{ log *slog.Logger }

func (h *handler) failed(w http.ResponseWriter, r *http.Request) {
	limit, after := MaxPage, uuid.Nil
	q := r.URL.Query()
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > MaxPage {
			h.write(w, r, http.StatusBadRequest, refusal{codeInvalid, "limit is not within 1 and " + strconv.Itoa(MaxPage)})
			return
		}
		limit = n
	}
	if text := q.Get("after"); text != "" {
		id, err := uuid.Parse(text)
		if err != nil {
			h.write(w, r, http.StatusBadRequest, refusal{codeInvalid, "after is not the id of a send"})
			return
		}
		after = id
	}
	list, err := h.sends.FailedSends(r.Context(), limit, after)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	page := FailedPage{Failed: list}
	if len(list) == limit {
		page.After = list[len(list)-1].IngestionID.String()
	}
	if page.Failed == nil {
		page.Failed = []Failed{}
	}
	h.write(w, r, http.StatusOK, page)
}

func (h *handler) retry(w http.ResponseWriter, r *http.Request) {
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil {
		h.write(w, r, http.StatusBadRequest, refusal{codeInvalid, "the id is not the id of a send"})
		return
	}
	if err := h.sends.Retry(r.Context(), id); err != nil {
		h.refuse(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (h answers) refuse(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, ErrNotFound):
		h.write(w, r, http.StatusNotFound, refusal{codeNotFound, err.Error()})
	case errors.Is(err, ErrNotStopped):
		h.write(w, r, http.StatusConflict, refusal{codeNotStopped, err.Error()})
	case errors.Is(err, ErrDisabled):
		h.write(w, r, http.StatusServiceUnavailable, refusal{codeDisabled, err.Error()})
	default:
		h.log.ErrorContext(r.Context(), "operator request failed", "path", r.URL.Path, "err", err)
		h.write(w, r, http.StatusInternalServerError, refusal{codeFailed, err.Error()})
	}
}

func (h answers) write(w http.ResponseWriter, r *http.Request, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		h.log.DebugContext(r.Context(), "operator answer not written", "path", r.URL.Path, "err", err)
	}
}
