package web

import (
	"cmp"
	"strings"
)

// maxTrail bounds the cursors of the pages before, in characters: after about a hundred pages, Previous skips some.
const maxTrail = 4_000

// trail is the place of a page in a list that is read forwards only: the cursors of the pages up to it, each after a
// mark.
func (r *Request) trail() string {
	query := r.URL.Query()
	return cmp.Or(query.Get("after"), query.Get("before"))
}

// Cursor is the cursor of the page of a list that is read forwards only, "" for the first one.
func (r *Request) Cursor() string {
	trail := r.trail()
	return trail[strings.LastIndex(trail, "~")+1:]
}

// Forwards are the links of a list that is read forwards only: next is the cursor of the page after, "" for none.
func (r *Request) Forwards(next string) (p Pager) {
	trail := strings.TrimSuffix(r.trail(), "~")
	if at := strings.LastIndex(trail, "~"); at >= 0 {
		p.Previous = cmp.Or(trail[:at], "~")
	}
	if next == "" {
		return p
	}
	if len(trail) > maxTrail {
		trail = trail[strings.Index(trail[1:], "~")+1:]
	}
	p.Next = trail + "~" + next
	return p
}
