package authserver

import (
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/annals-project/annals/internal/auth"
)

// Resource is a resource that tokens are for: a path of auth.MCPPaths.
func (s *Service) Resource(path string) string { return s.URLs.Console + path }

// resourceOf returns the resource that a request names, "" if it names none. It refuses to make tokens for anything but
// the paths of MCP: tokens for the API are those of agents.
func (s *Service) resourceOf(p parameters) (named string, err error) {
	for _, spelled := range p["resource"] {
		at := slices.IndexFunc(auth.MCPPaths(), func(path string) bool {
			return normal(spelled) == normal(s.Resource(path))
		})
		if at < 0 || named != "" && named != s.Resource(auth.MCPPaths()[at]) {
			return "", refuse(invalidTarget, "the resource is %s", s.Resource(auth.MCPPath))
		}
		named = s.Resource(auth.MCPPaths()[at])
	}
	return named, nil
}

// serves reports whether an address is a resource of this service. It is none any more if the service has moved.
func (s *Service) serves(resource string) bool {
	return slices.ContainsFunc(auth.MCPPaths(), func(path string) bool { return s.Resource(path) == resource })
}

// escaped is an escape of a character that needs none (RFC 3986, section 2.3).
var escaped = regexp.MustCompile(`%(4[1-9A-Fa-f]|5[0-9Aa]|6[1-9A-Fa-f]|7[0-9Aa]|3[0-9]|2[DdEe]|5[Ff]|7[Ee])`)

// normal is an address in the one spelling of those that RFC 3986, section 6.2, calls equal, and without a slash at its
// end. It is "" for what names no resource: a part besides scheme, host and path.
func normal(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(address, "#") {
		return ""
	}
	scheme, host := strings.ToLower(u.Scheme), strings.ToLower(u.Hostname())
	port := u.Port()
	if port == map[string]string{"https": "443", "http": "80"}[scheme] {
		port = ""
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "" {
		host += ":" + port
	}
	spelled := escaped.ReplaceAllStringFunc(u.EscapedPath(), func(one string) string {
		text, err := url.PathUnescape(one)
		if err != nil {
			return one
		}
		return text
	})
	clean := path.Clean("/" + spelled)
	if strings.Contains(strings.TrimSuffix(spelled, "/"), "//") { // empty segments count
		clean = strings.TrimSuffix(spelled, "/")
	}
	return scheme + "://" + host + strings.TrimSuffix(clean, "/")
}

// known are those of a list of scopes that a resource has, all of them if the list names none.
func (s *Service) known(scope, resource string) []string {
	scopes := auth.MCPScopes(strings.TrimPrefix(resource, s.URLs.Console))
	list := both(scopes, strings.Fields(scope))
	if len(list) == 0 {
		return scopes
	}
	return list
}
