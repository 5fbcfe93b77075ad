package datapoints

import (
	"context"
	"io"
	"time"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/projections/export"
)

const (
	// maxExports is how many exports a process writes at once, exportTime how long one may take.
	maxExports = 2
	exportTime = time.Hour
)

func (p *pages) exportForm(r *web.Request) error {
	return r.Render("export.html", nil)
}

// exportFile writes what the command annals export writes: data-points.jsonl, or with-memories.jsonl.
func (p *pages) exportFile(r *web.Request) error {
	file := r.PathValue("file")
	if file != "data-points.jsonl" && file != "with-memories.jsonl" {
		return fault.New(fault.NotFound, fault.CodeNotFound, "there is no such export")
	}
	select {
	case p.exports <- struct{}{}:
		defer func() { <-p.exports }()
	default:
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "too many exports are being written; retry")
	}
	// An export takes longer than a page may. A browser that left ends it with the next write.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), exportTime)
	defer cancel()
	in := export.Request{
		Organization: r.Membership.Organization.String(), Project: r.Project.Project.Slug,
		Memories: file == "with-memories.jsonl",
	}
	began, err := p.Export.Begin(ctx, in)
	if err != nil {
		return err
	}
	return r.Stream("application/jsonl; charset=utf-8", r.Project.Project.Slug+"-"+file, func(w io.Writer) error {
		return p.Export.Write(ctx, in, began, w, func(export.Mark) error { return nil })
	})
}
