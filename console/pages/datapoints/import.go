package datapoints

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/importer"
)

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
	send := func(ctx context.Context, items []commands.DataPoint, key string) (sent importer.LocalReceipt, err error) {
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
