package operatorapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
)

// Operation is a request of an operator with its answer: a route, and the types of their JSON. The
// body of the request is In, that of a 200 is Out.
type Operation[In, Out any] struct{ method, path string }

// None is an empty request or answer.
type None struct{}

// The limits of an operation. An operation that changes something takes as long as it needs.
const (
	maxRequest  = 2 << 20 // an event of a webhook in base 64
	maxAnswer   = 16 << 20
	readTimeout = 30 * time.Second
)

// Serve returns the route of the operation. do performs it.
func (o Operation[In, Out]) Serve(do func(context.Context, In) (Out, error)) Route {
	return o.serve(func(r *http.Request) (out Out, err error) {
		in, _, err := readRequest[In](r)
		if err != nil {
			return out, err
		}
		return do(r.Context(), in)
	})
}

// ServeAs is Serve with the call of the operator at the other end of the socket. The member "by" of the request is a
// remark.
func (o Operation[In, Out]) ServeAs(
	now func() time.Time, do func(context.Context, commands.Call, In) (Out, error),
) Route {
	return o.serve(func(r *http.Request) (out Out, err error) {
		in, body, err := readRequest[In](r)
		if err != nil {
			return out, err
		}
		var remark struct{ By string }
		if err := json.Unmarshal(body, &remark); err != nil {
			return out, &refusedError{errInvalid, "the request cannot be read: " + err.Error()}
		}
		call, err := callOf(r, remark.By, now())
		if err != nil {
			return out, &refusedError{errUnknownPeer, err.Error()}
		}
		return do(r.Context(), call, in)
	})
}

// CallOf returns the call of the operator at the other end of the socket.
func CallOf(r *http.Request, at time.Time) (commands.Call, error) { return callOf(r, "", at) }

func callOf(r *http.Request, remark string, at time.Time) (commands.Call, error) {
	who := whoIn(r.Header)
	name, err := by(r.Context(), cmp.Or(who.As, remark))
	if err != nil {
		return commands.Call{}, err
	}
	call := CallBy(name, at)
	call.Reason = who.Reason
	return call, nil
}

func (o Operation[In, Out]) serve(do func(*http.Request) (Out, error)) Route {
	return Route{o.method + " " + o.path, func(out answers) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			answer, err := do(r)
			if err != nil {
				out.refuse(w, r, err)
				return
			}
			if _, empty := any(answer).(None); empty {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			out.write(w, r, http.StatusOK, answer)
		}
	}}
}

func readRequest[In any](r *http.Request) (in In, body []byte, err error) {
	body, err = io.ReadAll(io.LimitReader(r.Body, maxRequest))
	if err == nil {
		err = json.Unmarshal(body, &in)
	}
	if err != nil {
		return in, nil, &refusedError{errInvalid, "the request cannot be read: " + err.Error()}
	}
	return in, body, nil
}

// CallBy returns a call that does not come through the HTTP API. Its events name by.
func CallBy(by string, at time.Time) commands.Call {
	return commands.Call{
		Principal: auth.Principal{Kind: auth.Kind(by)}, RequestID: uuid.Must(uuid.NewV7()), ReceivedAt: at,
	}
}

// Call calls the operation of a running server. What the server refuses is one of the refusals.
func (o Operation[In, Out]) Call(ctx context.Context, c *Client, in In) (out Out, err error) {
	if o.method == http.MethodGet {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, readTimeout)
		defer cancel()
	}
	res, err := c.send(ctx, o.method, o.path, in)
	if err != nil {
		return out, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusNoContent {
		return out, nil
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return out, fmt.Errorf("read answer: %w", err)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return out, fmt.Errorf("decode the answer of the server: %w", err)
	}
	return out, nil
}

// send calls a route. An answer that is not a 2xx is the error that it names.
func (c *Client) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://annals"+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("create request: %w", err)
	}
	WhoOf(ctx).setOn(req.Header)
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	return nil, refusedBy(res.StatusCode, text)
}

// The refusals that a caller distinguishes with errors.Is. ErrRefused is a request that cannot be
// met, for the reason in its message.
var (
	ErrNotFound   = errors.New("there is no such send")
	ErrNotStopped = errors.New("the send has not stopped")
	ErrDisabled   = errors.New("the pipeline is switched off (ANNALS_PIPELINE=off)")
	ErrRefused    = errors.New("refused")

	errInvalid     = errors.New("invalid request")
	errUnknownPeer = errors.New("unknown peer")
)

// refusal is the body of every answer that is not a 2xx, and ends a stream of values early.
type refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// codeFailed is the code of every error that is not a refusal.
const codeFailed = "failed"

// refusals are the codes of the refusals. Those with remote reach the caller as the same error.
var refusals = []struct {
	err    error
	status int
	code   string
	remote bool
}{
	{ErrNotFound, http.StatusNotFound, "not-found", true},
	{ErrNotStopped, http.StatusConflict, "not-stopped", true},
	{ErrDisabled, http.StatusServiceUnavailable, "disabled", true},
	{ErrRefused, http.StatusConflict, "refused", true},
	{eventstore.ErrDeleted, http.StatusGone, "deleted", true},
	{errInvalid, http.StatusBadRequest, "invalid", false},
	{errUnknownPeer, http.StatusForbidden, codeFailed, false},
}

// refusalOf returns the status and the refusal for an error: a fault other than Internal is ErrRefused, and what is
// none of the refusals is a failure.
func refusalOf(err error) (status int, r refusal) {
	err = refusedFor(err)
	for _, known := range refusals {
		if errors.Is(err, known.err) {
			return known.status, refusal{known.code, err.Error()}
		}
	}
	return http.StatusInternalServerError, refusal{codeFailed, err.Error()}
}

// refusedFor returns the error of a command or a query for an operator.
func refusedFor(err error) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Kind == fault.Internal {
		return err
	}
	return Refuse("%s", f.Msg)
}

// refusedError is a refusal with its reason.
type refusedError struct {
	kind   error
	reason string
}

// Error implements error.
func (e *refusedError) Error() string { return e.reason }

// Unwrap returns the kind of the refusal.
func (e *refusedError) Unwrap() error { return e.kind }

// Refuse returns ErrRefused with a reason.
func Refuse(format string, args ...any) error {
	return &refusedError{ErrRefused, fmt.Sprintf(format, args...)}
}

// err returns the error that a refusal names.
func (r refusal) err() error {
	for _, known := range refusals {
		if known.remote && known.code == r.Code {
			return &refusedError{known.err, r.Message}
		}
	}
	return errors.New(r.Message)
}

// refusedBy returns the error for an answer that is not a 2xx.
func refusedBy(status int, body []byte) error {
	var r refusal
	if err := json.Unmarshal(body, &r); err != nil {
		return fmt.Errorf("the server answered %d", status)
	}
	if r.Code == codeFailed {
		return fmt.Errorf("the server answered %d: %s", status, r.Message)
	}
	return r.err()
}
