package datapoints

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/importer"
	"github.com/annals-project/annals/projections/export"
	"github.com/annals-project/annals/projections/why"
)

// cost is what would be sent, and what it costs.
type cost struct {
	Points  int        `json:"dataPoints"`
	Bytes   int64      `json:"bytes"`
	Metered bool       `json:"metered"`
	Tenths  int64      `json:"creditTenths"`
	Left    *int64     `json:"leftTenths"`
	Fits    bool       `json:"fits"`
	Files   []fileCost `json:"files,omitempty"`
	// NoTime counts the data points without a time: they would get that of the import.
	NoTime int `json:"withoutTime,omitempty"`
}

type fileCost struct {
	Path    string `json:"path"`
	Kind    string `json:"kind"`
	Points  int    `json:"dataPoints"`
	Bytes   int64  `json:"bytes"`
	Skipped string `json:"skipped,omitempty"`
	// Remarks are what was left out of the file.
	Remarks []string `json:"remarks,omitempty"`
}

// priced completes a cost by what the project may still ingest.
func (p *pages) priced(r *web.Request, c cost) (cost, error) {
	room, err := p.Rooms.Room(r.Context(), r.Command().Principal, r.Now())
	if err != nil {
		return c, err
	}
	c.Metered, c.Left = room.Metered, room.LeftTenths
	c.Fits = (room.CreditTenths == nil || c.Tenths <= *room.CreditTenths) &&
		(room.Points == nil || int64(c.Points) <= *room.Points)
	return c, nil
}

// ingestPage is one text in the form, with its cost once that is known.
type ingestPage struct {
	form
	Cost *cost `json:"cost,omitempty"`
	// Confirm is what was estimated: only that is sent.
	Confirm string `json:"-"`
	// Key makes a form that is sent twice one send.
	Key string `json:"-"`
}

func (p *pages) ingestForm(r *web.Request) error {
	return r.Render("ingest.html", ingestPage{})
}

// ingest shows what the text would cost, and sends it once the person has seen that.
func (p *pages) ingest(r *web.Request) error {
	page := ingestPage{form: formOf(r), Key: r.Field("key")}
	in, err := page.point()
	if err != nil {
		return r.Invalid(err, "ingest.html", page)
	}
	text, err := json.Marshal(page.form)
	if err != nil {
		return err
	}
	page.Confirm = datapoint.Digest(text)
	if r.Field("confirm") != page.Confirm {
		size := int64(len(in.Content))
		c, err := p.priced(r, cost{Points: 1, Bytes: size, Tenths: metering.IngestTenths(size)})
		if err != nil {
			return err
		}
		page.Cost, page.Key = &c, uuid.NewString()
		return r.Form(nil, "ingest.html", page)
	}
	receipt, err := p.Commands.Ingest(r.Context(), r.Command(), in, "console-"+page.Key)
	if err != nil {
		return r.Invalid(err, "ingest.html", page)
	}
	return r.Done(r.ProjectPath("sends", receipt.IngestionID.String()), "sent")
}

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
func (f form) point() (ingest.DataPoint, error) {
	body := map[string]any{"content": f.Content}
	for name, value := range map[string]string{
		"id": f.ID, "label": f.Label, "timestamp": f.Timestamp, "audience": f.Audience, "identity": f.Identity,
	} {
		if !isText(value) {
			return ingest.DataPoint{}, fields.Invalid(name, "is no text")
		}
		if value != "" {
			body[name] = value
		}
	}
	if _, err := instant.Parse(f.Timestamp); f.Timestamp != "" && err != nil {
		return ingest.DataPoint{}, fields.Invalid("the time \"Occurred\"", "is none: write one as in %s", anInstant)
	}
	if f.Metadata != "" {
		if !json.Valid([]byte(f.Metadata)) {
			return ingest.DataPoint{}, fields.Invalid("metadata", "is no JSON")
		}
		body["metadata"] = json.RawMessage(f.Metadata)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return ingest.DataPoint{}, err
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
func (c correctPage) correction(stored correctPage) (change ingest.Correction, err error) {
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
	change = ingest.Correction{
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

const (
	// maxUpload is the most bytes of all files of an upload, and importBody of its request; maxFiles is how many it has.
	maxUpload  = 32 << 20
	importBody = maxUpload + 1<<20
	maxFiles   = 200
	// importTime is how long a request sends. What is left then goes on with the next one.
	importTime = 20 * time.Second
	// importBatches is how many batches of an import are sent at once.
	importBatches = 2
)

// asPoints means that a file is data points, one JSON object a line, as an export writes them.
const asPoints = "points"

// importPage is an upload with what became of it.
type importPage struct {
	As       string `json:"as"`
	Audience string `json:"audience"`
	Cost     *cost  `json:"cost,omitempty"`
	// ID is made of what was uploaded: only what was estimated is sent, and nothing of it twice.
	ID string `json:"id,omitempty"`
	// State is how far an import came, nil before it began. Stopped is true if there is more to send.
	State   *importer.State `json:"state,omitempty"`
	Stopped bool            `json:"stopped"`
	// Resume is the state as the form carries it on.
	Resume string `json:"-"`
	MaxMiB int    `json:"-"`
}

// sentImport is what the page after a part of an import shows once.
type sentImport struct {
	As, Audience, ID string
	State            *importer.State
	Stopped          bool
}

func (p *pages) importForm(r *web.Request) error {
	page := importPage{MaxMiB: maxUpload >> 20}
	was, err := web.Once[sentImport](r)
	if err == nil && was.State != nil {
		page.As, page.Audience, page.ID = was.As, was.Audience, was.ID
		err = page.reach(was.State, was.Stopped)
	}
	if err != nil {
		return err
	}
	return r.Render("import.html", page)
}

// reach adds to a page how far its import came.
func (p *importPage) reach(state *importer.State, stopped bool) error {
	text, err := json.Marshal(state)
	p.State, p.Stopped, p.Resume = state, stopped, string(text)
	return err
}

// importFiles shows what an upload would cost, and sends it once the person has seen that. The form shows then how far
// that came, once: to choose the same files again goes on.
func (p *pages) importFiles(r *web.Request) error {
	page := importPage{MaxMiB: maxUpload >> 20}
	page.As, page.Audience = r.Field("as"), r.Field("audience")
	err := p.upload(r, &page)
	if reason, refused := importer.Refused(err); refused {
		err = fault.New(fault.Invalid, fault.CodeInvalidRequest, "%s", reason)
	}
	if err != nil {
		return r.Invalid(err, "import.html", page)
	}
	if page.State == nil {
		return r.Form(nil, "import.html", page)
	}
	return web.ShowOnce(r, r.ProjectPath("import"), sentImport{page.As, page.Audience, page.ID, page.State, page.Stopped})
}

// upload does what the form asks for. Its faults are those of the files and of the command.
func (p *pages) upload(r *web.Request, page *importPage) error {
	files, size, err := filesOf(r)
	if err != nil {
		return err
	}
	slot := p.uploads.Open(allowance.Owner{
		Organization: r.Membership.Organization, Project: r.Project.Project.ID,
	})
	defer slot.Release()
	if err := slot.Reserve(r.Context(), admission.LongEstimate+size); err != nil {
		return err
	}
	lines, c, err := linesOf(r, *page, files)
	if err != nil {
		return err
	}
	// Another upload of the same files goes on with the import.
	page.ID = datapoint.Digest(append([]byte(r.Project.Project.ID.String()), lines...))
	if r.Field("confirm") != page.ID {
		c, err = p.priced(r, c)
		page.Cost = &c
		return err
	}
	return p.sendLines(r, page, lines)
}

// sendLines sends what an import has not sent yet, for importTime.
func (p *pages) sendLines(r *web.Request, page *importPage, lines []byte) error {
	state := importer.NewState(importer.Target{Project: r.Project.Project.ID.String()})
	state.ImportID = page.ID
	if text := r.Field("state"); text != "" {
		var before importer.State
		if json.Unmarshal([]byte(text), &before) == nil && before.ImportID == page.ID {
			state = before
		}
	}
	// A browser that left does not end the batch that is being sent.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), importTime)
	defer cancel()
	call := r.Command()
	send := func(ctx context.Context, items []ingest.DataPoint, key string) (sent importer.LocalReceipt, err error) {
		if err := ctx.Err(); err != nil {
			return sent, err
		}
		receipt, err := p.Commands.IngestBatch(context.WithoutCancel(ctx), call, items, key)
		if err != nil {
			return sent, err
		}
		sent.ProjectID, sent.IngestionID = receipt.ProjectID, receipt.IngestionID.String()
		for _, item := range receipt.Items {
			sent.Unchanged = append(sent.Unchanged, item.Unchanged != nil && *item.Unchanged)
		}
		return sent, nil
	}
	run := importer.Import{To: importer.Local(send), In: bytes.NewReader(lines), State: state, Parallel: importBatches}
	state, failed := run.Run(ctx)
	if err := page.reach(&state, failed != nil); err != nil {
		return err
	}
	if errors.Is(failed, context.DeadlineExceeded) {
		return nil
	}
	return failed
}

// filesOf returns the files of an upload and their size.
func filesOf(r *web.Request) (files []web.File, size int64, err error) {
	files = r.Files("files")
	for _, f := range files {
		size += f.Size
	}
	if len(files) == 0 || len(files) > maxFiles {
		return nil, 0, fault.New(fault.Invalid, fault.CodeInvalidRequest, "choose 1 to %d files", maxFiles)
	}
	if size > maxUpload {
		return nil, 0, fault.New(fault.TooLarge, fault.CodeContentTooLarge,
			"the files have more than %d MiB: choose fewer, or use the command annals import", maxUpload>>20)
	}
	return files, size, nil
}

// linesOf returns the data points of an upload, one a line, with what they cost.
func linesOf(r *web.Request, page importPage, files []web.File) ([]byte, cost, error) {
	if page.As != asPoints {
		return cutFiles(r, page, files)
	}
	if len(files) > 1 {
		return nil, cost{}, fault.New(fault.Invalid, fault.CodeInvalidRequest, "choose one file of data points")
	}
	data, err := content(files[0])
	if err != nil {
		return nil, cost{}, err
	}
	count, err := importer.Check(bytes.NewReader(data))
	return data, cost{Points: count.Points, Bytes: count.Bytes, Tenths: count.CreditTenths}, err
}

// cutFiles cuts files into data points as an estimate of the API does.
func cutFiles(r *web.Request, page importPage, files []web.File) ([]byte, cost, error) {
	read := func(i int) (importer.Bytes, error) {
		data, err := content(files[i])
		return importer.Bytes{Path: web.Cut(files[i].Name, limit.EstimatePath-1), Content: data}, err
	}
	lines, made, err := importer.Cut(r.Context(), r.Zone(), page.Audience, len(files), read)
	if err != nil {
		return nil, cost{}, err
	}
	c := cost{Points: made.Points, Bytes: made.Bytes, Tenths: made.CreditTenths}
	for _, f := range made.Files {
		row := fileCost{f.Path, string(f.Kind), f.Points, f.Bytes, f.Skipped, nil}
		for _, r := range f.Remarks {
			row.Remarks = append(row.Remarks, r.Text)
			if r.Code == estimate.NoTime {
				c.NoTime += r.Count
			}
		}
		c.Files = append(c.Files, row)
	}
	return lines, c, nil
}

func content(f web.File) ([]byte, error) {
	data, err := io.ReadAll(f.Open())
	if err != nil {
		return nil, fmt.Errorf("read an upload: %w", err)
	}
	return data, nil
}

// exportTime is how long an export may take.
const exportTime = time.Hour

// exportPage is the form of exports, with the identity whose copy is asked for and what a copy has not.
type exportPage struct {
	Identity    string
	NotIncluded []export.Exception
}

func (p *pages) exportForm(r *web.Request) error {
	return r.Render("export.html", exportPage{r.URL.Query().Get("identity"), export.Exceptions()})
}

// personFile is the name of the copy of a person.
const personFile = "person.jsonl"

// exportPerson writes what the command annals export --identity writes.
func (p *pages) exportPerson(r *web.Request) error {
	in := export.PersonRequest{
		Organization: r.Membership.Organization.String(), Project: r.Project.Project.Slug,
		Identity: r.URL.Query().Get("identity"),
	}
	var problems fields.Problems
	problems.CheckParameter("identity", in.Identity, limit.Identity)
	if err := problems.Err(); err != nil {
		return r.Invalid(err, "export.html", exportPage{in.Identity, export.Exceptions()})
	}
	began, err := p.People.BeginPerson(r.Context(), in)
	if err != nil {
		return err
	}
	if err := r.Exported(personFile, "jsonl"); err != nil {
		return err
	}
	return r.Stream("application/jsonl; charset=utf-8", in.Project+"-"+personFile, func(w io.Writer) error {
		_, err := p.People.WritePerson(r.Context(), in, began, w, r.Again)
		return err
	})
}

// exportFile writes what the command annals export writes: data-points.jsonl, or with-memories.jsonl, or the copy of a
// person.
func (p *pages) exportFile(r *web.Request) error {
	file := r.PathValue("file")
	if file == personFile {
		return p.exportPerson(r)
	}
	if file != "data-points.jsonl" && file != "with-memories.jsonl" {
		return fault.New(fault.NotFound, fault.CodeNotFound, "there is no such export")
	}
	in := export.Request{
		Organization: r.Membership.Organization.String(), Project: r.Project.Project.Slug,
		Memories: file == "with-memories.jsonl",
	}
	began, err := p.Export.Begin(r.Context(), in)
	if err != nil {
		return err
	}
	if err := r.Exported(file, "jsonl"); err != nil {
		return err
	}
	return r.Stream("application/jsonl; charset=utf-8", r.Project.Project.Slug+"-"+file, func(w io.Writer) error {
		return p.Export.Write(r.Context(), in, began, w, func(export.Mark) error { return r.Again() })
	})
}
