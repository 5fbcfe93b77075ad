package operator

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

const codeRefused = "refused"

// maxAsk is the longest body of a request of an operator.
const maxAsk = 64 << 10

// ProjectionRoutes serves what operators do with projections: GET /operator/projections, POST /operator/projections/{name}/rebuild,
// which answers one JSON value a line while it goes on and ends where the caller goes away, POST /operator/set-aside and
// GET /operator/set-aside.
func ProjectionRoutes(p Projections) Routes {
	return func(mux *http.ServeMux, out answers) {
		h := &projectionHandler{p, out}
		mux.HandleFunc("GET /operator/projections", h.names)
		mux.HandleFunc("POST /operator/projections/{name}/rebuild", h.rebuild)
		mux.HandleFunc("POST /operator/set-aside", h.setAside)
		mux.HandleFunc("GET /operator/set-aside", h.asides)
	}
}

type projectionHandler struct {
	projections Projections
	answers
}

// rebuildLine is one line of the answer to a rebuild.
type rebuildLine struct {
	Progress *Rebuild `json:"progress,omitempty"`
	Failure  *refusal `json:"failure,omitempty"`
}

func (h *projectionHandler) names(w http.ResponseWriter, r *http.Request) {
	h.write(w, r, http.StatusOK, h.projections.Names())
}

func (h *projectionHandler) rebuild(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc, out := json.NewEncoder(w), http.NewResponseController(w)
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	say := func(l rebuildLine) {
		if err := errors.Join(enc.Encode(l), out.Flush()); err != nil {
			cancel(err) // nobody waits for it any more
		}
	}
	err := h.projections.Rebuild(ctx, r.PathValue("name"), func(p Rebuild) { say(rebuildLine{Progress: &p}) })
	if err != nil {
		say(rebuildLine{Failure: &refusal{codeFailed, err.Error()}})
	}
}

func (h *projectionHandler) setAside(w http.ResponseWriter, r *http.Request) {
	var s SetAside
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAsk))
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	if err != nil {
		h.write(w, r, http.StatusBadRequest, refusal{codeInvalid, "the request cannot be read: " + err.Error()})
		return
	}
	aside, err := h.projections.SetAside(r.Context(), s)
	switch {
	case errors.Is(err, ErrRefused):
		h.write(w, r, http.StatusConflict, refusal{codeRefused, err.Error()})
	case err != nil:
		h.refuse(w, r, err)
	default:
		h.write(w, r, http.StatusOK, aside)
	}
}

func (h *projectionHandler) asides(w http.ResponseWriter, r *http.Request) {
	list, err := h.projections.Asides(r.Context())
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	if list == nil {
		list = []Aside{}
	}
	h.write(w, r, http.StatusOK, list)
}

// Projections names the projections of the server.
func (c *Client) Projections(ctx context.Context) (names []string, err error) {
	err = c.call(ctx, http.MethodGet, "/operator/projections", &names)
	return names, err
}

// Asides lists the events that are set aside.
func (c *Client) Asides(ctx context.Context) (list []Aside, err error) {
	err = c.call(ctx, http.MethodGet, "/operator/set-aside", &list)
	return list, err
}

// SetAside sets an event aside.
func (c *Client) SetAside(ctx context.Context, s SetAside) (Aside, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return Aside{}, fmt.Errorf("encode request: %w", err)
	}
	res, err := c.post(ctx, "/operator/set-aside", body)
	if err != nil {
		return Aside{}, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return Aside{}, fmt.Errorf("read answer: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return Aside{}, refused(res.StatusCode, answer)
	}
	var aside Aside
	if err := json.Unmarshal(answer, &aside); err != nil {
		return Aside{}, fmt.Errorf("answer of the server cannot be read: %w", err)
	}
	return aside, nil
}

// Rebuild builds a projection anew and tells how far it is. Where the context ends, the server gives it up.
func (c *Client) Rebuild(ctx context.Context, projection string, report func(Rebuild)) error {
	res, err := c.post(ctx, "/operator/projections/"+url.PathEscape(projection)+"/rebuild", nil)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	done := false
	for dec := json.NewDecoder(bufio.NewReader(res.Body)); ; {
		var l rebuildLine
		err := dec.Decode(&l)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, io.EOF) && done:
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("the server stopped before the rebuild was done")
		case err != nil:
			return fmt.Errorf("the answer of the server broke off: %w", err)
		case l.Failure != nil:
			return errors.New(l.Failure.Message)
		case l.Progress != nil:
			done = l.Progress.Done
			report(*l.Progress)
		}
	}
}

// post sends a request whose answer may take as long as it takes.
func (c *Client) post(ctx context.Context, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://annals"+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	patient := &http.Client{Transport: c.http.Transport}
	res, err := patient.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	return res, nil
}
