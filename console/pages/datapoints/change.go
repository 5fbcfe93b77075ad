package datapoints

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/why"
)

// anInstant is how a time is written.
const anInstant = "2026-11-30T14:00:00Z, or a day as in 2026-11-30"

// form is the fields of a data point as a person edits them.
type form struct {
	ID        string `json:"id"`
	Content   string `json:"content"`
	Label     string `json:"label"`
	Timestamp string `json:"timestamp"`
	Metadata  string `json:"metadata"`
	Audience  string `json:"audience"`
	Identity  string `json:"identity"`
}

func formOf(r *web.Request) form {
	return form{
		r.Field("id"), r.Raw("content"), r.Field("label"), r.Field("timestamp"), strings.TrimSpace(r.Raw("metadata")),
		r.Field("audience"), r.Raw("identity"),
	}
}

// point reads a form as the API reads the body of a send. The fault is invalid-request.
func (f form) point() (commands.DataPoint, error) {
	body := map[string]any{"content": f.Content}
	for name, value := range map[string]string{
		"id": f.ID, "label": f.Label, "timestamp": f.Timestamp, "audience": f.Audience, "identity": f.Identity,
	} {
		if !isText(value) {
			return commands.DataPoint{}, fields.Invalid(name, "is no text")
		}
		if value != "" {
			body[name] = value
		}
	}
	if _, err := instant.Parse(f.Timestamp); f.Timestamp != "" && err != nil {
		return commands.DataPoint{}, fields.Invalid("the time \"Occurred\"", "is none: write one as in %s", anInstant)
	}
	if f.Metadata != "" {
		if !json.Valid([]byte(f.Metadata)) {
			return commands.DataPoint{}, fields.Invalid("metadata", "is no JSON")
		}
		body["metadata"] = json.RawMessage(f.Metadata)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return commands.DataPoint{}, err
	}
	return fields.Decode(text, "", fields.DataPointNames, fields.DataPointOf)
}

// correctPage is a data point in the form that corrects it.
type correctPage struct {
	form
	Revision int `json:"revision"`
	// Was is the audience that the form began with.
	Was string `json:"was"`
	// TextCut and MetadataCut are true if they are too long for the form, and stay as they are.
	TextCut     bool `json:"textCut"`
	MetadataCut bool `json:"metadataCut"`
	// Newer is set if somebody else revised the data point meanwhile.
	Newer *why.Point `json:"newer,omitempty"`
}

func correctPageOf(p why.Point) correctPage {
	page := correctPage{
		form: form{
			ID: p.SourceID, Content: p.Text, Timestamp: p.OccurredAt.Format(time.RFC3339Nano), Metadata: p.JSON,
			Audience: audienceName(p.Audience, p.PrivateTo), Identity: p.Author,
		},
		Revision: p.Revision, TextCut: p.MoreText, MetadataCut: p.MoreJSON, Was: audienceName(p.Audience, p.PrivateTo),
	}
	if p.Label != nil {
		page.Label = *p.Label
	}
	return page
}

func (p *pages) correctForm(r *web.Request) error {
	found, err := p.live(r, maxText)
	if err != nil {
		return err
	}
	return r.Render("correct.html", correctPageOf(found))
}

func (p *pages) correct(r *web.Request) error {
	found, err := p.live(r, maxText)
	if err != nil {
		return err
	}
	stored := correctPageOf(found)
	sent := stored
	sent.form, sent.Was, sent.ID = formOf(r), r.Field("was"), stored.ID
	if sent.Revision, err = strconv.Atoi(r.Field("revision")); err != nil {
		return fields.Invalid("revision", "is no number: open the page again")
	}
	if stored.TextCut {
		sent.Content = stored.Content
	}
	if stored.MetadataCut {
		sent.Metadata = ""
	}
	change, err := sent.correction(stored)
	if err == nil {
		_, err = p.Commands.Correct(r.Context(), r.Command(), change)
	}
	if err == nil {
		return r.Done(pointPath(r, stored.ID), "saved")
	}
	if httpx.Fault(err).Code == fault.CodeConflict {
		sent.Newer, sent.Revision = &found, stored.Revision
	}
	return r.Invalid(err, "correct.html", sent)
}

// correction returns what the form changes of what is stored.
func (c correctPage) correction(stored correctPage) (change commands.Correction, err error) {
	sent := c.form
	if sent.Audience == removedAudience || sent.Audience == privateAudience {
		sent.Audience = ""
	}
	in, err := sent.point()
	if err != nil {
		return change, err
	}
	changed := func(now, was string) *string {
		if strings.TrimSpace(now) == strings.TrimSpace(strings.ReplaceAll(was, "\r\n", "\n")) {
			return nil
		}
		return &now
	}
	change = commands.Correction{
		SourceID: c.ID, Revision: c.Revision, Content: changed(sent.Content, stored.Content),
		Label: changed(sent.Label, stored.Label), Identity: changed(sent.Identity, stored.Identity),
		// The audience of a data point can change without a revision: only what the person changed counts.
		Audience: changed(c.Audience, c.Was),
	}
	if changed(sent.Timestamp, stored.Timestamp) != nil {
		change.Timestamp = in.Timestamp
	}
	if !stored.MetadataCut && changed(sent.Metadata, stored.Metadata) != nil {
		if change.Metadata = in.Metadata; in.Metadata == nil {
			change.Metadata = json.RawMessage("null")
		}
	}
	if change.Audience != nil && *change.Audience == "" {
		return change, fields.Invalid("audience", "is empty: write %q for everyone of the project", audience.Default)
	}
	return change, nil
}
