package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/annals-project/annals/eventstore/backoff"
)

// EstimateFull is Estimate with every data point in full. It passes the data points on as they arrive, in the order of
// the import, since all of them may be more than memory holds: begin is called before the first one, and again if the
// call is repeated. The Points of the result are empty.
func (c *Client) EstimateFull(
	ctx context.Context, in EstimateRequest, begin func() error, each func(EstimatedPoint) error,
) (out Estimate, err error) {
	in.Points = "full"
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(in); err != nil {
		return out, fmt.Errorf("encode request: %w", err)
	}
	what := call{method: http.MethodPost, path: api + "/ingest/estimate"}
	pause := backoff.Backoff{First: firstWait, Longest: maxWait}
	for attempt := 1; ; attempt++ {
		if err := begin(); err != nil {
			return out, err
		}
		var got answer
		out, got, err = c.estimateOnce(ctx, what, body.Bytes(), each)
		if err == nil && got.status/100 == 2 {
			return out, nil
		}
		if own, is := errors.AsType[*ownError](err); is {
			return out, own.error
		}
		wait, again := c.again(what, attempt, pause.Next(), got, err)
		if !again || backoff.Pause(ctx, wait, nil) != nil {
			return out, got.failure(c.base, err)
		}
	}
}

// ownError is an error of the caller's function, or an answer that another attempt would not change.
type ownError struct{ error }

// Unwrap returns the error.
func (e *ownError) Unwrap() error { return e.error }

func (c *Client) estimateOnce(
	ctx context.Context, what call, body []byte, each func(EstimatedPoint) error,
) (out Estimate, got answer, err error) {
	req, err := c.request(ctx, what, body)
	if err != nil {
		return out, got, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return out, got, err
	}
	defer func() { _ = res.Body.Close() }()
	got.status, got.requestID = res.StatusCode, res.Header.Get("X-Request-Id")
	got.retryAfter = res.Header.Get("Retry-After")
	if res.StatusCode/100 != 2 {
		if got.body, err = io.ReadAll(io.LimitReader(res.Body, maxResponse)); err != nil {
			return out, got, fmt.Errorf("read answer: %w", err)
		}
		return out, got, nil
	}
	out, err = readEstimate(json.NewDecoder(res.Body), each)
	return out, got, err
}

// readEstimate reads an estimate and passes on its data points.
func readEstimate(dec *json.Decoder, each func(EstimatedPoint) error) (out Estimate, err error) {
	if _, err := dec.Token(); err != nil { // the brace
		return out, fmt.Errorf("read answer: %w", err)
	}
	rest := map[string]json.RawMessage{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return out, fmt.Errorf("read answer: %w", err)
		}
		if name != "points" {
			var value json.RawMessage
			if err := dec.Decode(&value); err != nil {
				return out, fmt.Errorf("read answer: %w", err)
			}
			rest[name.(string)] = value //nolint:forcetypeassert // the decoder returns a string for a name
			continue
		}
		if err := readPoints(dec, each); err != nil {
			return out, err
		}
	}
	if _, err := dec.Token(); err != nil {
		return out, fmt.Errorf("read answer: %w", err)
	}
	text, err := json.Marshal(rest)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		return out, &ownError{fmt.Errorf("answer of the server cannot be read: %w", err)}
	}
	return out, nil
}

func readPoints(dec *json.Decoder, each func(EstimatedPoint) error) error {
	if _, err := dec.Token(); err != nil { // the bracket
		return fmt.Errorf("read answer: %w", err)
	}
	for dec.More() {
		var p EstimatedPoint
		if err := dec.Decode(&p); err != nil {
			return fmt.Errorf("read answer: %w", err)
		}
		if err := each(p); err != nil {
			return &ownError{err}
		}
	}
	_, err := dec.Token()
	return err
}
