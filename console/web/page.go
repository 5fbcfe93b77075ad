package web

import (
	"net/http"

	"github.com/annals-project/annals/internal/httpx"
)

// Page is a page of a template, whose data is loaded for each request.
type Page[T any] struct {
	file string
	load func(*Request) (T, error)
}

// NewPage returns the page of a template of the area.
func NewPage[T any](file string, load func(*Request) (T, error)) Page[T] { return Page[T]{file, load} }

// Show writes the page.
func (p Page[T]) Show(r *Request) error { return p.Again(r, nil) }

// Again writes the page with what is wrong with a form of it, nil for nothing. It returns errors that are no fault of
// the input.
func (p Page[T]) Again(r *Request, wrong error) error {
	if wrong != nil && httpx.Status(httpx.Fault(wrong).Kind) >= http.StatusInternalServerError {
		return wrong
	}
	data, err := p.load(r)
	if err != nil {
		return err
	}
	return r.Form(wrong, p.file, data)
}

// After serves a form of the page: do makes the change and returns where to go on to. There a notice shows what was
// done, by a key of words.go. If do fails, the page is shown again.
func (p Page[T]) After(done string, do func(*Request) (path string, err error)) func(*Request) error {
	return func(r *Request) error {
		path, err := do(r)
		if err != nil {
			return p.Again(r, err)
		}
		return r.Done(path, done)
	}
}
