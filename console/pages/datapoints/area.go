// Package datapoints is the pages of data points: the list, one with what happened to it, its correction and deletion,
// the search by any id, sends and those that failed, ingest, import and export.
package datapoints

import (
	"embed"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/account"
	points "github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/export"
	"github.com/annals-project/annals/projections/history"
	"github.com/annals-project/annals/projections/why"
)

//go:embed *.html
var templates embed.FS

// Deps are what the pages read and change.
type Deps struct {
	Commands *commands.Service
	Points   points.Queries
	Trace    *why.Trace
	Find     why.Finder
	Explain  why.Explainer
	Stopped  points.StoppedSends
	Rooms    account.Queries
	Export   export.Service
	History  history.Reader
	Log      *requestlog.Log
	People   export.PersonService
}

// pages are the pages with what they share.
type pages struct {
	Deps

	// uploads is the memory of the uploads at work.
	uploads *allowance.Allowance
}

// Area returns the pages.
func Area(d Deps) web.Area {
	p := &pages{d, admission.Estimates.New()}
	return web.Area{Templates: templates, Routes: []web.Route{
		{Pattern: "GET /p/{project}/data", Needs: web.Read, Auditors: web.Audited, Serve: p.list},
		{Pattern: "GET /p/{project}/data/{id}", Needs: web.Read, Auditors: web.AuditedTexts, Serve: p.one},
		{Pattern: "GET /p/{project}/data/{id}/text", Needs: web.Read, Auditors: web.AuditedTexts, Serve: p.text},
		{Pattern: "GET /p/{project}/data/{id}/correct", Needs: web.Write, Live: true, Serve: p.correctForm},
		{Pattern: "POST /p/{project}/data/{id}/correct", Needs: web.Write, Live: true, Body: formBody, Serve: p.correct},
		{Pattern: "GET /p/{project}/data/{id}/delete", Needs: web.Write, Serve: p.deleteForm},
		{Pattern: "POST /p/{project}/data/{id}/delete", Needs: web.Write, Live: true, Serve: p.delete},
		{Pattern: "GET /p/{project}/search", Needs: web.Read, Auditors: web.AuditedTexts, Serve: p.search},
		{Pattern: "GET /p/{project}/sends/{send}", Needs: web.Read, Auditors: web.Audited, Serve: p.send},
		{Pattern: "GET /p/{project}/failed", Needs: web.Read, Auditors: web.Audited, Serve: p.failed},
		{Pattern: "POST /p/{project}/failed/{send}", Needs: web.Write, Live: true, Serve: p.retry},
		{Pattern: "GET /p/{project}/ingest", Needs: web.Write, Live: true, Serve: p.ingestForm},
		{Pattern: "POST /p/{project}/ingest", Needs: web.Write, Live: true, Body: formBody, Serve: p.ingest},
		{Pattern: "GET /p/{project}/import", Needs: web.Write, Live: true, Serve: p.importForm},
		{Pattern: "POST /p/{project}/import", Needs: web.Write, Live: true, Body: importBody, Serve: p.importFiles},
		{Pattern: "GET /p/{project}/export", Needs: web.Manage, Auditors: web.AuditedTexts, Serve: p.exportForm},
		{Pattern: "GET /p/{project}/export/{file}", Needs: web.Manage, Auditors: web.AuditedTexts, Time: exportTime, Serve: p.exportFile},
	}}
}

const (
	// maxText is the longest text that a form holds, and how much of a text a page shows.
	maxText  = 256 << 10
	shown    = 64 << 10
	formBody = 4 * maxText
)

// pointPath is the page of a data point.
func pointPath(r *web.Request, id string) string { return r.ProjectPath("data", id) }
