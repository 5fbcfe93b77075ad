package trace

import (
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/projections/why"
)

// rootList is the data of the page where a trace begins.
type rootList struct {
	Part    web.Part[why.Root]
	Sources bool
}

// roots is where a trace begins: the newest memories, or those that a search finds; with ?kind=sources the sources.
func (d Deps) roots(r *web.Request) error {
	q, err := why.RootsQueryOf(filled(r))
	page := rootList{Sources: r.URL.Query().Get("kind") == "sources"}
	if err != nil {
		return r.Invalid(err, "roots.html", page)
	}
	return web.List[why.Root]{
		Name: "trace-" + r.Project.Project.Slug, Columns: []string{
			"id", "kind", "memoryKind", "headline", "dataPointId", "revision", "occurredAt", "createdAt", "current", "phase",
		},
		Cells: func(n why.Root) []any {
			return []any{
				n.ID, n.Kind, n.MemoryKind, n.Headline, n.SourceID, n.Revision, n.OccurredAt, n.CreatedAt, n.Current, n.Phase,
			}
		},
		Read: func(after, before string, most int) (web.Part[why.Root], error) {
			return web.Forwards(after, before, func(at string) ([]why.Root, string, error) {
				var wrong fields.Problems
				next := wrong.Cursor("after", at, "roots")
				if err := wrong.Err(); err != nil {
					return nil, "", err
				}
				q.First, q.AfterMemories, q.AfterSources = min(most, limit.TraceRoots), next, next
				both, err := d.Trace.Roots(r.Context(), r.Project.Project, q)
				found := both.Memories
				if page.Sources {
					found = both.Sources
				}
				if err != nil || !found.More {
					return found.Nodes, "", err
				}
				return found.Nodes, found.End.String(), nil
			})
		},
	}.Serve(r, "roots.html", &page, &page.Part)
}
