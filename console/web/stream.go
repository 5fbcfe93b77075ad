package web

import (
	"io"
	"net/http"
	"time"
)

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
