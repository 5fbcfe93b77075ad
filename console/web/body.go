package web

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/annals-project/annals/internal/httpx"
)

const (
	// freeBody is the size up to which a body needs no reservation.
	freeBody = 4 << 10
	// bodyTime is the most time in which a body arrives. It does not count as that of the page.
	bodyTime = 5 * time.Minute
)

// receive reads the body of a request before it has a place. A short one is read at once. A longer one is read once
// the right of the caller was checked, and the caller is looked for again afterwards.
func (r *Request) receive() error {
	if r.Method != http.MethodPost {
		r.Body = http.NoBody
		return nil
	}
	limit := r.route.limit()
	if r.ContentLength > limit {
		return httpx.TooLarge(limit)
	}
	ctx, cancel := context.WithTimeout(r.base, bodyTime)
	defer cancel()
	among := r.site.places.visiting
	if r.known() || r.inside() {
		among = r.site.places.forms
	}
	body := httpx.NewArriving(ctx, r.w, r.Body, limit, r.open(among), freeBody)
	var start []byte
	if r.ContentLength <= pageBody {
		var err error
		if start, err = io.ReadAll(io.LimitReader(body, pageBody+1)); err != nil {
			return err
		}
	}
	if r.ContentLength <= pageBody && len(start) <= pageBody {
		r.arrived(start)
		r.begin()
		return body.End()
	}
	if err := r.receiveLong(start, body); err != nil {
		return err
	}
	r.begin()
	if err := body.End(); err != nil {
		return err
	}
	return r.identify()
}

// receiveLong reads a long body. Files go to the disk as they arrive.
func (r *Request) receiveLong(start []byte, body *httpx.Arriving) error {
	if err := r.checkRight(); err != nil {
		return err
	}
	if err := body.Reserve(r.open(r.site.places.longForms)); err != nil {
		return err
	}
	whole := io.MultiReader(bytes.NewReader(start), body)
	if !r.route.Public && r.isMultipart() {
		r.Body = io.NopCloser(whole)
		return r.readForm()
	}
	text, err := io.ReadAll(whole)
	r.arrived(text)
	return err
}

// arrived makes a body that is there that of the request. net/http reads more than 10 MiB of a form only if the body
// has a bound.
func (r *Request) arrived(body []byte) {
	r.Body = http.MaxBytesReader(nil, io.NopCloser(bytes.NewReader(body)), int64(len(body)))
}

// checkRight decides whether the caller may send a long body, at a place that is returned before the body arrives.
func (r *Request) checkRight() error {
	if r.route.Public {
		return nil // the program was found, or the route takes no long body
	}
	defer r.leave()
	if err := r.enter(); err != nil {
		return err
	}
	return r.authorize()
}

func (r *Request) isMultipart() bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/")
}
