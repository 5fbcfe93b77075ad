package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/httpx"
)

// drainPatience is how long requests under way may take to end once the process is asked to.
const drainPatience = 10 * time.Second

// listen opens an address; setting is what chooses another one.
func listen(ctx context.Context, addr, setting string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("the address %s is in use: stop what listens there, or choose another with %s", addr, setting)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return l, nil
}

// door lets calls of the API through once the start is over. The reads of operators always get through.
type door struct {
	open     atomic.Bool
	draining atomic.Bool
}

// reason is why the service is not ready by itself, "" where it is.
func (d *door) reason() string {
	switch {
	case d.draining.Load():
		return "the service is stopping"
	case !d.open.Load():
		return "the service is starting"
	default:
		return ""
	}
}

// gate refuses calls until the door is open. A call that arrives while the service stops is served as long as it can be.
func (d *door) gate() error {
	if d.open.Load() {
		return nil
	}
	return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "the service is starting; retry")
}

// serveHTTP serves until the context ends, then lets the requests under way end.
func (p *process) serveHTTP(l net.Listener, handler http.Handler) func(context.Context) error {
	return func(ctx context.Context) error {
		s, log := p.settings, p.log
		server := httpx.NewServer(handler, log)
		l = p.connections.Listen(l)
		if s.TLSCert != "" {
			certificate, err := tls.LoadX509KeyPair(s.TLSCert, s.TLSKey)
			if err != nil {
				return fmt.Errorf("load the certificate: %w", err)
			}
			// It offers no protocol, so HTTP/1.1 alone is spoken: no connection carries many requests at once.
			l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
		}
		served := make(chan error, 1)
		go func() { served <- server.Serve(l) }()
		select {
		case err := <-served:
			return err
		case <-ctx.Done():
		}
		p.door.draining.Store(true)
		drainCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainPatience)
		defer cancel()
		err := server.Shutdown(drainCtx)
		if errors.Is(err, context.DeadlineExceeded) {
			log.Warn("requests were cut off", "after", drainPatience.String())
			err = server.Close()
		}
		<-served // http.ErrServerClosed
		return err
	}
}
