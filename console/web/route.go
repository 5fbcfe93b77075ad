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
	"time"
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
	// Body is the most bytes of the body of a request, 0 for 64 KiB.
	Body int64
	// Time is the most time that a request takes, its body and the answer included, 0 for 30 s.
	Time time.Duration
	// Leaves reports that a POST of the page redirects to another host, which the policy of forms would forbid.
	Leaves bool
	// Unguarded routes may be opened before the second factor that an organization requires: those that set it up.
	Unguarded bool
	Serve     func(*Request) error
}

const (
	pageBody = 64 << 10
	pageTime = 30 * time.Second
)
