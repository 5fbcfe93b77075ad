package webhooks

import (
	"time"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/access"
)

// summary is a webhook without its URL, and what it received in the last 24 hours.
type summary struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Audience  string    `json:"audience,omitempty"`
	IsPaused  bool      `json:"isPaused"`
	CreatedAt time.Time `json:"createdAt"`
	// AudienceMissing reports that the audience was deleted, so that all events are refused.
	AudienceMissing bool                `json:"audienceMissing"`
	Received        requestlog.Activity `json:"received"`
}

// listing is the webhooks of a project.
type listing struct {
	Webhooks []summary `json:"webhooks"`
	// Excluded reports that the plan has no webhooks.
	Excluded bool `json:"excluded"`
	MayWrite bool `json:"-"`
}

func (d Deps) list(r *web.Request) error {
	all, err := d.Webhooks.Webhooks(r.Context(), r.Project.Project)
	if err != nil {
		return err
	}
	list, err := d.summaries(r, all...)
	if err != nil {
		return err
	}
	return r.Render("list.html", listing{Webhooks: list, Excluded: d.excluded(r), MayWrite: r.May(web.Write)})
}

// excluded reports whether the plan has no webhooks.
func (d Deps) excluded(r *web.Request) bool { return !d.Plans.Of(r.Membership.Plan).Webhooks }

func (d Deps) summaries(r *web.Request, of ...access.Webhook) ([]summary, error) {
	list, ids, slugs := make([]summary, len(of)), make([]string, len(of)), []string{}
	for i, w := range of {
		ids[i] = w.ID
		list[i] = summary{
			ID: w.ID, Name: w.Settings.Name, Audience: w.Settings.Audience, IsPaused: w.Paused, CreatedAt: w.CreatedAt,
		}
		if w.Settings.Audience != "" {
			slugs = append(slugs, w.Settings.Audience)
		}
	}
	received, err := d.Calls.Activity(r.Context(), r.Project.Project, ids, r.Now())
	if err != nil {
		return nil, err
	}
	known, err := d.Audiences.KnownAudiences(r.Context(), r.Project.Project, slugs)
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].Received = received[list[i].ID]
		list[i].AudienceMissing = list[i].Audience != "" && !known[list[i].Audience]
	}
	return list, nil
}
