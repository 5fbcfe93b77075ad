package trace

import (
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/projections/trace"
)

// rootList is a page of the memories or of the sources of a project.
type rootList struct {
	Nodes []trace.Root
	Pager web.Pager
}

// roots is where a trace begins: the newest memories and sources, or those that a search finds.
func (d Deps) roots(r *web.Request) error {
	q, err := trace.RootsQueryOf(filled(r))
	if err != nil {
		return r.Invalid(err, "roots.html", nil)
	}
	if r.Format() == "csv" {
		return r.Rows("trace-"+r.Project.Project.Slug, []string{
			"id", "kind", "memoryKind", "headline", "dataPointId", "revision", "occurredAt", "createdAt", "current", "phase",
		}, d.rootRows(r, q))
	}
	found, err := d.Trace.Roots(r.Context(), r.Project.Project, q)
	if err != nil {
		return err
	}
	list := func(page trace.RootPage, after, before string) rootList {
		l := rootList{Nodes: page.Nodes}
		if !page.More {
			page.End = nil
		}
		r.Trail(&l.Pager, after, before, page.End)
		return l
	}
	return r.Render("roots.html", struct{ Memories, Sources rootList }{
		list(found.Memories, "afterMemories", "beforeMemories"), list(found.Sources, "afterSources", "beforeSources"),
	})
}

// rootRows reads the roots of a query for a file, at most web.MaxTotal of each group.
func (d Deps) rootRows(r *web.Request, q trace.RootsQuery) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		q.First = limit.TraceRoots
		for n, more := 0, true; more && n < web.MaxTotal; n += q.First {
			found, err := d.Trace.Roots(r.Context(), r.Project.Project, q)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, node := range slices.Concat(found.Memories.Nodes, found.Sources.Nodes) {
				if !yield([]string{
					node.ID.String(), node.Kind, node.MemoryKind, node.Headline, node.SourceID, strconv.Itoa(node.Revision),
					node.OccurredAt.UTC().Format(time.RFC3339Nano), node.CreatedAt.UTC().Format(time.RFC3339Nano),
					strconv.FormatBool(node.Current), node.Phase,
				}, nil) {
					return
				}
			}
			if more = found.Memories.More || found.Sources.More; found.Memories.End != nil {
				q.AfterMemories = found.Memories.End
			}
			if found.Sources.End != nil {
				q.AfterSources = found.Sources.End
			}
		}
	}
}
