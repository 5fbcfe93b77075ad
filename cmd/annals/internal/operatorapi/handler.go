// Package operatorapi is the API that the person who runs the service uses through a socket in the
// data folder: the operations with their routes, and a client. It translates requests into commands and queries, whose
// types are its JSON, and nothing else. Root and the user of the service may connect.
package operatorapi

import (
	"encoding/json"
	"log/slog"
	"net/http"
)

// Route is one route of the socket: an Operation with Serve, or a stream of lines.
type Route struct {
	pattern string
	handler func(answers) http.HandlerFunc
}

// Handler serves routes. It requires no credential: serve it on the socket only.
func Handler(logger *slog.Logger, routes ...Route) http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.HandleFunc(r.pattern, r.handler(answers{logger}))
	}
	return mux
}

// Otherwise refuses every request that no other route serves.
func Otherwise(reason string) Route {
	return Route{"/", func(out answers) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { out.refuse(w, r, Refuse("%s", reason)) }
	}}
}

// answers writes the answers that are common to all routes.
type answers struct{ logger *slog.Logger }

func (a answers) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status, body := refusalOf(err)
	if status == http.StatusInternalServerError {
		a.logger.ErrorContext(r.Context(), "operator request failed", "path", r.URL.Path, "err", err)
	}
	a.write(w, r, status, body)
}

func (a answers) write(w http.ResponseWriter, r *http.Request, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		a.notWritten(r, err)
	}
}

func (a answers) notWritten(r *http.Request, err error) {
	a.logger.DebugContext(r.Context(), "operator answer not written", "path", r.URL.Path, "err", err)
}
