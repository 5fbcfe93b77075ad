package webhooks

import (
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/calls"
)

// form is the settings of a webhook as a person edits them, with the sample next to them.
type form struct {
	Name           string `json:"name"`
	ContentPath    string `json:"contentPath"`
	OccurredAtPath string `json:"occurredAtPath"`
	IDPath         string `json:"idPath"`
	Audience       string `json:"audience"`
	// Filters has an expression a line.
	Filters string `json:"filters"`
	// Sample is a body that was pasted, else it is that of a logged event, whose request is Event.
	Event  string `json:"event"`
	Sample string `json:"sample"`
}

func formOf(s webhook.Settings) form {
	f := form{
		Name: s.Name, ContentPath: s.ContentPath, OccurredAtPath: s.OccurredAtPath, IDPath: s.IDPath, Audience: s.Audience,
	}
	for _, one := range s.Filters {
		f.Filters += one.Expression() + "\n"
	}
	return f
}

// readForm reads the form of a POST.
func readForm(r *web.Request) form {
	return form{
		Name: r.Field("name"), ContentPath: r.Field("contentPath"), OccurredAtPath: r.Field("occurredAtPath"),
		IDPath: r.Field("idPath"), Audience: r.Field("audience"), Filters: r.Raw("filters"), Event: r.Field("event"),
		Sample: r.Raw("sample"),
	}
}

// settings are those of the form. The fault is invalid-request, which names the line of a wrong filter.
func (f form) settings() (webhook.Settings, error) {
	s := webhook.Settings{
		Name: f.Name, ContentPath: f.ContentPath, OccurredAtPath: f.OccurredAtPath, IDPath: f.IDPath, Audience: f.Audience,
	}
	for i, line := range strings.Split(f.Filters, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		if len(s.Filters) == limit.WebhookFilters {
			return s, fault.New(fault.Invalid, fault.CodeInvalidRequest, "there are more than %d filters", limit.WebhookFilters)
		}
		one, err := webhook.ParseFilter(line)
		if err != nil {
			return s, fault.New(fault.Invalid, fault.CodeInvalidRequest, "line %d of the filters: %v", i+1, err)
		}
		s.Filters = append(s.Filters, one)
	}
	return s, nil
}

// page is a webhook with its settings. What only those see who may write is left out for the others.
type page struct {
	summary

	New      bool             `json:"-"`
	Excluded bool             `json:"excluded"`
	MayWrite bool             `json:"-"`
	URL      string           `json:"url,omitempty"`
	Settings webhook.Settings `json:"settings"`
	Form     form             `json:"-"`
	Samples  []calls.Sample   `json:"-"`
	Tried    *dryRun          `json:"-"`
}

// dryRun is what the sample would become.
type dryRun struct {
	tenants.TriedEvent

	Problem string
	// Body is the beginning of the sample, of Bytes in all.
	Body  string
	Bytes int64
}

// shownBody is the most bytes of a body that a page shows.
const shownBody = 64 << 10

// show is a webhook, or the form of a new one.
func (d Deps) show(r *web.Request) error {
	if r.PathValue("webhook") == "" {
		return d.render(r, access.Webhook{}, form{ContentPath: "$.text", Sample: `{"text": "Ana moved the launch to 3 June."}`}, nil)
	}
	w, _, err := d.find(r)
	if err != nil {
		return err
	}
	return d.render(r, w, formOf(w.Settings), nil)
}

// render shows a webhook, with a dry run of the sample for those who may change it. problem is what was wrong with the
// form that is shown again.
func (d Deps) render(r *web.Request, w access.Webhook, f form, problem error) error {
	p := page{New: w.ID == "", MayWrite: r.May(web.Write), Excluded: d.excluded(r), Settings: w.Settings}
	if !p.New {
		list, err := d.summaries(r, w)
		if err != nil {
			return err
		}
		p.summary = list[0]
	}
	if p.MayWrite {
		if err := d.edit(r, w, &p, f); err != nil {
			return err
		}
	}
	if problem != nil {
		return r.Invalid(problem, "edit.html", p)
	}
	return r.Render("edit.html", p)
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
	p.Form = f
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
		return nil, fault.New(fault.NotFound, fault.CodeNotFound, "there is no such event")
	}
	return d.Calls.Body(r.Context(), r.Project.Project, w.ID, id, r.Now())
}

// dryRun tries a form. What is wrong with it is part of the answer.
func (d Deps) dryRun(r *web.Request, w access.Webhook, f form) (*dryRun, error) {
	run := &dryRun{}
	body, err := d.sample(r, w, f)
	if err == nil {
		run.Body, run.Bytes = cut(body), int64(len(body))
		if f.Name == "" {
			f.Name = "new" // it is asked for when the form is saved
		}
		var s webhook.Settings
		if s, err = f.settings(); err == nil {
			run.TriedEvent, err = d.Commands.TryEvent(r.Context(), r.Command(), s, body)
		}
	}
	run.Content = cut([]byte(run.Content))
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

// posted reads the form of a change, and finds its webhook; a new one is zero.
func (d Deps) posted(r *web.Request) (w access.Webhook, f form, err error) {
	if r.PathValue("webhook") != "new" {
		w, _, err = d.find(r)
	}
	return w, readForm(r), err
}

// try shows what the sample would become by the form, and saves nothing.
func (d Deps) try(r *web.Request) error {
	w, f, err := d.posted(r)
	if err != nil {
		return err
	}
	return d.render(r, w, f, nil)
}

// save creates a webhook, or replaces its settings.
func (d Deps) save(r *web.Request) error {
	w, f, err := d.posted(r)
	if err != nil {
		return err
	}
	settings, err := f.settings()
	if err != nil {
		return d.render(r, w, f, err)
	}
	id, done := w.ID, "saved"
	if id == "" {
		made, failed := d.Commands.CreateWebhook(r.Context(), r.Command(), settings)
		id, err, done = made.ID, failed, "created"
	} else {
		err = d.Commands.ChangeWebhook(r.Context(), r.Command(), id, settings)
	}
	if err != nil {
		return d.render(r, w, f, err)
	}
	return r.Done(pathOf(r, id), done)
}

// test sends the sample through the receiver, as an event that is ingested.
func (d Deps) test(r *web.Request) error {
	f := readForm(r)
	w, caller, err := d.find(r)
	if err != nil {
		return err
	}
	body, err := d.sample(r, w, f)
	if err == nil {
		var sent uuid.UUID
		if sent, err = d.send(r, caller, body, true); err == nil {
			return r.Done(pathOf(r, w.ID, "events", sent.String()), "sent")
		}
	}
	return d.render(r, w, f, err)
}

// changed ends a change of the webhook of the path.
func changed(r *web.Request, err error) error {
	if err != nil {
		return err
	}
	return r.Done(pathOf(r, r.PathValue("webhook")), "saved")
}

func (d Deps) pause(r *web.Request) error {
	paused := r.Field("pause") == "on"
	return changed(r, d.Commands.SetWebhookPaused(r.Context(), r.Command(), r.PathValue("webhook"), paused))
}

func (d Deps) rotate(r *web.Request) error {
	_, err := d.Commands.RotateWebhookToken(r.Context(), r.Command(), r.PathValue("webhook"))
	return changed(r, err)
}

func (d Deps) remove(r *web.Request) error {
	if err := d.Commands.DeleteWebhook(r.Context(), r.Command(), r.PathValue("webhook")); err != nil {
		return err
	}
	return r.Done(pathOf(r), "deleted")
}
