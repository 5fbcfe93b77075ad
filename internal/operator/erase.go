package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Pending is what waits to be erased.
type Pending struct {
	// FanOuts are committed batches, bulk writes and deletions that are not fanned out.
	FanOuts int `json:"fanOuts"`
	// Deletions are those that are not cleaned, DataPoints what they took.
	Deletions  int `json:"deletions"`
	DataPoints int `json:"dataPoints"`
	// Identities are removed ones whose traits are not known to be gone.
	Identities int `json:"identities"`
	// Blobs are those that nothing refers to, of sends that were never stored; Until is when the last of them may go.
	Blobs int        `json:"blobs"`
	Until *time.Time `json:"until,omitempty"`
}

// Erased is what was removed at an operator's word.
type Erased struct {
	// Deletions were cleaned, and removed Identities cleared; Streams were ended for deletions, and Blobs swept.
	Deletions  int `json:"deletions"`
	Identities int `json:"identities"`
	Streams    int `json:"streams"`
	Blobs      int `json:"blobs"`
	// Tables were vacuumed, Indexes rewritten. Store says what became of the files of the event store.
	Tables  int    `json:"tables"`
	Indexes int    `json:"indexes"`
	Store   string `json:"store"`
	// Left still waits.
	Left Pending `json:"left"`
}

// Eraser erases what was deleted.
type Eraser interface {
	PendingErasures(ctx context.Context) (Pending, error)
	// EraseNow erases all that can be erased now. What went wrong is the error; what has to wait for its time is in Left.
	EraseNow(ctx context.Context) (Erased, error)
}

// EraseRoutes serves GET /operator/erase, what waits, and POST /operator/erase, which answers when it is done.
func EraseRoutes(e Eraser) Routes {
	return func(mux *http.ServeMux, out answers) {
		mux.HandleFunc("GET /operator/erase", func(w http.ResponseWriter, r *http.Request) {
			pending, err := e.PendingErasures(r.Context())
			if err != nil {
				out.refuse(w, r, err)
				return
			}
			out.write(w, r, http.StatusOK, pending)
		})
		mux.HandleFunc("POST /operator/erase", func(w http.ResponseWriter, r *http.Request) {
			erased, err := e.EraseNow(r.Context())
			if err != nil {
				out.refuse(w, r, err)
				return
			}
			out.write(w, r, http.StatusOK, erased)
		})
	}
}

// Pending asks what waits to be erased.
func (c *Client) Pending(ctx context.Context) (Pending, error) {
	var p Pending
	err := c.call(ctx, http.MethodGet, "/operator/erase", &p)
	return p, err
}

// EraseNow lets the server erase all that can be erased, which takes as long as it takes.
func (c *Client) EraseNow(ctx context.Context) (Erased, error) {
	var e Erased
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://annals/operator/erase", nil)
	if err != nil {
		return e, fmt.Errorf("make request: %w", err)
	}
	patient := http.Client{Transport: c.http.Transport}
	res, err := patient.Do(req)
	if err != nil {
		return e, c.unreachable(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return e, fmt.Errorf("read answer: %w", err)
	}
	if res.StatusCode/100 != 2 {
		return e, refused(res.StatusCode, body)
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return e, fmt.Errorf("answer of the server cannot be read: %w", err)
	}
	return e, nil
}
