// Package webhooks is the pages of the webhooks of a project: their settings with a dry run, and the log of
// their events.
package webhooks

import (
	"embed"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/history"
	"github.com/annals-project/annals/projections/why"
)

//go:embed *.html
var templates embed.FS

// Deps are what the pages read and change.
type Deps struct {
	Commands  *commands.Service
	Access    access.Queries
	URLs      access.Webhooks
	Audiences *directory.Queries
	Calls     why.Calls
	History   history.Reader
	// API receives the events that a person sends.
	API   httpx.Inner
	Plans metering.PlanTerms
}

// formBytes is the most bytes of a form with a sample: 1 MiB may be percent-encoded.
const formBytes = 4 << 20

// Area returns the pages.
func Area(d Deps) web.Area {
	const hooks = "/p/{project}/webhooks"
	const event = hooks + "/{webhook}/events/{request}"
	return web.Area{Templates: templates, Routes: []web.Route{
		{Pattern: "GET " + hooks, Needs: web.Read, Auditors: web.Audited, Serve: web.NewPage("list.html", d.list).Show},
		{Pattern: "GET " + hooks + "/new", Needs: web.Write, Live: true, Serve: d.show},
		{Pattern: "GET " + hooks + "/{webhook}", Needs: web.Read, Auditors: web.Audited, Serve: d.show},
		{Pattern: "POST " + hooks + "/{webhook}", Needs: web.Write, Live: true, Body: formBytes, Serve: d.change},
		{Pattern: "GET " + hooks + "/{webhook}/events", Needs: web.Read, Auditors: web.AuditedTexts, Serve: d.events},
		{Pattern: "GET " + event, Needs: web.Read, Auditors: web.AuditedTexts, Serve: d.event},
		{Pattern: "GET " + event + "/body", Needs: web.Read, Auditors: web.AuditedTexts, Serve: d.body},
		{Pattern: "POST " + event + "/replay", Needs: web.Write, Live: true, Serve: d.replay},
		{Pattern: "POST /p/{project}/replay-dropped", Needs: web.Manage, Live: true, Serve: d.replayDropped},
	}}
}

// find finds the webhook of the path, with the principal of its events.
func (d Deps) find(r *web.Request) (access.Webhook, auth.Principal, error) {
	w, caller, ok, err := d.Access.WebhookOf(r.Context(), r.Project.Project, r.PathValue("webhook"))
	if err == nil && !ok {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "there is no such webhook in this project")
	}
	return w, caller, err
}

// pathOf is the page of a webhook, or a page below it.
func pathOf(r *web.Request, parts ...string) string {
	return r.ProjectPath(append([]string{"webhooks"}, parts...)...)
}

// summary is a webhook, and what it received in the last 24 hours.
type summary struct {
	tenants.Webhook

	// AudienceMissing reports that the audience was deleted, so that all events are refused.
	AudienceMissing bool                `json:"audienceMissing"`
	Received        requestlog.Activity `json:"received"`
}

// listing is the webhooks of a project.
type listing struct {
	Webhooks []summary `json:"webhooks"`
	// Excluded reports that the plan has no webhooks.
	Excluded bool `json:"excluded"`
}

func (d Deps) list(r *web.Request) (page listing, err error) {
	all, err := d.Access.Webhooks(r.Context(), r.Project.Project)
	if err != nil {
		return page, err
	}
	page.Excluded = d.excluded(r)
	page.Webhooks, err = d.summaries(r, all...)
	return page, err
}

// excluded reports whether the plan has no webhooks.
func (d Deps) excluded(r *web.Request) bool { return !d.Plans.Of(r.Membership.Plan).Webhooks }

func (d Deps) summaries(r *web.Request, of ...access.Webhook) ([]summary, error) {
	list, ids, slugs := make([]summary, len(of)), make([]string, len(of)), make([]string, len(of))
	for i, w := range of {
		list[i].Webhook, ids[i], slugs[i] = w.View(r.Project.Project), w.ID, w.Settings.Audience
	}
	received, err := d.Calls.Activity(r.Context(), r.Project.Project, ids, r.Now())
	if err != nil {
		return nil, err
	}
	known, err := d.Audiences.KnownAudiences(r.Context(), r.Project.Project, slugs)
	for i := range list {
		list[i].Received = received[ids[i]]
		list[i].AudienceMissing = slugs[i] != "" && !known[slugs[i]]
	}
	return list, err
}

// form is the settings of a webhook as a person edits them, with the sample next to them.
type form struct {
	webhook.Settings

	// Lines has the filters, an expression a line. wrong is what is wrong with one of them.
	Lines string
	wrong error
	// Sample is a body that was pasted, else it is that of a logged event, whose request is Event.
	Event, Sample string
}

func formOf(s webhook.Settings) form {
	f := form{Settings: s}
	for _, one := range s.Filters {
		f.Lines += one.Expression() + "\n"
	}
	return f
}

// readForm reads the form of a POST.
func readForm(r *web.Request) form {
	f := form{Lines: r.Raw("filters"), Event: r.Field("event"), Sample: r.Raw("sample"), Settings: webhook.Settings{
		Name: r.Field("name"), ContentPath: r.Field("contentPath"), OccurredAtPath: r.Field("occurredAtPath"),
		IDPath: r.Field("idPath"), Audience: r.Field("audience"),
	}}
	for i, line := range strings.Split(f.Lines, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		one, err := webhook.ParseFilter(line)
		switch {
		case len(f.Filters) == limit.WebhookFilters:
			f.wrong = fault.New(fault.Invalid, fault.CodeInvalidRequest, "there are more than %d filters", limit.WebhookFilters)
			return f
		case err != nil:
			f.wrong = fault.New(fault.Invalid, fault.CodeInvalidRequest, "line %d of the filters: %v", i+1, err)
			return f
		}
		f.Filters = append(f.Filters, one)
	}
	return f
}

// page is a webhook with its settings. What only those see who may write is left out for the others.
type page struct {
	summary

	New      bool            `json:"-"`
	Excluded bool            `json:"excluded"`
	Events   []history.Event `json:"events"`
	Form     *form           `json:"-"`
	Samples  []why.Sample    `json:"-"`
	Tried    *dryRun         `json:"-"`
}

// dryRun is what the sample would become.
type dryRun struct {
	tenants.TriedEvent

	Problem string
	// Body is the beginning of the sample.
	Body string
}

const (
	// shownBody is the most bytes of a body that a page shows.
	shownBody = 64 << 10
	// lastEvents is how many changes of a webhook its page shows.
	lastEvents = 10
)

// show is a webhook, or the form of a new one.
func (d Deps) show(r *web.Request) error {
	if r.PathValue("webhook") == "" {
		f := form{Settings: webhook.Settings{ContentPath: "$.text"}, Sample: `{"text": "Ana moved the launch to 3 June."}`}
		return d.render(r, access.Webhook{}, f, nil)
	}
	w, _, err := d.find(r)
	if err != nil {
		return err
	}
	return d.render(r, w, formOf(w.Settings), nil)
}

// render shows a webhook, with a dry run of the sample for those who may change it. wrong is what was wrong with the
// form that is shown again.
func (d Deps) render(r *web.Request, w access.Webhook, f form, wrong error) error {
	p := page{New: w.ID == "", Excluded: d.excluded(r)}
	if !p.New {
		list, err := d.summaries(r, w)
		if err != nil {
			return err
		}
		p.summary = list[0]
		thing := history.OfWebhook + ":" + w.ID
		if p.Events, err = d.History.Latest(r.Context(), r.HistoryViewer(), thing, lastEvents); err != nil {
			return err
		}
	}
	if r.May(web.Write) {
		if err := d.edit(r, w, &p, f); err != nil {
			return err
		}
	}
	return r.Form(wrong, "edit.html", p)
}

// edit adds to a page what is for those who may change the webhook.
func (d Deps) edit(r *web.Request, w access.Webhook, p *page, f form) (err error) {
	if !p.New {
		if p.URL, err = d.URLs.Reveal(r.Context(), w); err != nil {
			return err
		}
		if p.Samples, err = d.Calls.Samples(r.Context(), r.Project.Project, w.ID, r.Now()); err != nil {
			return err
		}
	}
	for _, s := range p.Samples {
		if f.Event == "" && f.Sample == "" && s.Lost == "" {
			f.Event = s.RequestID.String()
		}
	}
	p.Form = &f
	p.Tried, err = d.dryRun(r, w, f)
	return err
}

// sample returns the body that a form names.
func (d Deps) sample(r *web.Request, w access.Webhook, f form) ([]byte, error) {
	if f.Event == "" || f.Sample != "" {
		return []byte(f.Sample), nil
	}
	id, err := uuid.Parse(f.Event)
	if err != nil {
		return nil, errNoEvent
	}
	return d.Calls.Body(r.Context(), r.Project.Project, w.ID, id, r.Now())
}

// dryRun tries a form. What is wrong with it is part of the answer.
func (d Deps) dryRun(r *web.Request, w access.Webhook, f form) (*dryRun, error) {
	run := &dryRun{}
	body, err := d.sample(r, w, f)
	if err == nil {
		run.Body, err = cut(body), f.wrong
	}
	if err == nil {
		if f.Name == "" {
			f.Name = "new" // it is asked for when the form is saved
		}
		run.TriedEvent, err = d.Commands.TryEvent(r.Context(), r.Command(), f.Settings, body)
		run.Content = cut([]byte(run.Content))
	}
	if err == nil {
		return run, nil
	}
	refused := httpx.Fault(err)
	run.Problem = refused.Msg
	if httpx.Status(refused.Kind) < http.StatusInternalServerError {
		err = nil
	}
	return run, err
}

// change does what a button of the page of a webhook is for, and creates one at the path of a new one.
func (d Deps) change(r *web.Request) error {
	var w access.Webhook
	var caller auth.Principal
	var err error
	if r.PathValue("webhook") != "new" {
		if w, caller, err = d.find(r); err != nil {
			return err
		}
	}
	f, done, path := readForm(r), "saved", pathOf(r, w.ID)
	switch do := r.Field("do"); do {
	case "try":
		return d.render(r, w, f, nil)
	case "test":
		path, err = d.test(r, w, caller, f)
		done = "sent"
	case "pause", "resume":
		return r.Did(d.Commands.SetWebhookPaused(r.Context(), r.Command(), w.ID, do == "pause"), path, done)
	case "rotate":
		_, err = d.Commands.RotateWebhookToken(r.Context(), r.Command(), w.ID)
		return r.Did(err, path, done)
	case "delete":
		return r.Did(d.Commands.DeleteWebhook(r.Context(), r.Command(), w.ID), pathOf(r), "deleted")
	default:
		if err = f.wrong; err == nil && w.ID == "" {
			var made tenancy.WebhookReceipt
			made, err = d.Commands.CreateWebhook(r.Context(), r.Command(), f.Settings)
			path, done = pathOf(r, made.ID), "created"
		} else if err == nil {
			err = d.Commands.ChangeWebhook(r.Context(), r.Command(), w.ID, f.Settings)
		}
	}
	if err != nil {
		return d.render(r, w, f, err)
	}
	return r.Done(path, done)
}

// test sends the sample through the receiver, as an event that is ingested.
func (d Deps) test(r *web.Request, w access.Webhook, caller auth.Principal, f form) (path string, err error) {
	if w.ID == "" {
		return "", fault.New(fault.Invalid, fault.CodeInvalidRequest, "create the webhook first")
	}
	body, err := d.sample(r, w, f)
	if err != nil {
		return "", err
	}
	sent, err := d.send(r, caller, httpx.InnerCall{Body: body, Test: true})
	return pathOf(r, w.ID, "events", sent.RequestID.String()), err
}
