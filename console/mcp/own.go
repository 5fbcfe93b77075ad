package mcp

import (
	"context"
	"net/http"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
)

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
