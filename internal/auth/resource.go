package auth

// ResourcePath is the path of the API's protected-resource document, on the console's and on the
// API's host, and AnyResourcePath that of the one which a host stands for. That of a path of MCPPaths is
// AnyResourcePath with the path after it.
const (
	AnyResourcePath = "/.well-known/oauth-protected-resource"
	ResourcePath    = AnyResourcePath + Prefix
)

// The paths of the Model Context Protocol, on the console's host. Each is a resource with a set of tools: those of
// every day, all of them, and those that only read.
const (
	MCPPath         = "/mcp"
	MCPOperatorPath = MCPPath + "/operator"
	MCPReadPath     = MCPPath + "/read"
)

// MCPPaths lists the paths of the Model Context Protocol.
func MCPPaths() []string { return []string{MCPPath, MCPOperatorPath, MCPReadPath} }

// MCPScopes lists the scopes that a path of MCPPaths names.
func MCPScopes(path string) []string {
	switch path {
	case MCPOperatorPath:
		return append(Scopes(), string(Operate))
	case MCPReadPath:
		return []string{string(Read)}
	default:
		return Scopes()
	}
}

// URLs are the public addresses of the deployment, without a trailing slash.
type URLs struct {
	API, Console, Auth string
}

// Webhook returns the URL of a webhook with a token.
func (u URLs) Webhook(id, token string) string {
	return u.Console + Prefix + "/webhooks/" + id + "/" + token
}

// Resource is a protected-resource document (RFC 9728).
type Resource struct {
	Resource             string   `json:"resource"`
	ResourceName         string   `json:"resource_name"`
	AuthorizationServers []string `json:"authorization_servers"`
	ScopesSupported      []string `json:"scopes_supported"`
	BearerMethods        []string `json:"bearer_methods_supported"`
	// Documentation is left out of the document of the API.
	Documentation string `json:"resource_documentation,omitempty"`
}

// APIResource is the document of the API under its public address.
func APIResource(u URLs) Resource {
	return Resource{
		Resource: u.API + Prefix, ResourceName: "Memory", AuthorizationServers: []string{u.Auth},
		ScopesSupported: Scopes(), BearerMethods: []string{"header"},
	}
}

// MCPResource is the document of a path of MCPPaths.
func MCPResource(u URLs, path string) Resource {
	doc := APIResource(u)
	doc.Resource, doc.Documentation, doc.ScopesSupported = u.Console+path, u.API+"/auth.md", MCPScopes(path)
	return doc
}

// ScopeChallenge is the WWW-Authenticate value of a 403 for a scope that a token lacks.
func ScopeChallenge(u URLs, needs Scope) string {
	return `Bearer error="insufficient_scope", scope="` + string(needs) + `", resource_metadata="` + u.Console + ResourcePath + `"`
}

// Challenge is the WWW-Authenticate value of a 401. The address is quoted: unquoted, clients read
// it as "https".
func Challenge(u URLs, invalidToken bool) string {
	challenge := `Bearer resource_metadata="` + u.Console + ResourcePath + `"`
	if invalidToken {
		challenge += `, error="invalid_token"`
	}
	return challenge
}
