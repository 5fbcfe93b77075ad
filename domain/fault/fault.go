// Package fault is the one error type that reaches a client, and every public code once.
package fault

import (
	"fmt"
	"maps"
)

// Kind is what went wrong in the terms of HTTP; package httpx maps it to a status.
type Kind int

// The kinds, each with its status.
const (
	Internal         Kind = iota // 500
	Invalid                      // 400
	Unauthenticated              // 401
	PaymentRequired              // 402
	Forbidden                    // 403
	NotFound                     // 404
	MethodNotAllowed             // 405
	Conflict                     // 409
	TooLarge                     // 413
	UnsupportedMedia             // 415
	LimitReached                 // 429
	Unavailable                  // 503
	Timeout                      // 503, with an unknown outcome
	SlowBody                     // 408
)

// Error is a fault with the fields of the error envelope. Msg becomes debugMessage: plain words, no
// SQL, no customer text but what the caller sent.
type Error struct {
	Kind Kind
	Code string
	Msg  string
	Data map[string]any
}

// Error implements error.
func (e *Error) Error() string { return e.Code + ": " + e.Msg }

// New makes a fault.
func New(kind Kind, code, format string, args ...any) *Error {
	return &Error{Kind: kind, Code: code, Msg: fmt.Sprintf(format, args...)}
}

// With returns a copy of the fault with one more field of data.
func (e *Error) With(key string, value any) *Error {
	data := make(map[string]any, len(e.Data)+1)
	maps.Copy(data, e.Data)
	data[key] = value
	return &Error{Kind: e.Kind, Code: e.Code, Msg: e.Msg, Data: data}
}

// WithAll returns a copy of the fault with further fields of data.
func (e *Error) WithAll(data map[string]any) *Error {
	for k, v := range data {
		e = e.With(k, v)
	}
	return e
}
