package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

const codeRefused = "refused"

// maxAsk is the longest body of a request of an operator, in bytes; maxAnswer that of the answer.
const (
	maxAsk    = 64 << 10
	maxAnswer = 1 << 20
)

// asked serves one command: its request is the body, its answer the body of a 200.
func asked[In, Out any](out answers, do func(context.Context, In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		body, err := io.ReadAll(io.LimitReader(r.Body, maxAsk))
		if err == nil {
			err = json.Unmarshal(body, &in)
		}
		if err != nil {
			out.write(w, r, http.StatusBadRequest, refusal{codeInvalid, "the request cannot be read: " + err.Error()})
			return
		}
		if named, is := any(&in).(attributed); is {
			if err := named.setBy(r.Context()); err != nil {
				out.write(w, r, http.StatusForbidden, refusal{codeFailed, err.Error()})
				return
			}
		}
		answer, err := do(r.Context(), in)
		switch {
		case errors.Is(err, ErrRefused):
			out.write(w, r, http.StatusConflict, refusal{codeRefused, err.Error()})
		case err != nil:
			out.refuse(w, r, err)
		default:
			out.write(w, r, http.StatusOK, answer)
		}
	}
}

// ask posts a request and reads its answer. What the server refuses is ErrRefused with the server's reason.
func ask[Out any](ctx context.Context, c *Client, path string, in any) (answer Out, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return answer, fmt.Errorf("encode request: %w", err)
	}
	res, err := c.post(ctx, path, body)
	if err != nil {
		return answer, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return answer, fmt.Errorf("read answer: %w", err)
	}
	var r refusal
	if res.StatusCode == http.StatusConflict && json.Unmarshal(text, &r) == nil && r.Code == codeRefused {
		return answer, &refusedError{r.Message}
	}
	if res.StatusCode != http.StatusOK {
		return answer, refused(res.StatusCode, text)
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return answer, fmt.Errorf("answer of the server cannot be read: %w", err)
	}
	return answer, nil
}

// refusedError is ErrRefused in the words of the one who refuses.
type refusedError struct{ reason string }

// Error implements error.
func (e *refusedError) Error() string { return e.reason }

// Is makes it ErrRefused to errors.Is.
func (e *refusedError) Is(target error) bool { return target == ErrRefused }

// Refuse is ErrRefused for a reason in plain words.
func Refuse(reason string) error { return &refusedError{reason} }

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
