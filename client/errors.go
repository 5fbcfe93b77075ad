package annals

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// APIError is a refusal by the service. Match on Code; Status alone if Code is "".
type APIError struct {
	// Status is that of HTTP.
	Status int
	// Code is the code of the error, "" if the answer names none, as that of a proxy.
	Code string
	// Message is for people; its words may change.
	Message string
	// RequestID is the id of the request in the log of the service.
	RequestID string
	// RetryAfter is the pause that the service asks for, 0 if it names none.
	RetryAfter time.Duration
	// Data is a JSON object with details that depend on the code, nil for none.
	Data json.RawMessage
}

// Error names the status, the code and the request.
func (e *APIError) Error() string {
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

// ConnectionError is a call without an answer. Whether it took effect is not known, unless no connection was made.
type ConnectionError struct {
	BaseURL string
	Err     error
}

// Error names the server and the cause.
func (e *ConnectionError) Error() string {
	return fmt.Sprintf("no answer from %s: %v", e.BaseURL, e.Err)
}

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error { return e.Err }

// connectionError returns the error of a failed attempt without the path of its URL, which may hold a token.
func (c *Client) connectionError(err error) *ConnectionError {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	return &ConnectionError{c.base, err}
}

// apiError reads a response that is no success.
func apiError(res *http.Response, body []byte) *APIError {
	e := &APIError{Status: res.StatusCode, RequestID: res.Header.Get("X-Request-Id")}
	e.RetryAfter, _ = retryAfter(res.Header)
	var envelope struct {
		Code         string          `json:"code"`
		DebugMessage string          `json:"debugMessage"`
		Data         json.RawMessage `json:"data"`
	}
	// Without an envelope, as in the page of a proxy, only the status is known.
	if json.Unmarshal(body, &envelope) == nil {
		e.Code, e.Message, e.Data = envelope.Code, envelope.DebugMessage, envelope.Data
	}
	return e
}

// retryAfter returns the pause that a response asks for, in seconds or as a date.
func retryAfter(h http.Header) (time.Duration, bool) {
	text := h.Get("Retry-After")
	if s, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(s) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0), true
	}
	return 0, false
}
