package httpx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
)

// MaxInnerAnswer is the most bytes of the answer to an inner call.
const MaxInnerAnswer = 16 << 20

// Inner makes calls of the API in the process, for people at the console and for tools. They pass the edge as calls
// from outside do, so they are admitted, charged and logged alike. Only the caller is given instead of a key, and the
// limit of calls a minute of an organization does not count what people do at the console.
type Inner struct {
	// API is the router of New.
	API http.Handler
}

// InnerCall is a call in the process.
type InnerCall struct {
	// As is the caller with the project that the call may touch. Whether it may make the call was checked before.
	As                        auth.Principal
	Method, Path, ContentType string
	Body                      []byte
	// Test marks an event of a webhook as one that a person sent to try the webhook, Replay as one whose body is that of
	// an event before.
	Test, Replay bool
	// Tool is the tool of MCP that makes the call, "" for the console. The row of the call in the request log has the
	// method MCP and names the tool.
	Tool string
}

// MCPMethod and MCPPath are what a call by a tool has in the request log instead of its method and path. The path goes
// on with the name of the tool.
const (
	MCPMethod = "MCP"
	MCPPath   = "/mcp#"
)

// InnerAnswer is the answer to a call in the process. RequestID is that of its row in the request log.
type InnerAnswer struct {
	RequestID uuid.UUID
	Status    int
	Body      []byte
}

// Do makes a call. The error is the fault that refused it; the answer then has the id of the request alone.
func (i Inner) Do(ctx context.Context, call InnerCall) (InnerAnswer, error) {
	state := &inner{call: call}
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
	w := &innerWriter{header: http.Header{}, status: http.StatusOK}
	if err := i.serve(w, req); err != nil {
		return InnerAnswer{RequestID: state.id}, err
	}
	if state.refusal != nil {
		return InnerAnswer{RequestID: state.id}, state.refusal
	}
	return InnerAnswer{RequestID: state.id, Status: w.status, Body: w.body.Bytes()}, nil
}

// serve serves a request. The edge panics if the answer breaks off.
func (i Inner) serve(w *innerWriter, req *http.Request) (err error) {
	defer func() {
		v := recover()
		if failed, is := v.(error); is && errors.Is(failed, http.ErrAbortHandler) {
			err = fault.New(fault.Internal, fault.CodeInternal, "the answer broke off")
			if w.full {
				err = fault.New(fault.TooLarge, fault.CodeContentTooLarge, "the answer has more than %d bytes: ask the API for it",
					MaxInnerAnswer)
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
}

// innerOf returns the state of a call in the process, nil for a call from outside.
func innerOf(req *http.Request) *inner {
	call, _ := req.Context().Value(innerKey{}).(*inner)
	return call
}

// innerWriter holds an answer.
type innerWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
	full   bool
}

// Header implements http.ResponseWriter.
func (w *innerWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *innerWriter) WriteHeader(status int) { w.status = status }

// Write implements io.Writer.
func (w *innerWriter) Write(b []byte) (int, error) {
	if w.body.Len()+len(b) > MaxInnerAnswer {
		w.full = true
		return 0, errors.New("the answer is too long")
	}
	return w.body.Write(b)
}
