package server

import (
	"net/http"
	"net/http/pprof"
	"time"
)

// profileTimeout bounds the answer of the profiler: a profile takes as long as its caller asks for, and an operation
// route has less.
const profileTimeout = 5 * time.Minute

// withProfiler adds the profiler of Go to the operation routes.
func withProfiler(operation http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", operation)
	for path, serve := range map[string]http.HandlerFunc{
		"/debug/pprof/": pprof.Index, "/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol": pprof.Symbol, "/debug/pprof/trace": pprof.Trace,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			// A writer that cannot change its deadline keeps that of the server.
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(profileTimeout))
			serve(w, r)
		})
	}
	return mux
}
