package mcp

import (
	"context"
	"net/http"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
)

// tool is what a model can call. It is a call of the API, or answered here.
type tool struct {
	name, title, description string
	scope                    auth.Scope
	// route is the call of the API as its document names it. own answers a tool of no project instead, act one of a
	// project, which may make the call.
	route string
	own   func(ctx context.Context, s *Service, c *caller, args arguments) (object, omitted, error)
	act   func(ctx context.Context, u *use) (object, omitted, error)
	args  []argument
	// shape is the schema of the answer, nil for that of the call.
	shape object
	// changes tools change data. Destructive ones take something away, repeatable ones do the same when called again.
	changes, destructive, repeatable bool
	// page is the argument with how many entries to return, "" for none.
	page string
	// more is the call that gets what did not fit.
	more string
	// lists are what the text shows of each entry of a list, by the path of the list.
	lists map[string][]string
	// write writes the answer for a model; nil lists its values.
	write func(w *writer, answer object)
}

// argument is an argument of a tool.
type argument struct {
	name string
	// of is the field of the route if it has another name.
	of       string
	required bool
	// text replaces the description of the field.
	text string
	// otherwise is the default, nil for that of the API.
	otherwise any
	// schema is that of an argument that the route does not have, or of one that may be anything there.
	schema object
	// identity marks the identity that a call acts as, operator an argument of auth.MCPOperatorPath alone.
	identity, operator bool
}

func (a argument) field() string {
	if a.of != "" {
		return a.of
	}
	return a.name
}

// has reports whether a view has an argument.
func (v view) hasArgument(a argument) bool {
	return !(a.identity && v.who.isBound()) && (!a.operator || v.path == auth.MCPOperatorPath)
}

// inProject reports whether a tool works in one project.
func (t tool) inProject() bool { return t.own == nil }

// argsOf are arguments as the API has them.
func argsOf(names ...string) []argument {
	list := make([]argument, len(names))
	for i, name := range names {
		list[i].name = name
	}
	return list
}

const (
	projectArgument  = "project"
	identityArgument = "identity"
	audienceArgument = "audience"
	rememberName     = "remember"
	prefix           = auth.Prefix
	ingestion        = prefix + "/ingest/{ingestionId}"
)

// projectText describes the argument project.
func (v view) projectText() string {
	if v.path == auth.MCPOperatorPath {
		return "The slug of the project. Leave it out if there is one only; list_projects names them."
	}
	return "Leave it out unless you are asked to name a project."
}

// identityText describes the argument identity, after what it is to the tool.
func (v view) identityText(what string) string {
	if v.who == self {
		return what + " Leave it out: it is the person who is signed in."
	}
	return what + " Always name the person or program that you act for."
}

// tools are the tools of a path, in the order in which a person reads them. The service lists them by name.
func tools(path string) []tool {
	recall, read := recallTool(), readTool()
	switch path {
	case auth.MCPReadPath:
		return []tool{recall, read}
	case auth.MCPPath:
		return []tool{recall, read, rememberTool(), forgetTool(), progressTool()}
	}
	list := append([]tool{recall, read, rememberTool(), forgetTool()}, ingestionTools()...)
	return append(list, append(traceTools(), directoryTools()...)...)
}

// ingestionTools follow a send.
func ingestionTools() []tool {
	return []tool{
		{
			name: "get_ingestion", title: "State of a send", scope: auth.Read, route: "GET " + ingestion,
			args:        argsOf("ingestionId"),
			description: "Whether a send of remember is processing, completed (recall finds it) or failed.",
		},
		{
			name: "explain_ingestion", title: "Explain a send", scope: auth.Read, route: "GET " + ingestion + "/explain",
			args:        argsOf("ingestionId"),
			lists:       map[string][]string{"items": {"dataPointId", "status", "searchable", "memories"}},
			description: "What became of a send or of a request, item by item, and what to do next.",
		},
		{
			name: "retry_ingestion", title: "Retry a send", scope: auth.Write, route: "POST " + ingestion + "/retry",
			args: argsOf("ingestionId"), changes: true,
			description: "Try a failed send again, as explain_ingestion advises.",
		},
	}
}

// traceTools follow a memory to its sources.
func traceTools() []tool {
	trace := "GET " + prefix + "/trace/"
	root := argument{name: "id", of: "rootId"}
	return []tool{
		{
			name: "search_memory_trace", title: "Search the trace", scope: auth.Read, route: trace + "roots", page: "first",
			args: argsOf("search", "ingestionId", "first", "afterMemories", "afterSources"),
			more: "search_memory_trace with a smaller first, then with afterMemories or afterSources",
			lists: map[string][]string{
				"memories.nodes": {"occurredAt", "id", "memoryKind", "headline", "dataPointId", "current"},
				"sources.nodes":  {"occurredAt", "id", "headline", "dataPointId", "revision", "phase"},
			},
			description: "Find memories and sources by words, by a source id or by a send, newest first, each with the id " +
				"that get_node, get_lineage and get_timeline take.",
		},
		{
			name: "get_node", title: "Memory or source", scope: auth.Read, route: trace + "nodes/{id}", args: argsOf("id"),
			description: "A memory or a source with its dates, its text (up to 4,000 characters), and what replaced it.",
		},
		{
			name: "get_lineage", title: "Lineage", scope: auth.Read, route: trace + "lineage/{rootId}", page: "limit",
			args: append([]argument{root}, argsOf("reveal", "revealAll", "limit")...),
			more: "get_lineage with reveal, or get_node with an id",
			lists: map[string][]string{
				"nodes": {"id", "kind", "memoryKind", "headline"}, "edges": {"inputId", "derivedId"},
			},
			description: "What a memory was built from, and what was built from it, up to the sources.",
		},
		{
			name: "get_timeline", title: "Timeline", scope: auth.Read, route: trace + "timeline/{rootId}",
			args: append([]argument{root}, argsOf("from", "to")...),
			more: "get_timeline with a narrower window of from and to",
			lists: map[string][]string{
				"nodes":   {"occurredAt", "section", "kind", "headline", "dataPointId", "id"},
				"sends":   {"acceptedAt", "phase", "items", "ingestionId"},
				"recalls": {"receivedAt", "identity", "rank", "nodeId"}, "replacements": {"at", "replacedId", "replacedById"},
			},
			description: "What happened around a memory or a source: its revisions, sends, recalls and replacements.",
		},
	}
}

// directoryTools read who is known, what was called and what it cost.
func directoryTools() []tool {
	return []tool{
		whoami, listProjects,
		{
			name: "list_identities", title: "Identities", scope: auth.Read, route: "GET " + prefix + "/identities",
			args: append(argsOf("after"), argument{name: "limit", otherwise: 50},
				argument{name: "traitKey"}, argument{name: "traitValue"}), page: "limit",
			more:        "get_identity for one of them, or list_identities with a smaller limit",
			lists:       map[string][]string{"identities": {"identity", "origin", "lastSeenAt", "traits"}},
			description: "The people and programs that the memory knows, with their traits.",
		},
		{
			name: "get_identity", title: "Identity", scope: auth.Read, route: "GET " + prefix + "/identities/{identity}",
			args: argsOf("identity"), description: "An identity with its traits, and the audiences that it reaches.",
			more: "GET " + prefix + "/identities/{identity}",
		},
		{
			name: "set_identity_traits", title: "Set traits", scope: auth.Write,
			route: "PATCH " + prefix + "/identities/{identity}",
			args:  []argument{{name: "identity"}, {name: "traits", required: true}}, changes: true, destructive: true,
			repeatable: true, more: "get_identity",
			description: "Set traits of an identity; null removes one, others stay. Traits decide which audiences it reaches.",
		},
		{
			name: "list_audiences", title: "Audiences", scope: auth.Read, route: "GET " + prefix + "/audiences",
			more:        "GET " + prefix + "/audiences/{slug}",
			lists:       map[string][]string{"audiences": {"slug", "name", "kind", "memberCount", "reachesNobody"}},
			description: "Who can read what is scoped: lists of identities, or rules on their traits.",
		},
		{
			name: "list_requests", title: "Request log", scope: auth.Read, route: "GET " + prefix + "/requests", page: "first",
			args: argsOf("from", "to", "status", "statusClass", "endpoint", "keyName", "search", "after", "first"),
			more: "list_requests with a smaller first, then with after",
			lists: map[string][]string{"requests": {
				"receivedAt", "method", "path", "status", "errorCode", "outcome", "identity", "requestId",
			}},
			description: "The logged calls of the project, newest first. A call can be read two seconds after its answer.",
		},
		{
			name: "get_request", title: "Logged call", scope: auth.Read, route: "GET " + prefix + "/requests/{requestId}",
			args: argsOf("requestId"), description: "A logged call with what was sent and answered.",
			more: "GET " + prefix + "/requests/{requestId}",
		},
		{
			name: "get_usage", title: "Usage", scope: auth.Read, route: "GET " + prefix + "/usage",
			description: "What the project used this month, and what is left.",
		},
	}
}

// null is a schema, or null.
func null(schema object) object { return object{"anyOf": []any{schema, object{"type": "null"}}} }

// record is the schema of an object whose fields are all there, and texts unless they have another schema.
func record(fields object, texts ...string) object {
	properties, required := object{}, []string{}
	for _, name := range texts {
		properties[name], required = object{"type": "string"}, append(required, name)
	}
	for name, schema := range fields {
		properties[name], required = schema, append(required, name)
	}
	return object{"type": "object", "properties": properties, "required": required}
}

// whoami is the tool that names the person or the key that a client acts for.
var whoami = tool{
	name: "whoami", title: "Who am I", scope: auth.Read,
	description: "Who you act for, in which organization and projects, and with which rights.",
	lists:       map[string][]string{"projects": {"slug", "access"}},
	shape: record(object{
		"user": null(record(nil, "email")), "key": null(record(nil, "name")), "organization": record(nil, "id", "name"),
		"role": null(object{"type": "string"}), "scopes": object{"type": "array", "items": object{"type": "string"}},
		"projects": object{"type": "array", "items": record(nil, "slug", "access")},
	}, "client"),
	own: func(ctx context.Context, s *Service, c *caller, _ arguments) (object, omitted, error) {
		o, _, err := s.Access.OrganizationByID(ctx, c.principal.OrganizationID)
		if err != nil {
			return nil, omitted{}, err
		}
		answer := object{
			"user": nil, "key": nil, "role": nil, "client": c.client, "organization": object{"id": o.ID.String(), "name": o.Name},
		}
		if c.isKey() {
			answer["key"] = object{"name": c.principal.KeyName}
		} else {
			answer["user"], answer["role"] = object{"email": c.person.Email}, string(c.membership.Role)
		}
		scopes, projects := []any{}, []any{}
		for _, scope := range c.scopes {
			scopes = append(scopes, string(scope))
		}
		for slug, can := range c.slugs() {
			access := "read"
			if can == auth.Write && c.has(auth.Write) {
				access = "write"
			}
			projects = append(projects, object{"slug": slug, "access": access})
		}
		answer["scopes"], answer["projects"] = scopes, projects
		return answer, omitted{}, nil
	},
}

// listProjects is the tool that lists the projects of a caller as the API lists those of the organization.
var listProjects = tool{
	name: "list_projects", title: "Projects", scope: auth.Read, route: "GET " + prefix + "/projects",
	description: "The projects that you may use, with what they hold and used this month.",
	lists:       map[string][]string{"projects": {"slug", "name", "memoryCount", "isArchived"}},
	more:        "the page of projects at the console",
	own: func(ctx context.Context, s *Service, c *caller, _ arguments) (object, omitted, error) {
		p := c.principal
		p.Project = auth.Project{} // the list is of the organization
		answer, o, err := s.do(ctx, p, httpx.InnerCall{
			Method: http.MethodGet, Path: prefix + "/projects", Tool: "list_projects",
		})
		if err != nil {
			return nil, o, err
		}
		all, ok := answer["projects"].([]any)
		if !ok {
			return nil, o, fault.New(fault.Internal, fault.CodeInternal, "the list of projects has none")
		}
		slugs, visible := c.slugs(), []any{}
		for _, e := range all {
			project, _ := e.(object)
			slug, _ := project["slug"].(string)
			if _, ok := slugs[slug]; ok {
				visible = append(visible, e)
			}
		}
		answer["projects"] = visible
		return answer, o, nil
	},
}
