package datapoints

import (
	"io"
	"time"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/projections/export"
)

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
