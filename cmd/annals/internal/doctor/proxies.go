package doctor

import (
	"context"
	"net"
	"net/url"

	client "github.com/annals-project/annals/client"
)

// checkProxies reports a proxy for calls to others that does not answer, and a public address that does not lead to the
// running service.
func (e *examination) checkProxies(ctx context.Context, running bool) {
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY"} {
		if text := e.Getenv(name); text != "" {
			e.checkOutgoing(ctx, name, text)
		}
	}
	public := e.Settings["ANNALS_API_URL"]
	if public == "" {
		return
	}
	if e.Settings["ANNALS_TRUSTED_PROXIES"] == "" && e.Service.TLSCert == "" {
		e.note("proxy", "set ANNALS_TRUSTED_PROXIES to the network of the proxy, or all callers share one throttle",
			"ANNALS_API_URL is set, and no proxy is trusted")
	}
	if running {
		e.checkPublic(ctx, public)
	}
}

// checkOutgoing reports a proxy that does not answer. It does not repeat the password of its address.
func (e *examination) checkOutgoing(ctx context.Context, name, text string) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		e.broken("proxy", "write it as http://host:port, or unset it", "%s is no address", name)
		return
	}
	addr := u.Host
	if u.Port() == "" {
		port := "80"
		if u.Scheme == "https" {
			port = "443"
		}
		addr = net.JoinHostPort(u.Hostname(), port)
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		e.broken("proxy", "start it or unset "+name+"; hosts in NO_PROXY are called without it",
			"the proxy that %s names does not answer: %v", name, err)
		return
	}
	_ = conn.Close() // nothing was sent
	e.ok("proxy", "the proxy that %s names answers", name)
}

// checkPublic reports a public address that does not lead to a service.
func (e *examination) checkPublic(ctx context.Context, public string) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	const remedy = "let the proxy pass every path to the address of ANNALS_API_ADDR, or correct ANNALS_API_URL"
	to, err := client.New(public, "", client.WithMaxAttempts(1))
	if err == nil {
		_, err = to.Health(ctx)
	}
	if err != nil {
		e.broken("proxy", remedy, "ANNALS_API_URL %s does not lead to the service: %v", public, err)
		return
	}
	e.ok("proxy", "ANNALS_API_URL %s leads to a service", public)
}
