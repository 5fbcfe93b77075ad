// Package web is what the pages of the console share: the table of routes and who may open which, the person of a
// request, forms, lists and the layout.
//
// A page is a Route of an Area. Its handler reads the queries that the API reads, calls the commands that the API
// calls, and answers with a method of Request: Render, Invalid, Redirect, Done or Rows. Everything works without
// scripts: a list is a form of the method GET with its filters in the URL, a change is a POST that redirects. Scripts
// make it quicker (static/app.js, htmx).
package web

import (
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/annals-project/annals/internal/allowance"
)

// Area is some pages with their templates. A template defines "title" and "main"; Request.Render names its file.
type Area struct {
	Templates fs.FS
	Routes    []Route
}

// Route is a page, or what a form does.
type Route struct {
	// Pattern is a method and a path as http.ServeMux takes them. {project} is the slug of a project.
	Pattern string
	Needs   Needs
	// Auditors is what the page shows an auditor, who may open no other.
	Auditors Auditing
	// Body is the most bytes of the body of a request, 0 for 64 KiB.
	Body int64
	// Time is the most time that a request takes once its body is there, with the answer, 0 for 30 s.
	Time time.Duration
	// Leaves reports that a POST of the page redirects to another host, which the policy of forms would forbid.
	Leaves bool
	// Unguarded routes may be opened before the second factor that an organization requires: those that set it up.
	Unguarded bool
	// Outside routes may be opened by a session that opens no organization: they show what is offered to the person.
	Outside bool
	// Live routes change data, which an archived project refuses: the fault is project-archived.
	Live bool
	// Public routes are for programs. They look neither at the session nor at the origin, and parse their body themselves.
	Public bool
	// Identify finds which program calls a Public route, by the headers of the request. Without it all callers share the
	// places of visitors.
	Identify func(*Request) (Program, error)
	// Refuse answers a program that is refused; nil shows a page.
	Refuse func(*Request, error) error
	Serve  func(*Request) error
}

// Program is a program that calls.
type Program struct {
	// Owner is who shares its places.
	Owner allowance.Owner
	// Caller is what Identify found, for Serve.
	Caller any
}

const (
	pageBody = 64 << 10
	pageTime = 30 * time.Second
)

// AnyOrigin lets the scripts of every site call Public routes, and adds the routes that answer their preflights.
func AnyOrigin(routes ...Route) []Route {
	methods := map[string][]string{}
	for i, route := range routes {
		method, path, _ := strings.Cut(route.Pattern, " ")
		methods[path] = append(methods[path], method)
		routes[i].Serve = func(r *Request) error {
			r.w.Header().Set("Access-Control-Allow-Origin", "*")
			return route.Serve(r)
		}
		if route.Refuse != nil {
			routes[i].Refuse = func(r *Request, err error) error {
				r.w.Header().Set("Access-Control-Allow-Origin", "*")
				return route.Refuse(r, err)
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(methods)) {
		routes = append(routes, Route{Pattern: "OPTIONS " + path, Public: true, Serve: func(r *Request) error {
			h := r.w.Header()
			h.Set("Access-Control-Allow-Origin", "*")
			h.Set("Access-Control-Allow-Methods", strings.Join(methods[path], ", "))
			h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, MCP-Protocol-Version, Mcp-Method, Mcp-Name")
			r.w.WriteHeader(http.StatusNoContent)
			return nil
		}})
	}
	return routes
}
