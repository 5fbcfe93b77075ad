package main

import (
	"context"
	"errors"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/readapi"
)

// listeners are the addresses that a service listens on. ops is nil without an address of its own.
type listeners struct{ api, console, ops net.Listener }

// listenAll opens every address before anything else, so that a port in use is known at once.
func listenAll(ctx context.Context, s *Settings) (listeners, error) {
	api, err := listen(ctx, s.APIAddr, "--api-addr (ANNALS_API_ADDR)")
	if err != nil {
		return listeners{}, err
	}
	console, err := listen(ctx, s.ConsoleAddr, "--console-addr (ANNALS_CONSOLE_ADDR)")
	if err != nil {
		return listeners{}, errors.Join(err, api.Close())
	}
	if s.OpsAddr == "" {
		return listeners{api: api, console: console}, nil
	}
	ops, err := listen(ctx, s.OpsAddr, "--ops-addr (ANNALS_OPS_ADDR)")
	if err != nil {
		return listeners{}, errors.Join(err, api.Close(), console.Close())
	}
	return listeners{api, console, ops}, nil
}

// close closes what nobody serves.
func (l listeners) close() error {
	err := errors.Join(l.api.Close(), l.console.Close())
	if l.ops != nil {
		err = errors.Join(err, l.ops.Close())
	}
	return err
}

// consoleEdge is what the address of the console serves: the document that the challenge of every 401 names.
func (p *process) consoleEdge() *httpx.Console {
	return httpx.NewConsole(httpx.Config{Log: p.log, URLs: p.urls.auth()})
}

// operation is what operators read: on an address of its own with causes, on that of the API without.
func (p *process) operation(metrics prometheus.Gatherer) readapi.Operation {
	return readapi.Operation{Ready: p.notReady, Remarks: p.remarks, Metrics: metrics, Log: p.log, Private: p.listening.ops != nil}
}
