package datapoints

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/projections/trace"
)

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
	TextCut     bool   `json:"textCut"`
	MetadataCut bool   `json:"metadataCut"`
	Path        string `json:"-"`
	// Newer is set if somebody else revised the data point meanwhile.
	Newer *onePage `json:"newer,omitempty"`
}

func correctPageOf(r *web.Request, p trace.Point) correctPage {
	page := correctPage{
		form: form{
			ID: p.SourceID, Content: p.Text, Timestamp: p.OccurredAt.Format(time.RFC3339Nano), Metadata: p.JSON,
			Audience: audienceName(p.Audience), Identity: p.Author,
		},
		Revision: p.Revision, TextCut: p.MoreText, MetadataCut: p.MoreJSON, Path: pointPath(r, p.SourceID),
	}
	if p.Label != nil {
		page.Label = *p.Label
	}
	page.Was = page.Audience
	return page
}

// editable reads the data point of the path with as much of its texts as a form holds.
func (p *pages) editable(r *web.Request) (trace.Point, error) {
	found, err := p.point(r, trace.PointQuery{SourceID: r.Part("id"), Bytes: maxText})
	if err == nil && found.Deleted != nil {
		err = gone()
	}
	return found, err
}

func (p *pages) correctForm(r *web.Request) error {
	found, err := p.editable(r)
	if err != nil {
		return err
	}
	return r.Render("correct.html", correctPageOf(r, found))
}

func (p *pages) correct(r *web.Request) error {
	found, err := p.editable(r)
	if err != nil {
		return err
	}
	stored := correctPageOf(r, found)
	sent := stored
	sent.form, sent.Was = formOf(r), r.Field("was")
	sent.ID = stored.ID
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
	if err == nil && sent.Revision == stored.Revision && unchanged(change) {
		err = fault.New(fault.Invalid, fault.CodeInvalidRequest, "nothing was changed in the form")
	}
	if err == nil {
		_, err = p.Commands.Correct(r.Context(), r.Command(), change)
	}
	if err == nil {
		return r.Done(stored.Path, "saved")
	}
	if f, is := errors.AsType[*fault.Error](err); is && f.Code == fault.CodeConflict {
		newer := onePageOf(r, found)
		sent.Newer, sent.Revision = &newer, stored.Revision
	}
	return r.Invalid(err, "correct.html", sent)
}

// correction returns what the form changes of what is stored.
func (c correctPage) correction(stored correctPage) (change commands.Correction, err error) {
	sent := c.form
	if sent.Audience == removedAudience {
		sent.Audience = ""
	}
	if stored.MetadataCut {
		sent.Metadata = ""
	}
	in, err := sent.point()
	if err != nil {
		return change, err
	}
	change.SourceID, change.Revision = c.ID, c.Revision
	changed := func(now, was string) *string {
		if strings.TrimSpace(now) == strings.TrimSpace(strings.ReplaceAll(was, "\r\n", "\n")) {
			return nil
		}
		return &now
	}
	if !stored.TextCut {
		change.Content = changed(sent.Content, stored.Content)
	}
	change.Label, change.Identity = changed(sent.Label, stored.Label), changed(sent.Identity, stored.Identity)
	if changed(sent.Timestamp, stored.Timestamp) != nil {
		change.Timestamp = in.Timestamp
	}
	if !stored.MetadataCut && changed(sent.Metadata, stored.Metadata) != nil {
		if change.Metadata = in.Metadata; in.Metadata == nil {
			change.Metadata = json.RawMessage("null")
		}
	}
	// The audience of a data point can change without a revision: only what the person changed counts.
	if change.Audience = changed(c.Audience, c.Was); change.Audience != nil && *change.Audience == "" {
		return change, fields.Invalid("audience", "is empty: write %q for everyone of the project", audience.Default)
	}
	return change, nil
}

func unchanged(c commands.Correction) bool {
	return c.Content == nil && c.Label == nil && c.Timestamp == nil && c.Metadata == nil && c.Audience == nil &&
		c.Identity == nil
}

func (p *pages) deleteForm(r *web.Request) error {
	found, err := p.editable(r)
	if err != nil {
		return err
	}
	return r.Render("delete.html", onePageOf(r, found))
}

func (p *pages) delete(r *web.Request) error {
	if _, err := p.Commands.DeleteDataPoints(r.Context(), r.Command(), []string{r.Part("id")}); err != nil {
		return err
	}
	return r.Done(r.ProjectPath("data"), "deleted")
}
