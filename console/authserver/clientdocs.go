package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Documents are which clients are read from their address (client id metadata documents). The zero value is none.
type Documents struct {
	On bool
	// Hosts are those that documents are read from, nil for every public one.
	Hosts []string
}

// ParseDocuments reads a setting: off, on, or hosts separated by commas.
func ParseDocuments(setting string) (Documents, error) {
	switch setting {
	case "", "off":
		return Documents{}, nil
	case "on":
		return Documents{On: true}, nil
	}
	d := Documents{On: true}
	for host := range strings.SplitSeq(setting, ",") {
		host = strings.ToLower(strings.TrimSpace(host))
		if u, err := url.Parse("https://" + host); err != nil || host == "" || u.Hostname() != host {
			return Documents{}, fmt.Errorf("is %q: want off, on, or hosts such as claude.ai,vscode.dev", setting)
		}
		d.Hosts = append(d.Hosts, host)
	}
	return d, nil
}

// allow reports whether a client id is an address from which documents are read: https, with a path, nothing that
// another spelling could stand for, and the default port.
func (d Documents) allow(id string) bool {
	u, err := url.Parse(id)
	return d.On && err == nil && len(id) <= maxClientID && u.Scheme == "https" && u.User == nil && u.Port() == "" &&
		u.Hostname() != "" && u.Host == strings.ToLower(u.Host) && u.Path != "" && u.Path != "/" &&
		path.Clean(u.Path) == strings.TrimSuffix(u.Path, "/") && u.String() == id && !strings.ContainsAny(id, "#?") &&
		(d.Hosts == nil || slices.Contains(d.Hosts, u.Host))
}

// The bounds of a document, and how long it is remembered.
const (
	fetchTime    = 5 * time.Second
	maxDocument  = 64 << 10
	fetchedLives = time.Hour
	failureLives = time.Minute
)

// fetched is a document, or why there is none.
type fetched struct {
	client Client
	err    error
	until  time.Time
}

// documentError reports a document that cannot be used.
type documentError struct{ reason string }

// Error implements error.
func (e *documentError) Error() string { return "the document of the client " + e.reason }

// fetch reads the document of a client, or remembers it.
func (s *Service) fetch(ctx context.Context, id string) (Client, error) {
	s.mu.Lock()
	known, ok := s.fetched.Get(id)
	s.mu.Unlock()
	now := s.Now()
	if ok && now.Before(known.until) {
		return known.client, known.err
	}
	c, err := s.read(ctx, id)
	lives := fetchedLives
	if err != nil {
		lives = failureLives
	}
	if _, is := errors.AsType[*documentError](err); is || err == nil {
		s.mu.Lock()
		s.fetched.Add(id, fetched{c, err, now.Add(lives)})
		s.mu.Unlock()
	}
	return c, err
}

func (s *Service) read(ctx context.Context, id string) (Client, error) {
	limit, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	req, err := http.NewRequestWithContext(limit, http.MethodGet, id, nil)
	if err != nil {
		return Client{}, err
	}
	req.Header.Set("Accept", "application/json")
	res, err := s.Fetch.RoundTrip(req) // follows no redirect
	if err != nil {
		if ctx.Err() != nil {
			return Client{}, ctx.Err()
		}
		return Client{}, &documentError{"cannot be read: its host does not answer, or is no public one"}
	}
	defer func() { _ = res.Body.Close() }() // was read
	text, err := io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	var c Client
	switch {
	case err != nil || res.StatusCode != http.StatusOK:
		return Client{}, &documentError{fmt.Sprintf("cannot be read: status %d", res.StatusCode)}
	case len(text) > maxDocument:
		return Client{}, &documentError{"is too long"}
	case json.Unmarshal(text, &c) != nil:
		return Client{}, &documentError{"is no object of JSON with a client_id and redirect_uris"}
	case c.ID != id:
		return Client{}, &documentError{"is that of another client"}
	case c.TokenAuth != "" && c.TokenAuth != "none":
		return Client{}, &documentError{"asks for a secret: token_endpoint_auth_method is none here"}
	}
	if err := checkRedirects(c.Redirects); err != nil {
		return Client{}, &documentError{"has redirect_uris that are refused: " + err.Error()}
	}
	c.Name = shownName(c.Name)
	return c, nil
}

// publicTransport connects to public addresses alone, whatever a name resolves to when it is dialed.
func publicTransport() http.RoundTripper {
	dialer := &net.Dialer{Timeout: fetchTime, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil || !isPublic(to.Addr()) {
			return errors.New("the address is not public")
		}
		return nil
	}}
	return &http.Transport{
		DialContext: dialer.DialContext, TLSHandshakeTimeout: fetchTime, ResponseHeaderTimeout: fetchTime,
		DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10,
	}
}

// special are networks that are not public though netip counts them as global: shared address space, translations that
// lead to any IPv4 address, tests, documentation and what is reserved.
var special = func() (list []netip.Prefix) {
	for _, one := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24", "240.0.0.0/4", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32",
		"2002::/16", "3fff::/20", "5f00::/16", "fec0::/10",
	} {
		list = append(list, netip.MustParsePrefix(one))
	}
	return list
}()

func isPublic(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return a.IsGlobalUnicast() && !a.IsPrivate() &&
		!slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(a) })
}
