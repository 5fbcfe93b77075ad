package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/panics"
)

// drainTimeout is how long open requests may take once the service stops.
const drainTimeout = 10 * time.Second

// listeners are the addresses that a service listens on. console is nil without its role, ops if the
// API's address serves the operation routes.
type listeners struct{ api, console, ops net.Listener }

// listenAll listens on every address before anything else starts, so that a used port is reported
// at once.
func listenAll(ctx context.Context, cfg Config) (listeners, error) {
	api, err := listen(ctx, cfg.APIAddr, "ANNALS_API_ADDR (--api-addr)")
	if err != nil {
		return listeners{}, err
	}
	l := listeners{api: api}
	if cfg.Roles.Has(RoleConsole) {
		if l.console, err = listen(ctx, cfg.ConsoleAddr, "ANNALS_CONSOLE_ADDR (--console-addr)"); err != nil {
			return listeners{}, errors.Join(err, l.close())
		}
	}
	if cfg.OpsAddr != "" {
		if l.ops, err = listen(ctx, cfg.OpsAddr, "ANNALS_OPS_ADDR (--ops-addr)"); err != nil {
			return listeners{}, errors.Join(err, l.close())
		}
	}
	return l, nil
}

// listen listens on an address. An error names its setting.
func listen(ctx context.Context, addr, setting string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("the address %s is in use: stop what listens there, or choose another with %s", addr, setting)
	}
	if err != nil {
		return nil, fmt.Errorf("the address of %s cannot be listened on: %w", setting, err)
	}
	return l, nil
}

// close closes listeners that are not served.
func (l listeners) close() error {
	var err error
	for _, open := range []net.Listener{l.api, l.console, l.ops} {
		if open != nil {
			err = errors.Join(err, open.Close())
		}
	}
	return err
}

// opening admits calls of the API once the service is ready. It never refuses the reads of
// operators.
type opening struct {
	open     atomic.Bool
	draining atomic.Bool
	// wentBack returns why the log is an older copy, nil if it is not.
	wentBack func() error
}

// reason returns why the service itself is not ready, "" if it is.
func (a *opening) reason() condition.Reason {
	switch {
	case a.draining.Load():
		return "the service is stopping"
	case !a.open.Load():
		return "the service is starting"
	default:
		return ""
	}
}

// admit refuses a call until the service is ready, and once the log went back. A stopping service still admits calls.
func (a *opening) admit() error {
	if err := a.wentBack(); err != nil {
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "%s", err.Error())
	}
	if a.open.Load() {
		return nil
	}
	return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "the service is starting; retry")
}

// webServer serves handlers over HTTP.
type webServer struct {
	// connections bounds the connections of all addresses together.
	connections *httpx.Connections
	admission   *opening
	// certificate loads the certificate of all addresses; nil means plain HTTP.
	certificate func() (*httpx.Certificate, error)
	logger      *slog.Logger
}

func newWebServer(cfg Config, opening *opening) *webServer {
	w := &webServer{
		connections: httpx.NewConnections(httpx.ConnectionLimit()), admission: opening, logger: cfg.Logger,
	}
	if cfg.TLSCert != "" {
		w.certificate = sync.OnceValues(func() (*httpx.Certificate, error) {
			return httpx.LoadCertificate(cfg.TLSCert, cfg.TLSKey, cfg.Logger)
		})
	}
	return w
}

// serve returns a task that serves until the context ends, then waits for the open requests.
func (w *webServer) serve(l net.Listener, handler http.Handler) func(context.Context) error {
	return func(ctx context.Context) error {
		l := w.connections.Listen(l)
		if w.certificate != nil {
			certificate, err := w.certificate()
			if err != nil {
				return err
			}
			handler = httpx.StrictTransport(handler)
			// Without a protocol offer only HTTP/1.1 is spoken, so no connection carries many requests at
			// once.
			l = tls.NewListener(l, &tls.Config{GetCertificate: certificate.Get, MinVersion: tls.VersionTLS12})
		}
		server := httpx.NewServer(handler, w.logger)
		served := make(chan error, 1)
		go func() { served <- server.Serve(l) }()
		select {
		case err := <-served:
			return err
		case <-ctx.Done():
		}
		w.admission.draining.Store(true)
		drainCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		err := server.Shutdown(drainCtx)
		if errors.Is(err, context.DeadlineExceeded) {
			w.logger.Warn("drain timeout passed, open requests are aborted", "after", drainTimeout.String())
			err = server.Close()
		}
		<-served // http.ErrServerClosed
		return err
	}
}

// what is the sentence that the pages at / begin with.
const what = "Annals is a memory service: it takes timestamped text and returns what is remembered, with its sources. "

// operationLinks are the links of the address that serves the operation routes.
var operationLinks = []httpx.Link{
	{Target: "/healthz", Text: "Whether the service runs"},
	{Target: "/readyz", Text: "Whether it takes calls, and why not"},
	{Target: "/metrics", Text: "Metrics"},
}

// homeOfAPI is the page at / of the API's address.
func homeOfAPI(roles Roles, ownOps bool) httpx.Home {
	page := httpx.Home{
		Title: "Annals: API", Text: what + "Programs call this address under /api/v1 with a project key.",
	}
	if roles.Has(RoleRead) {
		page.Links = append(page.Links, httpx.Link{Target: "/openapi.yaml", Text: "Every call of the API (OpenAPI)"})
	}
	if ownOps {
		page.Links = append(page.Links, operationLinks[0])
	} else {
		page.Links = append(page.Links, operationLinks...)
	}
	return page
}

// homeOfOperation is the page at / of the operators' address.
func homeOfOperation() httpx.Home {
	return httpx.Home{Title: "Annals: operation", Text: what + "This address is for operators.", Links: operationLinks}
}

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
