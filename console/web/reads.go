package web

import (
	"errors"

	"github.com/annals-project/annals/internal/readlog"
)

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
