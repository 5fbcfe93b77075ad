package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/readlog"
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

const (
	// freePage is the size up to which a page is made without a reservation. Longer ones are made in parts of it.
	freePage = 256 << 10
	// jsonCopies is the memory of a byte of JSON while it is indented: as it is, and twice in a buffer that grows.
	jsonCopies = 4
)

// remember has what the request reads and makes reserved of the bytes of answers, as an answer of the API is, until it
// is written: what the queries reserve by its context, too.
func (r *Request) remember() {
	o := r.owner()
	if r.SignedIn() {
		o.Project = r.Project.Project.ID
	}
	if r.site.Answers != nil {
		r.memory = r.site.Answers.Open(o)
		r.holds = append(r.holds, r.memory)
	}
	r.Request = r.WithContext(allowance.NewContext(r.Context(), r.memory))
}

// Reserve reserves bytes of memory that the handler makes of what it read, until the answer is written.
func (r *Request) Reserve(n int64) error { return r.memory.Reserve(r.Context(), n) }

// made is a page that is being made, in parts of about freePage.
type made struct {
	r      *Request
	parts  []*bytes.Buffer
	length int
}

// Write implements io.Writer.
func (m *made) Write(p []byte) (int, error) {
	last := len(m.parts) - 1
	if last < 0 || m.parts[last].Len()+len(p) > freePage {
		if last >= 0 || len(p) > freePage {
			if err := m.r.Reserve(int64(max(len(p), freePage))); err != nil {
				return 0, err
			}
		}
		m.parts, last = append(m.parts, &bytes.Buffer{}), last+1
	}
	m.length += len(p)
	return m.parts[last].Write(p)
}

// indented is data as JSON for people.
func (r *Request) indented(data any) ([]byte, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	if len(text) > freePage {
		if err := r.Reserve(jsonCopies * int64(len(text))); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	err = json.Indent(&out, text, "", "  ")
	return out.Bytes(), err
}

// Stream writes an answer of any length, as a file to save if it has a name. It holds no place of pages but one of an
// organization and person among exports, and ends when the client leaves or the person loses the right. An error after
// the first byte breaks the answer off, so that the reader notices.
func (r *Request) Stream(contentType, file string, write func(io.Writer) error) error {
	if err := r.mayAnswer(); err != nil {
		return err
	}
	r.leave()
	o := r.owner()
	o.Project = r.Person.ID
	out := &stream{
		sender: sender{r, r.site.places.exports.Open(o)}, contentType: contentType, file: file, asked: time.Now(),
	}
	defer out.hold.Release()
	if err := out.hold.Reserve(r.Context(), 1); err != nil {
		return err
	}
	err := write(out)
	if err == nil {
		_, err = out.Write(nil)
	}
	if err != nil && out.begun {
		r.site.Logger.WarnContext(r.Context(), "page aborted", "requestId", r.ID(), "route", r.route.Pattern, "err", err)
		panic(http.ErrAbortHandler)
	}
	return err
}

// stream writes the headers before the first byte.
type stream struct {
	sender

	contentType, file string
	begun             bool
	asked             time.Time
}

// Write implements io.Writer. After rightTime it asks for the right again. If the reads of the project are proved, what
// a part shows is in the log before it.
func (s *stream) Write(p []byte) (int, error) {
	if time.Since(s.asked) > rightTime {
		if err := s.r.Again(); err != nil {
			return 0, err
		}
		s.asked = time.Now()
	}
	if err := s.r.Store(); err != nil {
		return 0, err
	}
	if !s.begun {
		s.begun = true
		s.r.name(s.file)
		s.r.header(s.contentType, 0)
	}
	return s.sender.Write(p)
}

// Attach writes a file that is made, which browsers save.
func (r *Request) Attach(file, contentType string, body []byte) error {
	if err := r.mayAnswer(); err != nil {
		return err
	}
	r.name(file)
	return r.send(contentType, body)
}

// name has browsers save the answer under a name, unless it is "".
func (r *Request) name(file string) {
	if file != "" {
		r.w.Header().Set("Content-Disposition", `attachment; filename="`+notInFiles.ReplaceAllString(file, "-")+`"`)
	}
}

// recorded serves the page, and records what it shows of a project that wants that.
func (r *Request) recorded() error {
	if r.site.Reads == nil || r.Project.Project.Reads == "" {
		return r.route.Serve(r)
	}
	read, err := r.site.Reads.Open(r.Context(), r.principal(), r.ID(), r.Now())
	if err != nil {
		return err
	}
	answered := true // also if the answer breaks off, which is a panic
	defer func() { read.End(answered) }()
	r.Request = r.WithContext(readlog.NewContext(r.Context(), read))
	err = r.route.Serve(r)
	answered = err == nil || errors.Is(err, errAnswered)
	return err
}

// Store returns once what the answer shows so far is in the log, if the reads of the project are proved.
// What writes an answer by Writer calls it first; the methods of Request that write one do it themselves.
func (r *Request) Store() error { return readlog.From(r.Context()).Store(r.Context()) }
