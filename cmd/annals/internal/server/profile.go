package server

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/annals-project/annals/internal/panics"
)

const (
	// longestProfile bounds a profile, which otherwise takes as long as its caller asks for.
	longestProfile = 5 * time.Minute
	// maxProfileBody is the most bytes of the addresses that a caller asks the names of.
	maxProfileBody = 1 << 20
)

// profiler serves the profiler of Go. It does not serve the command line of the process, which may hold passwords.
type profiler struct {
	log     *slog.Logger
	longest time.Duration
}

// withOperation adds the profiler to the operation routes.
func (p profiler) withOperation(operation http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", operation)
	mux.Handle("/debug/pprof/", p.guard(pprof.Index))
	mux.Handle("/debug/pprof/profile", p.guard(pprof.Profile))
	mux.Handle("/debug/pprof/symbol", p.guard(pprof.Symbol))
	mux.Handle("/debug/pprof/trace", p.guard(pprof.Trace))
	return mux
}

// guard bounds a call in time and in bytes, and aborts it if it panics.
func (p profiler) guard(serve http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), p.longest)
		defer cancel()
		r = r.WithContext(ctx)
		r.Body = http.MaxBytesReader(w, r.Body, maxProfileBody)
		err := panics.Call(ctx, p.log, "profile failed", func() error { serve(w, r); return nil })
		if err != nil {
			panic(http.ErrAbortHandler) // the answer may have begun, so it must not look complete
		}
	})
}
