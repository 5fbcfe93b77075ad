package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/healthcheck"
)

// HealthcheckCmd is "annals healthcheck". It checks the service of this machine, for container
// engines whose image has no shell and no HTTP client. It reads the settings of the service.
type HealthcheckCmd struct {
	APIAddr string        `name:"api-addr" setting:"ANNALS_API_ADDR" default:"127.0.0.1:8080" help:"Address that the API of the service listens on."`
	OpsAddr string        `name:"ops-addr" setting:"ANNALS_OPS_ADDR" help:"Address that its operation routes listen on; default: that of the API."`
	TLSCert string        `name:"tls-cert" setting:"ANNALS_TLS_CERT" help:"Certificate file (PEM) of the service; with it the check speaks HTTPS."`
	Ready   bool          `name:"ready" help:"Ask whether the service can take calls (/readyz) instead of whether it runs (/healthz)."`
	Timeout time.Duration `name:"timeout" default:"4s" help:"How long the service may take to answer."`
	JSON    bool          `name:"json" help:"Print the result as one JSON value, also of a check that fails."`
}

// Run prints one line if the service is ready, and fails with one line otherwise.
func (c *HealthcheckCmd) Run(ctx context.Context, env *Env) error {
	address, err := c.address()
	if err != nil {
		return err
	}
	err = healthcheck.Ask(ctx, address, c.TLSCert, c.Timeout)
	if c.JSON {
		out := map[string]any{"url": address, "ok": err == nil, "error": nil}
		if err != nil {
			out["error"] = err.Error()
		}
		return errors.Join(printJSON(env.Stdout, out), err)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Stdout, "%s answers 200\n", address)
	return err
}

// address returns the URL of the check. It uses the loopback, or the one address that the service
// listens on.
func (c *HealthcheckCmd) address() (string, error) {
	setting, addr := "ANNALS_API_ADDR", c.APIAddr
	if c.OpsAddr != "" {
		setting, addr = "ANNALS_OPS_ADDR", c.OpsAddr
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "0" || !isAddr(addr) {
		return "", fmt.Errorf("%s is %q: want host:port, such as 127.0.0.1:8080", setting, addr)
	}
	switch ip := net.ParseIP(host); {
	case host == "" || ip != nil && ip.Equal(net.IPv4zero):
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		host = "::1"
	}
	address := url.URL{Scheme: "http", Host: net.JoinHostPort(host, port), Path: "/healthz"}
	if c.TLSCert != "" {
		address.Scheme = "https"
	}
	if c.Ready {
		address.Path = "/readyz"
	}
	return address.String(), nil
}
