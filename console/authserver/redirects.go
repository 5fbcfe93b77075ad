package authserver

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

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
