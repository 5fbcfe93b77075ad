package main

import (
	"context"
	"errors"
	"net"

	"github.com/annals-project/annals/internal/httpx"
)

// listeners are the addresses that a service listens on.
type listeners struct{ api, console net.Listener }

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
	return listeners{api, console}, nil
}

// close closes what nobody serves.
func (l listeners) close() error { return errors.Join(l.api.Close(), l.console.Close()) }

// consoleEdge is what the address of the console serves: the document that the challenge of every 401 names.
func (p *process) consoleEdge() *httpx.Console {
	return httpx.NewConsole(httpx.Config{Log: p.log, URLs: p.urls.auth()})
}
