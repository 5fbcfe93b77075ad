package authserver

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/console/web"
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

// unsafe are schemes that run or read something in the browser, or are no way back to a program.
var unsafe = []string{
	"javascript", "data", "vbscript", "file", "blob", "about", "filesystem", "view-source", "ws", "wss", "ftp", "mailto",
}

// checkRedirect refuses addresses to which no code may be sent: https, http of this machine, and schemes that belong to
// a program are allowed.
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
	case slices.Contains(unsafe, u.Scheme):
		return refuse(invalidRedirect, "the scheme %s is refused", u.Scheme)
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
	if checkRedirect(address) != nil {
		return false
	}
	asked, _ := url.Parse(address) // checked
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

// unusedClient is how long a client without a grant is kept.
const unusedClient = 30 * 24 * time.Hour
