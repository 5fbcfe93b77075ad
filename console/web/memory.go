package web

import (
	"bytes"
	"encoding/json"

	"github.com/annals-project/annals/internal/allowance"
)

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
