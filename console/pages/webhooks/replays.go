package webhooks

import (
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/why"
)

// MostReplayed is how many dropped events one form replays.
const MostReplayed = 25

// Replayed is what a form did that replays dropped events.
type Replayed struct {
	// Events is how many were sent again, Ingested how many of them became data points, DroppedAgain how many did not.
	Events, Ingested, DroppedAgain int
	// Lost is how many could not be sent, since the log does not have their body as it came.
	Lost int
	// Stopped is why others were not sent, "" for nothing.
	Stopped string
}

// replayDropped sends the oldest dropped events of the project again, and leads back to the page of erasures. A
// refusal, such as by the limit of a minute, stops it: what is left is sent by another form.
func (d Deps) replayDropped(r *web.Request) error {
	hooks, err := d.Access.Webhooks(r.Context(), r.Project.Project)
	if err != nil {
		return err
	}
	ids := make([]string, len(hooks))
	for i, w := range hooks {
		ids[i] = w.ID
	}
	events, err := d.Calls.DroppedEvents(r.Context(), r.Project.Project, ids, r.Now(), why.MaxDropped)
	if err != nil {
		return err
	}
	var done Replayed
	callers := map[string]auth.Principal{}
	for _, e := range events {
		if done.Events == MostReplayed {
			break
		}
		if err := d.replayOne(r, e, callers, &done); err != nil {
			f := httpx.Fault(err)
			if httpx.Status(f.Kind) >= http.StatusInternalServerError && done.Events == 0 {
				return err
			}
			done.Stopped = f.Msg
			break
		}
	}
	back := r.ProjectPath("erasures") + "?identity=" + url.QueryEscape(r.PostForm.Get("identity"))
	return web.ShowOnce(r, back, done)
}

// replayOne sends a dropped event again as one of its webhook, which callers have by its id.
func (d Deps) replayOne(
	r *web.Request, e requestlog.Event, callers map[string]auth.Principal, done *Replayed,
) error {
	found, err := d.Calls.Event(r.Context(), r.Project.Project, e.Webhook.ID, e.RequestID, r.Now())
	if err != nil {
		return err
	}
	body, err := d.Calls.BodyOf(found, r.Now())
	if err != nil {
		done.Lost++
		return nil //nolint:nilerr // the log does not have it as it came
	}
	caller, known := callers[e.Webhook.ID]
	if !known {
		if _, caller, known, err = d.Access.WebhookOf(r.Context(), r.Project.Project, e.Webhook.ID); err != nil || !known {
			return err // deleted meanwhile
		}
		callers[e.Webhook.ID] = caller
	}
	var headers map[string]string
	if err := json.Unmarshal(found.Logged.RequestHeaders, &headers); err != nil {
		return err
	}
	sent, err := d.send(r, caller, httpx.InnerCall{Body: body, ContentType: headers["content-type"], Replay: true})
	if err != nil {
		return err
	}
	if done.Events++; sent.Status == requestlog.Ingested {
		done.Ingested++
	} else {
		done.DroppedAgain++
	}
	return d.Calls.MarkReplayed(r.Context(), e.Entry, sent.RequestID)
}
