package web

import "io"

// Stream writes an answer of any length, as a file to save if it has a name. An error after the first byte breaks the
// answer off, so that the reader notices.
func (r *Request) Stream(contentType, file string, write func(io.Writer) error) error {
	if file != "" {
		r.w.Header().Set("Content-Disposition", `attachment; filename="`+file+`"`)
	}
	out := &stream{r: r, contentType: contentType}
	err := write(out)
	if err != nil && out.begun {
		panic(abort(r, err))
	}
	if err == nil && !out.begun {
		r.header(contentType, 0)
	}
	if err != nil {
		r.w.Header().Del("Content-Disposition")
	}
	return err
}

// stream writes the headers before the first byte.
type stream struct {
	r           *Request
	contentType string
	begun       bool
}

// Write implements io.Writer.
func (s *stream) Write(p []byte) (int, error) {
	if !s.begun {
		s.begun = true
		s.r.header(s.contentType, 0)
	}
	return s.r.w.Write(p)
}
