package httpx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
)

// MaxInnerAnswer is the most bytes of the answer to an inner call that InnerAnswer holds.
const MaxInnerAnswer = 1 << 20

// Inner makes calls of the API in the process, for people at the console and for tools. They pass the edge as calls
// from outside do, so they are admitted, charged and logged alike. Only the caller is given instead of a key, and the
// limit of calls a minute of an organization does not count what people do at the console.
type Inner struct {
	// API is the router of New.
	API http.Handler
	// Answers is the allowance of what callers make of answers; nil bounds nothing.
	Answers *allowance.Allowance
}

// Reserve reserves bytes that a caller makes of an answer. They are to be released once nothing of it is held.
func (i Inner) Reserve(ctx context.Context, as auth.Principal, n int64) (*allowance.Hold, error) {
	if i.Answers == nil {
		return nil, nil //nolint:nilnil // nothing is held
	}
	hold := i.Answers.Open(allowance.Owner{Organization: as.OrganizationID, Project: as.Project.ID})
	return hold, hold.Reserve(ctx, n)
}

// InnerCall is a call in the process.
type InnerCall struct {
	// As is the caller with the project that the call may touch. Whether it may make the call was checked before.
	As                        auth.Principal
	Method, Path, ContentType string
	Body                      []byte
	// Route is the route of the call as the table of routes has it, such as /api/v1/requests/:requestId. A path that leads
	// to another is not found, whatever the ids in it are. "" is the route of the path.
	Route string
	// To takes the answer instead of InnerAnswer.Body, which has at most MaxInnerAnswer bytes. Values bounds what the
	// answer needs to have.
	To     io.Writer
	Values Values
	// Test marks an event of a webhook as one that a person sent to try the webhook, Replay as one whose body is that of
	// an event before.
	Test, Replay bool
	// Tool is the tool of MCP that makes the call, "" for the console. The row of the call in the request log has the
	// method MCP and names the tool.
	Tool string
	// Own bounds what the call may replace or delete to what this identity wrote; nil bounds nothing.
	Own *string
	// KeepAudience keeps the audience of a text that is sent again without one.
	KeepAudience bool
	// Private makes a text that is sent private to its identity, PrivateIfNew one that is new and is sent without an
	// audience.
	Private, PrivateIfNew bool
	// Placed takes the audience that a text that is sent is in then, unless its idempotency key was used before; nil takes
	// nothing.
	Placed func(audience uuid.UUID)
	// Serve answers the call in place of the handler of its route, once the route has admitted it; nil is the handler.
	Serve echo.HandlerFunc
}

// InnerOf returns the call in the process that a handler answers, the zero value for a call from outside.
func InnerOf(c echo.Context) InnerCall {
	if r := stateOf(c); r.inner != nil {
		return r.inner.call
	}
	return InnerCall{}
}

// MCPMethod and MCPPath are what a call by a tool has in the request log instead of its method and path. The path goes
// on with the name of the tool.
const (
	MCPMethod = "MCP"
	MCPPath   = "/mcp#"
)

// Values bounds metadata in an answer: where the answer would have more than Total bytes, the API leaves out that of
// more than Each bytes, and counts it. The zero value bounds nothing.
type Values struct{ Total, Each int64 }

// InnerAnswer is the answer to a call in the process. RequestID is that of its row in the request log.
type InnerAnswer struct {
	RequestID uuid.UUID
	Status    int
	Body      []byte
	// LeftOut counts by name what the API left out for InnerCall.Values.
	LeftOut map[string]int
}

// ValuesOf returns what bounds the metadata in the answer of a call.
func ValuesOf(c echo.Context) Values {
	if r := stateOf(c); r.inner != nil {
		return r.inner.call.Values
	}
	return Values{}
}

// LeftOut counts what the answer of a call leaves out for its Values.
func LeftOut(c echo.Context, name string, n int) {
	if r := stateOf(c); n > 0 && r.inner != nil {
		r.inner.leftOut[name] += n
	}
}

// Do makes a call. The error is the fault that refused it; the answer then has the id of the request alone.
func (i Inner) Do(ctx context.Context, call InnerCall) (InnerAnswer, error) {
	state := &inner{call: call, leftOut: map[string]int{}}
	req, err := http.NewRequestWithContext(context.WithValue(ctx, innerKey{}, state), call.Method, call.Path,
		bytes.NewReader(call.Body))
	if err != nil {
		return InnerAnswer{}, fmt.Errorf("make a call in the process: %w", err)
	}
	agent := "annals-console"
	if call.Tool != "" {
		agent = "annals-mcp"
	}
	req.Header.Set("User-Agent", agent)
	if call.ContentType != "" {
		req.Header.Set(echo.HeaderContentType, call.ContentType)
	}
	w := &innerWriter{header: http.Header{}, status: http.StatusOK, to: call.To}
	if err := i.serve(w, req); err != nil {
		return InnerAnswer{RequestID: state.id}, err
	}
	if state.refusal != nil {
		return InnerAnswer{RequestID: state.id}, state.refusal
	}
	return InnerAnswer{RequestID: state.id, Status: w.status, Body: w.body.Bytes(), LeftOut: state.leftOut}, nil
}

// serve serves a request. The edge panics if the answer breaks off.
func (i Inner) serve(w *innerWriter, req *http.Request) (err error) {
	defer func() {
		v := recover()
		if failed, is := v.(error); is && errors.Is(failed, http.ErrAbortHandler) {
			err = fault.New(fault.Internal, fault.CodeInternal, "the answer broke off")
			switch {
			case req.Context().Err() != nil:
				err = req.Context().Err()
			case w.failed != nil:
				err = fault.New(fault.TooLarge, fault.CodeContentTooLarge, "the answer is too long: ask the API for it")
			}
		} else if v != nil {
			panic(v)
		}
	}()
	i.API.ServeHTTP(w, req)
	return nil
}

type innerKey struct{}

// inner is the state of a call in the process.
type inner struct {
	call InnerCall
	// id and refusal are what the edge answers: the id of the request, and the fault if it is refused.
	id      uuid.UUID
	refusal error
	leftOut map[string]int
}

// innerOf returns the state of a call in the process, nil for a call from outside.
func innerOf(req *http.Request) *inner {
	call, _ := req.Context().Value(innerKey{}).(*inner)
	return call
}

// innerWriter holds an answer, or passes it on.
type innerWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
	to     io.Writer
	// failed is why no more is taken.
	failed error
}

// Header implements http.ResponseWriter.
func (w *innerWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *innerWriter) WriteHeader(status int) { w.status = status }

// Write implements io.Writer.
func (w *innerWriter) Write(b []byte) (n int, err error) {
	switch {
	case w.status >= http.StatusBadRequest: // Do returns the fault
		return len(b), nil
	case w.to != nil:
		n, err = w.to.Write(b)
	case w.body.Len()+len(b) > MaxInnerAnswer:
		err = errors.New("the answer is too long")
	default:
		n, err = w.body.Write(b)
	}
	if err != nil {
		w.failed = err
	}
	return n, err
}
