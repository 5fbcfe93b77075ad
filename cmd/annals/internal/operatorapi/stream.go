package operatorapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/annals-project/annals/eventstore"
)

// line is one line of a streamed answer: an event, the progress of a rebuild, or the failure that
// ends the answer early.
type line struct {
	Event    *Event           `json:"event,omitempty"`
	Progress *RebuildProgress `json:"progress,omitempty"`
	Failure  *refusal         `json:"failure,omitempty"`
}

// codeDeleted is the code of the failure eventstore.ErrDeleted.
const codeDeleted = "deleted"

// lines writes an answer line by line. It flushes each line at once: a caller that follows the log
// receives an event when it is written.
type lines struct {
	to  *json.Encoder
	out *http.ResponseController
}

func newLines(w http.ResponseWriter) *lines {
	w.Header().Set("Content-Type", "application/x-ndjson")
	return &lines{json.NewEncoder(w), http.NewResponseController(w)}
}

// begin sends the header, so that the caller knows that the stream is open.
func (l *lines) begin() { _ = l.out.Flush() } // if the caller is gone, the next line fails

func (l *lines) write(v line) error {
	if err := l.to.Encode(v); err != nil {
		return err
	}
	return l.out.Flush()
}

// fail writes the failure that ends an answer.
func (l *lines) fail(err error) error {
	failure := &refusal{codeFailed, err.Error()}
	if errors.Is(err, eventstore.ErrDeleted) {
		failure.Code = codeDeleted
	}
	return l.write(line{Failure: failure})
}

// open calls a route and returns the body of its answer. A refusal is the error that it names.
func (c *Client) open(ctx context.Context, method, path string) (io.ReadCloser, error) {
	res, err := c.send(ctx, method, path, nil)
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusOK {
		return res.Body, nil
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	return nil, refusedBy(res.StatusCode, text)
}

// stream calls a route and passes on the lines of its answer, which may be endless. opened is called
// once the answer has begun. It returns nil at the end of the answer.
func (c *Client) stream(ctx context.Context, method, path string, opened func(), each func(line) error) error {
	body, err := c.open(ctx, method, path)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	opened()
	for dec := json.NewDecoder(bufio.NewReader(body)); ; {
		var l line
		err := dec.Decode(&l)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("the response of the server is truncated: %w", err)
		case l.Failure != nil && l.Failure.Code == codeDeleted:
			return eventstore.ErrDeleted
		case l.Failure != nil:
			return errors.New(l.Failure.Message)
		}
		if err := each(l); err != nil {
			return err
		}
	}
}
