// Package client calls the public API of an Annals server, with time-outs and bounded retries, for
// the command line and the tests.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/annals-project/annals/eventstore/backoff"
)

// maxResponse is the most bytes of a response body that are read.
const maxResponse = 64 << 20

// Options tune a Client. The zero value is ready to use.
type Options struct {
	// Transport carries the requests; nil is a separate one that keeps connections open.
	Transport http.RoundTripper
	// Timeout bounds one attempt, its body included; 0 is 60 s.
	Timeout time.Duration
	// Attempts bounds how often a call is tried that was refused with 429 or 503, or that got no
	// response if repeating it is safe; 0 is 6.
	Attempts int
	// ConnectAttempts bounds how often a server that refuses connections is called; 0 is 1.
	ConnectAttempts int
}

// Client calls one server with one credential. It is safe for concurrent use. No error and no log
// contains the credential.
type Client struct {
	base  string
	key   string
	http  *http.Client
	tries int
	dials int
}

// New makes a client of the server at a base address such as http://127.0.0.1:8080, without "/api/v1".
func New(base, key string, o Options) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("%q is no address of a server: want one such as http://127.0.0.1:8080", base)
	}
	if o.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 64
		o.Transport = t
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	return &Client{
		base:  strings.TrimRight(base, "/"),
		key:   key,
		http:  &http.Client{Transport: o.Transport, Timeout: o.Timeout, CheckRedirect: refuseRedirect},
		tries: cmp.Or(o.Attempts, 6),
		dials: cmp.Or(o.ConnectAttempts, 1),
	}, nil
}

// refuseRedirect prevents sending the credential to another server.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Base is the address of the server.
func (c *Client) Base() string { return c.base }

// Error is a refusal by the server.
type Error struct {
	Status int
	// Code and Message are those of the error envelope; Code is "" without an envelope.
	Code    string
	Message string
	// RequestID is the X-Request-Id of the response.
	RequestID string
	// RetryAfter is the header of that name, "" if it is missing.
	RetryAfter string
}

func (e *Error) Error() string {
	text := fmt.Sprintf("the server answered %d", e.Status)
	if e.Code != "" {
		text += " " + e.Code
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	return text
}

// UnreachableError is a server that did not respond.
type UnreachableError struct {
	Base string
	Err  error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no answer from %s: %v", e.Base, rootCause(e.Err))
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// rootCause removes the method and the address that net/http puts before the cause.
func rootCause(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// call is one request to the API.
type call struct {
	method string
	// path begins with a slash and is already escaped.
	path string
	body any
	// once forbids repeating a call whose effect is unknown.
	once bool
}

// do makes a call, repeats it if that is safe, and decodes a 2xx answer into out unless out is nil.
func (c *Client) do(ctx context.Context, what call, out any) error {
	answer, err := c.send(ctx, what)
	if err != nil {
		return err
	}
	return answer.decode(out)
}

// send makes a call and repeats it if that is safe. It returns the last answer also with an error.
func (c *Client) send(ctx context.Context, what call) (answer, error) {
	var body []byte
	if what.body != nil {
		var text bytes.Buffer
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false) // < and & stay one byte: a batch is cut by the bytes that it was read as
		if err := enc.Encode(what.body); err != nil {
			return answer{}, fmt.Errorf("encode request: %w", err)
		}
		body = bytes.TrimSuffix(text.Bytes(), []byte("\n"))
	}
	pause := backoff.Backoff{First: firstWait, Longest: maxWait}
	for attempt := 1; ; attempt++ {
		got, err := c.attempt(ctx, what, body)
		if err == nil && got.status/100 == 2 {
			return got, nil
		}
		wait, again := c.again(what, attempt, pause.Next(), got, err)
		if !again || backoff.Pause(ctx, wait, nil) != nil {
			return got, got.failure(c.base, err)
		}
	}
}

// answer is the response to one attempt.
type answer struct {
	status     int
	requestID  string
	retryAfter string
	project    string
	body       []byte
}

// request makes the request of one attempt.
func (c *Client) request(ctx context.Context, what call, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, what.method, c.base+what.path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	req.Header.Set("User-Agent", "annals-cli")
	return req, nil
}

func (c *Client) attempt(ctx context.Context, what call, body []byte) (answer, error) {
	req, err := c.request(ctx, what, body)
	if err != nil {
		return answer{}, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxResponse))
	if err != nil {
		return answer{}, fmt.Errorf("read answer: %w", err)
	}
	return answer{
		status: res.StatusCode, requestID: res.Header.Get("X-Request-Id"), retryAfter: res.Header.Get("Retry-After"),
		project: res.Header.Get("X-Annals-Project"), body: text,
	}, nil
}

func (a answer) decode(out any) error {
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(a.body, out); err != nil {
		return fmt.Errorf("answer of the server cannot be read: %w", err)
	}
	return nil
}

// failure returns the error of the last attempt.
func (a answer) failure(base string, err error) error {
	if err != nil {
		return &UnreachableError{base, err}
	}
	var envelope struct {
		Code         string `json:"code"`
		DebugMessage string `json:"debugMessage"`
	}
	e := &Error{Status: a.status, RequestID: a.requestID, RetryAfter: a.retryAfter}
	// Without an envelope, as in the page of a proxy, only the status is known.
	if json.Unmarshal(a.body, &envelope) == nil {
		e.Code, e.Message = envelope.Code, envelope.DebugMessage
	}
	return e
}
