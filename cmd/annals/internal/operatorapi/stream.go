package operatorapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Stream is a request of an operator whose answer is a sequence of values, which may be endless: a route, and the types
// of their JSON.
type Stream[In, Out any] struct{ path string }

// line is one line of the answer: a value, or the failure that ends the answer early.
type line[Out any] struct {
	Value   *Out     `json:"value,omitempty"`
	Failure *refusal `json:"failure,omitempty"`
}

// Serve returns the route of the stream. do passes on the values: emit sends one at once, and opened lets the caller
// know before the first one that the stream is open.
func (s Stream[In, Out]) Serve(do func(ctx context.Context, in In, opened func(), emit func(Out) error) error) Route {
	return Route{http.MethodPost + " " + s.path, func(out answers) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			in, _, err := readRequest[In](r)
			if err != nil {
				out.refuse(w, r, err)
				return
			}
			w.Header().Set("Content-Type", "application/x-ndjson")
			to, flush := json.NewEncoder(w), http.NewResponseController(w).Flush
			to.SetEscapeHTML(false) // values are passed on as they are
			write := func(l line[Out]) error { return errors.Join(to.Encode(l), flush()) }
			opened := func() { _ = flush() } // if the caller is gone, the next line fails
			err = do(r.Context(), in, opened, func(v Out) error { return write(line[Out]{Value: &v}) })
			if err != nil && r.Context().Err() == nil {
				_, failure := refusalOf(err)
				err = write(line[Out]{Failure: &failure})
			}
			if err != nil {
				out.notWritten(r, err)
			}
		}
	}}
}

// Call calls the stream of a running server and passes on its values. opened is called once the answer has begun. It
// returns nil at the end of the answer. What the server refuses is one of the refusals.
func (s Stream[In, Out]) Call(ctx context.Context, c *Client, in In, opened func(), emit func(Out) error) error {
	res, err := c.send(ctx, http.MethodPost, s.path, in)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	opened()
	for dec := json.NewDecoder(bufio.NewReader(res.Body)); ; {
		var l line[Out]
		err := dec.Decode(&l)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("the response of the server is truncated: %w", err)
		case l.Failure != nil:
			return l.Failure.err()
		}
		if err := emit(*l.Value); err != nil {
			return err
		}
	}
}
