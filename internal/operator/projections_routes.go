package operator

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

const pathSetAside = "/operator/set-aside"

// ProjectionRoutes serves what operators do with projections: GET /operator/projections, POST /operator/projections/{name}/rebuild,
// which answers one JSON value a line while it goes on and ends where the caller goes away, POST /operator/set-aside and
// GET /operator/set-aside.
func ProjectionRoutes(p Projections) Routes {
	return func(mux *http.ServeMux, out answers) {
		h := &projectionHandler{p, out}
		mux.HandleFunc("GET /operator/projections", h.names)
		mux.HandleFunc("POST /operator/projections/{name}/rebuild", h.rebuild)
		mux.HandleFunc("POST "+pathSetAside, asked(out, p.SetAside))
		mux.HandleFunc("GET "+pathSetAside, h.asides)
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
	err = c.call(ctx, http.MethodGet, pathSetAside, &list)
	return list, err
}

// SetAside sets an event aside. ErrRefused is told apart.
func (c *Client) SetAside(ctx context.Context, s SetAside) (Aside, error) {
	return ask[Aside](ctx, c, pathSetAside, s)
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
