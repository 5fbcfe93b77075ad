// Package operatorapi is the API that the person who runs the service uses through a socket in the
// data folder: the operations with their routes, and a client. It translates requests into commands and queries, whose
// types are its JSON, and nothing else. Root and the user of the service may connect.
package operatorapi

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/peersocket"
)

// Route is one route of the socket: an Operation with Serve, or a stream of lines.
type Route struct {
	pattern string
	handler func(answers) http.HandlerFunc
}

// Handler serves routes. It requires no credential: serve it on the socket only.
func Handler(logger *slog.Logger, routes ...Route) http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.HandleFunc(r.pattern, r.handler(answers{logger}))
	}
	return mux
}

// Otherwise refuses every request that no other route serves.
func Otherwise(reason string) Route {
	return Route{"/", func(out answers) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { out.refuse(w, r, Refuse("%s", reason)) }
	}}
}

// answers writes the answers that are common to all routes.
type answers struct{ logger *slog.Logger }

func (a answers) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status, body := refusalOf(err)
	if status == http.StatusInternalServerError {
		a.logger.ErrorContext(r.Context(), "operator request failed", "path", r.URL.Path, "err", err)
	}
	a.write(w, r, status, body)
}

func (a answers) write(w http.ResponseWriter, r *http.Request, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		a.notWritten(r, err)
	}
}

func (a answers) notWritten(r *http.Request, err error) {
	a.logger.DebugContext(r.Context(), "operator answer not written", "path", r.URL.Path, "err", err)
}

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
	now func() time.Time, do func(context.Context, engine.Call, In) (Out, error),
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
func CallOf(r *http.Request, at time.Time) (engine.Call, error) { return callOf(r, "", at) }

func callOf(r *http.Request, remark string, at time.Time) (engine.Call, error) {
	who := whoIn(r.Header)
	name, err := by(r.Context(), cmp.Or(who.As, remark))
	if err != nil {
		return engine.Call{}, err
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
func CallBy(by string, at time.Time) engine.Call {
	return engine.Call{
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

// Socket returns the path of the socket of a data folder. Who listens there holds the lock of the folder.
func Socket(dataDir string) string { return filepath.Join(dataDir, "annals.sock") }

// Client calls a running server through its socket.
type Client struct {
	path string
	http *http.Client
}

// Dial returns a client of the server that runs on a data folder. It opens no connection: without a
// server the first call fails.
func Dial(dataDir string) *Client {
	path := Socket(dataDir)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return peersocket.Dial(ctx, path) }
	return &Client{path, &http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// Running reports whether a server responds on the data folder.
func (c *Client) Running(ctx context.Context) bool {
	conn, err := peersocket.Dial(ctx, c.path)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// ErrNotRunning is the error of a call on a data folder that no server listens on.
var ErrNotRunning = errors.New("no server is running")

// unreachable explains to the operator why the socket does not respond.
func (c *Client) unreachable(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w on data folder %s (is --data-dir right?)", ErrNotRunning, filepath.Dir(c.path))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s may only be opened by the user that runs the server", c.path)
	default:
		return fmt.Errorf("call the server through %s: %w", c.path, err)
	}
}
