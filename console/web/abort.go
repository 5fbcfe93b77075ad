package web

import "net/http"

// abort logs why an answer that has begun cannot go on, and returns what breaks the connection off.
func abort(r *Request, err error) error {
	r.site.Logger.WarnContext(r.Context(), "page aborted", "requestId", r.ID(), "route", r.route.Pattern, "err", err)
	return http.ErrAbortHandler
}
