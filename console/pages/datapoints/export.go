package datapoints

import (
	"io"
	"time"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/projections/export"
)

// exportTime is how long an export may take.
const exportTime = time.Hour

func (p *pages) exportForm(r *web.Request) error {
	return r.Render("export.html", nil)
}

// exportFile writes what the command annals export writes: data-points.jsonl, or with-memories.jsonl.
func (p *pages) exportFile(r *web.Request) error {
	file := r.PathValue("file")
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
