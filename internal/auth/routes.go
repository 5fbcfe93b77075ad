package auth

import (
	"net/http"
	"slices"
)

// Prefix is the path prefix of every route of the API.
const Prefix = "/api/v1"

// Scope is the scope that an agent token must carry for a route.
type Scope string

// The scopes. None means that the route rejects agent tokens.
const (
	None  Scope = ""
	Read  Scope = "memory:read"
	Write Scope = "memory:write"
	// Operate is needed at MCPOperatorPath, and no route of the API needs it.
	Operate Scope = "memory:operate"
)

// Scopes lists the scopes as the protected-resource documents name them.
func Scopes() []string { return []string{string(Read), string(Write)} }

// Route is one route of the contract and the credentials that it accepts.
type Route struct {
	Method string
	// Path is the template with ":name" for a parameter, from the root of the host. One that ends in "/*" has all paths
	// below it.
	Path string
	// Keys are the kinds of keys that the route accepts.
	Keys []Kind
	// Agent is the scope that an agent token needs, None if the route accepts keys only.
	Agent Scope
	// Open routes need no credential in a header: it is in the URL. That of a Webhook route is the token of
	// a webhook.
	Open, Webhook bool
	// ProjectQuery routes need ?project=<slug> of a management key.
	ProjectQuery bool
	// Query are the parameters that the route reads of its query, besides the project.
	Query []string
	// Publishable routes are served without a key where the deployment publishes its audit log.
	Publishable bool
	// Unlimited routes are outside the limit of requests per minute.
	Unlimited bool
	// Unlogged routes have no row in the request log, Bodiless ones a row without bodies.
	Unlogged, Bodiless bool
	// Unknown is what a request has whose path or method is no route of the contract.
	Unknown bool
}

// Takes reports whether the route accepts a kind of credential.
func (r Route) Takes(kind Kind) bool {
	if kind == AgentToken {
		return r.Agent != None
	}
	return slices.Contains(r.Keys, kind)
}

// Parameters are the parameters that the query of the route may have.
func (r Route) Parameters() []string {
	if !r.Takes(ProjectKey) {
		return r.Query
	}
	return append([]string{projectParam}, r.Query...)
}

// readingPosts are the routes that read although their method is POST: the question is in the body.
var readingPosts = []string{Prefix + "/recall", Prefix + "/ingest/estimate"}

// Writes reports whether a call of the route may append to the log.
func (r Route) Writes() bool {
	return r.Method != http.MethodGet && !(r.Method == http.MethodPost && slices.Contains(readingPosts, r.Path))
}

// Deletes reports whether a call of the route only deletes.
func (r Route) Deletes() bool {
	return r.Method == http.MethodDelete || r.Path == Prefix+"/data-points/delete"
}

// Routes is every route of the contract, built or not, in the order of the specification.
func Routes() []Route {
	project := []Kind{ProjectKey}
	management := []Kind{ManagementKey}
	either := []Kind{ProjectKey, ManagementKey}
	calls := []string{"from", "to", "status", "statusClass", "endpoint", "keyName", "search"}
	const get, post, put, patch, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete
	return []Route{
		{Method: post, Path: Prefix + "/ingest", Keys: project, Agent: Write},
		{Method: post, Path: Prefix + "/ingest/batch", Keys: project, Agent: Write},
		{Method: post, Path: Prefix + "/ingest/estimate", Keys: project, Agent: Read, Unlogged: true},
		{Method: get, Path: Prefix + "/ingest/:ingestionId", Keys: project, Agent: Read, Unlimited: true, Bodiless: true},
		{Method: del, Path: Prefix + "/ingest/:ingestionId", Keys: project, Agent: Write},
		{Method: post, Path: Prefix + "/ingest/:ingestionId/retry", Keys: project, Agent: Write},
		{Method: get, Path: Prefix + "/ingest/:ingestionId/explain", Keys: project, Agent: Read, Unlogged: true},
		{Method: del, Path: Prefix + "/data-points/:sourceId", Keys: project},
		{Method: post, Path: Prefix + "/data-points/delete", Keys: project},

		{Method: post, Path: Prefix + "/recall", Keys: project, Agent: Read},

		{Method: put, Path: Prefix + "/identities/:identity", Keys: either, Agent: Write, ProjectQuery: true},
		{Method: patch, Path: Prefix + "/identities/:identity", Keys: either, Agent: Write, ProjectQuery: true},
		{Method: post, Path: Prefix + "/identities/bulk", Keys: either, Agent: Write, ProjectQuery: true},
		{
			Method: get, Path: Prefix + "/identities", Keys: either, Agent: Read, ProjectQuery: true,
			Query: []string{"after", "limit", "traitKey", "traitValue"},
		},
		{Method: get, Path: Prefix + "/identities/:identity", Keys: either, Agent: Read, ProjectQuery: true},
		{Method: del, Path: Prefix + "/identities/:identity", Keys: either, Agent: Write, ProjectQuery: true},

		{Method: get, Path: Prefix + "/audiences", Keys: project},
		{Method: put, Path: Prefix + "/audiences/:slug", Keys: project},
		{Method: get, Path: Prefix + "/audiences/:slug", Keys: project},
		{Method: del, Path: Prefix + "/audiences/:slug", Keys: project},
		{Method: post, Path: Prefix + "/audiences/:slug/recompute", Keys: project},

		{Method: get, Path: Prefix + "/projects", Keys: management},
		{Method: post, Path: Prefix + "/projects", Keys: management},
		{Method: post, Path: Prefix + "/projects/:slug/keys", Keys: management},
		{Method: del, Path: Prefix + "/projects/:slug/keys/:keyId", Keys: management},

		{
			Method: get, Path: Prefix + "/requests", Keys: project, Agent: Read, Unlogged: true,
			Query: append([]string{"after", "first"}, calls...),
		},
		{Method: get, Path: Prefix + "/requests/histogram", Keys: project, Agent: Read, Unlogged: true, Query: calls},
		{Method: get, Path: Prefix + "/requests/:requestId", Keys: project, Agent: Read, Unlogged: true},
		{
			Method: get, Path: Prefix + "/trace/roots", Keys: project, Agent: Read, Unlogged: true,
			Query: []string{"search", "ingestionId", "first", "afterMemories", "afterSources"},
		},
		{Method: get, Path: Prefix + "/trace/nodes/:id", Keys: project, Agent: Read, Unlogged: true},
		{
			Method: get, Path: Prefix + "/trace/lineage/:rootId", Keys: project, Agent: Read, Unlogged: true,
			Query: []string{"revealAll", "reveal", "limit"},
		},
		{
			Method: get, Path: Prefix + "/trace/timeline/:rootId", Keys: project, Agent: Read, Unlogged: true,
			Query: []string{"from", "to"},
		},
		{Method: get, Path: Prefix + "/usage", Keys: either, Agent: Read, Bodiless: true},

		{Method: get, Path: Prefix + "/audit/:organization/checkpoint", Keys: management, Publishable: true},
		{Method: get, Path: Prefix + "/audit/:organization/policy", Keys: management, Publishable: true},
		{Method: get, Path: Prefix + "/audit/:organization/tile/:level/*", Keys: management, Publishable: true},
		{
			Method: get, Path: Prefix + "/audit/:organization/proofs", Keys: management,
			Query: []string{"ingestion", "source", "request", "deletion", projectParam},
		},

		{Method: post, Path: Prefix + "/webhooks/:webhookId/:token", Open: true, Webhook: true, Unlimited: true},
	}
}

// Table finds the route of a request by its method and template.
type Table map[string]Route

// NewTable makes the table of every route.
func NewTable() Table {
	t := Table{}
	for _, r := range Routes() {
		t[r.Method+" "+r.Path] = r
	}
	return t
}

// Find returns the route of a method and template, which is "" for a path without a route. A path
// or method without a route accepts every credential, so that the caller is authenticated before it
// learns that there is no route. Other methods of an open route's template need no credential, like
// the route itself.
func (t Table) Find(method, template string) Route {
	if r, ok := t[method+" "+template]; ok {
		return r
	}
	open := false
	for _, r := range t {
		open = open || r.Open && r.Path == template
	}
	return Route{
		Method: method, Path: template, Keys: []Kind{ProjectKey, ManagementKey}, Agent: Read, Open: open, Unknown: true,
	}
}

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
