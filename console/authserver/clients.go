package authserver

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/ratelimit"
)

// The bounds of a client.
const (
	maxRedirects = 10
	maxRedirect  = 1000 // bytes
	maxClientID  = 500  // bytes
	maxName      = 80   // characters
)

const (
	clientPrefix = "mcpc_"
	offline      = "offline_access"
)

// Client is a program that asks people for access.
type Client struct {
	ID        string   `json:"client_id"`
	Name      string   `json:"client_name"`
	Redirects []string `json:"redirect_uris"`
	// TokenAuth is that of the document of a client, "" for none.
	TokenAuth string `json:"token_endpoint_auth_method"`
}

// errNoClient reports a client that is not known, or no more.
var errNoClient = errors.New("there is no such client")

func invalidClient() *Error {
	return &Error{http.StatusUnauthorized, "invalid_client", "the client is not registered, or no more", 0}
}

// client finds a client. Only for a person who is signed in is a document fetched.
func (s *Service) client(ctx context.Context, id string) (Client, error) {
	switch {
	case len(id) > maxClientID:
		return Client{}, errNoClient
	case strings.HasPrefix(id, clientPrefix):
		c := Client{ID: id}
		err := s.DB.QueryRow(ctx, `select name, redirects from ops.oauth_clients where id = $1`, id).Scan(&c.Name, &c.Redirects)
		if errors.Is(err, pgx.ErrNoRows) {
			err = errNoClient
		}
		return c, wrap("find a client", err)
	case s.Documents.allow(id):
		return s.fetch(ctx, id)
	default:
		return Client{}, errNoClient
	}
}

// knows reports whether a client may use the token endpoint.
func (s *Service) knows(ctx context.Context, id string) error {
	if id == "" {
		return refuse(invalidRequest, "client_id is missing")
	}
	if s.Documents.allow(id) {
		return nil
	}
	if _, err := s.client(ctx, id); errors.Is(err, errNoClient) {
		return invalidClient()
	} else if err != nil {
		return err
	}
	return nil
}

// shownName is the name of a client as people see it: a line without control characters.
func shownName(name string) string {
	name = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(name, ""))
	return web.Cut(strings.TrimSpace(name), maxName)
}

// How long a client without a grant is kept: one that never had any, and one since its last one, which is known to a
// day.
const (
	newClient    = 24 * time.Hour
	unusedClient = 30*24*time.Hour + grantedCounts
)

// grantedCounts is how precisely the end of the last grant of a client is known.
const grantedCounts = 24 * time.Hour

func checkRedirects(list []string) error {
	if len(list) == 0 || len(list) > maxRedirects {
		return refuse(invalidRedirect, "redirect_uris has 1 to %d addresses", maxRedirects)
	}
	for _, address := range list {
		if err := checkRedirect(address); err != nil {
			return err
		}
	}
	return nil
}

// programs are schemes of programs that connect to /mcp and whose name has no dot. Each opens that program alone.
var programs = []string{
	"claude", "cursor", "goose", "kiro", "lmstudio", "raycast", "vscode", "vscode-insiders", "vscodium", "warp", "windsurf",
	"windsurf-next", "zed",
}

// domain is the name of a domain in reverse, as the scheme of a program is (RFC 8252, section 7.1). Its first label is
// that of a top-level domain, which leaves out x-apple.systempreferences and its like.
var domain = regexp.MustCompile(`^([a-z]{2,63}|xn--[a-z0-9-]{1,59})(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+$`)

// checkRedirect refuses addresses to which no code may be sent: https, http of this machine, and schemes that belong to
// a program are allowed. Any other scheme may make the system or the browser do something.
func checkRedirect(address string) error {
	u, err := url.Parse(address)
	printable := strings.IndexFunc(address, func(c rune) bool { return c <= ' ' || c > '~' || c == '\\' }) < 0
	switch {
	case err != nil || len(address) > maxRedirect || !printable || !u.IsAbs() || strings.Contains(address, "#"):
		return refuse(invalidRedirect, "a redirect address is absolute, of at most %d bytes, without fragment and spaces",
			maxRedirect)
	case u.User != nil:
		return refuse(invalidRedirect, "a redirect address names no user")
	case u.Scheme == "https":
		if u.Hostname() == "" || u.Opaque != "" {
			return refuse(invalidRedirect, "a redirect address of https names a host")
		}
	case u.Scheme == "http":
		if !isLoopback(u) {
			return refuse(invalidRedirect, "http is allowed for localhost, 127.0.0.1 and [::1] alone")
		}
	case !slices.Contains(programs, u.Scheme) && !domain.MatchString(u.Scheme):
		return refuse(invalidRedirect, "the scheme %.40s is refused: a program's own scheme is a domain in reverse, such as "+
			"com.example.app (RFC 8252), or one of %s", u.Scheme, strings.Join(programs, ", "))
	}
	return nil
}

// isLoopback reports whether a program of the person's machine listens at an address.
func isLoopback(u *url.URL) bool {
	return u.Scheme == "http" && u.User == nil && u.Opaque == "" &&
		slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, u.Hostname())
}

// allows reports whether a client registered an address. The port of one of this machine is free (RFC 8252).
func (c Client) allows(address string) bool {
	asked, err := url.Parse(address)
	if err != nil || checkRedirect(address) != nil {
		return false
	}
	return slices.ContainsFunc(c.Redirects, func(one string) bool {
		if one == address {
			return true
		}
		u, err := url.Parse(one)
		return err == nil && isLoopback(u) && isLoopback(asked) && u.Hostname() == asked.Hostname() &&
			u.EscapedPath() == asked.EscapedPath() && u.RawQuery == asked.RawQuery
	})
}

// returns shows where an address leads: a host, or the scheme of a program. remembers reports that nobody else can
// answer there, so that a person need not be asked again.
func returns(address string) (host string, loopback, remembers bool) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return "", false, false
	case u.Scheme == "https":
		return u.Host, false, true
	case isLoopback(u):
		return u.Hostname(), true, false
	default:
		return u.Scheme + ":", false, false
	}
}

const (
	// registrationsOfAll is how many times the registrations of one network address all of them may make in an hour,
	// since one attacker may have many. A part is kept for addresses that registered before (ratelimit.Standing).
	registrationsOfAll = 50
	// registeringSpan is the time in which registrations are counted.
	registeringSpan = time.Hour
	// rememberedClients is how many clients of a network address show its standing: the newest.
	rememberedClients = 200
)

// registration is a request to register (RFC 7591). What it does not name is ignored.
type registration struct {
	Name      string   `json:"client_name"`
	Redirects []string `json:"redirect_uris"`
	Kind      string   `json:"application_type"`
}

// registered is the answer. Fields that are not known are absent, never null.
type registered struct {
	ID            string   `json:"client_id"`
	IssuedAt      int64    `json:"client_id_issued_at"`
	Name          string   `json:"client_name,omitempty"`
	Redirects     []string `json:"redirect_uris"`
	Kind          string   `json:"application_type,omitempty"`
	GrantTypes    []string `json:"grant_types"`
	ResponseTypes []string `json:"response_types"`
	TokenAuth     string   `json:"token_endpoint_auth_method"`
	Scope         string   `json:"scope"`
}

func (s *Service) register(r *web.Request) (answer, error) {
	network := s.networkOf(r.Caller().String())
	if err := s.limitRegistration(r, network); err != nil {
		return answer{}, err
	}
	var in registration
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return answer{}, refuse(invalidMetadata, "want an object of JSON whose redirect_uris are a list of texts")
	}
	if err := checkRedirects(in.Redirects); err != nil {
		return answer{}, err
	}
	now := s.now()
	c := Client{ID: clientPrefix + newToken(), Name: shownName(in.Name), Redirects: in.Redirects}
	if _, err := s.DB.Exec(r.Context(), `insert into ops.oauth_clients (id, name, redirects, created_at, network)
		values ($1, $2, $3, $4, $5)`, c.ID, c.Name, c.Redirects, now, network); err != nil {
		return answer{}, fmt.Errorf("register a client: %w", err)
	}
	if in.Kind != "native" && in.Kind != "web" {
		in.Kind = ""
	}
	return answer{http.StatusCreated, registered{
		c.ID, now.Unix(), c.Name, c.Redirects, in.Kind,
		[]string{grantCode, grantRefresh},
		[]string{"code"},
		"none",
		strings.Join(append(auth.Scopes(), offline), " "),
	}}, nil
}

// networkOf is the keyed hash of a network address.
func (s *Service) networkOf(address string) []byte {
	mac := hmac.New(sha256.New, s.HashKey)
	mac.Write([]byte("registration of a client\x00" + address))
	return mac.Sum(nil)
}

// limitRegistration bounds the registrations of a network address, and of all of them together.
func (s *Service) limitRegistration(r *web.Request, network []byte) error {
	own := ratelimit.Cap{ID: uuid.UUID(network[:16]), Limit: s.Registrations}
	all := ratelimit.Cap{ID: uuid.Max, Limit: registrationsOfAll * s.Registrations, Reserved: true}
	retry, ok, err := s.registering.AllowAll(r.Context(), []ratelimit.Cap{own, all},
		func(ctx context.Context) ([]ratelimit.Standing, error) {
			standing, err := s.standing(ctx, network)
			return []ratelimit.Standing{ratelimit.Newcomer, standing}, err
		})
	if err == nil && !ok {
		err = tooMany("too many registrations of this network address, or of all programs: wait", retry)
	}
	return err
}

// standing returns what is known of the programs that registered from a network address.
func (s *Service) standing(ctx context.Context, network []byte) (standing ratelimit.Standing, err error) {
	err = s.DB.QueryRow(ctx, `with registered as (select id, created_at from ops.oauth_clients
			where network = $1 order by created_at desc limit $3)
		select case
			when exists (select from registered c join ops.oauth_grants g on g.client_key = sha256(convert_to(c.id, 'UTF8')))
				then $4::int
			when exists (select from registered where created_at <= $2) then $5::int
			else $6::int end`,
		network, s.now().Add(-registeringSpan), rememberedClients,
		int(ratelimit.Trusted), int(ratelimit.Returning), int(ratelimit.Newcomer)).Scan(&standing)
	return standing, wrap("find the standing of a network address", err)
}

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
