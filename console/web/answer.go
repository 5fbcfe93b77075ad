package web

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/httpx"
)

const (
	// freeAnswer is the size up to which an answer needs no reservation: the system takes it without a reader.
	freeAnswer = 16 << 10
	// sendStep is the most bytes that are written before it is noticed that a reader goes on.
	sendStep = 32 << 10
	// rightTime is after which time an answer that is still written asks for the right again.
	rightTime = 10 * time.Second
)

// Text writes a text that is made.
func (r *Request) Text(contentType, text string) error {
	if err := r.mayAnswer(); err != nil {
		return err
	}
	return r.send(contentType, []byte(text))
}

// send writes an answer that is made. It holds no place meanwhile.
func (r *Request) send(contentType string, body []byte) error {
	out, err := r.deliver(len(body))
	if err != nil {
		return err
	}
	r.header(contentType, len(body))
	_, _ = out.Write(body) // a browser that left reads no more
	return nil
}

// Buffered writes what a handler answers, which is bounded, once the answer is made.
func (r *Request) Buffered(handler http.Handler, call *http.Request) error {
	made := &buffer{header: r.w.Header()}
	handler.ServeHTTP(made, call)
	out, err := r.deliver(made.body.Len())
	if err != nil {
		return err
	}
	if made.status != 0 {
		r.w.WriteHeader(made.status)
	}
	_, _ = out.Write(made.body.Bytes()) // a client that left reads no more
	return nil
}

// buffer holds an answer that is being made.
type buffer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (b *buffer) Header() http.Header { return b.header }

// WriteHeader implements http.ResponseWriter.
func (b *buffer) WriteHeader(status int) {
	if b.status == 0 {
		b.status = status
	}
}

// Write implements io.Writer.
func (b *buffer) Write(p []byte) (int, error) { return b.body.Write(p) }

// Flush implements http.Flusher: all is written at the end.
func (b *buffer) Flush() {}

// deliver returns the place of the work, and counts n bytes of an answer until it is read. What the answer shows is in
// the log then, if the reads of the project are proved.
func (r *Request) deliver(n int) (io.Writer, error) {
	if err := r.Store(); err != nil {
		return nil, err
	}
	r.leave()
	hold := r.open(r.site.places.unread)
	if n > freeAnswer {
		if err := hold.Reserve(r.Context(), int64(n)); err != nil {
			return nil, err
		}
	}
	return sender{r, hold}, nil
}

// sender writes what a hold and the memory of the request count. If others wait for it and the client reads nothing,
// the answer is broken off.
type sender struct {
	r    *Request
	hold *allowance.Hold
}

// Write implements io.Writer.
func (s sender) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		hangUp := httpx.HangUp(s.r.w, s.r.Request)
		s.hold.Await(hangUp)
		s.r.memory.Await(hangUp)
		m, err = s.r.w.Write(p[n:min(len(p), n+sendStep)])
		n += m
		if sent, remembered := s.hold.Moved(m), s.r.memory.Moved(m); !sent || !remembered {
			panic(http.ErrAbortHandler) // the client must notice that the answer is incomplete
		}
	}
	return n, err
}

// Again asks for the right of the person again: whether the session, the membership and the role still allow what the
// request is answered with. Answers that take long ask it at each part.
func (r *Request) Again() error {
	for {
		err := r.again()
		if err == nil || httpx.Fault(err).Kind != fault.Unavailable {
			return err
		}
		select { // nothing is known: that does not end an answer, which waits
		case <-time.After(time.Second):
		case <-r.Context().Done():
			return err
		}
	}
}
