package datapoints

import (
	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	points "github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/find"
)

// searchPage is what an id names. With one meaning, the browser goes there at once.
type searchPage struct {
	Query string   `json:"query"`
	Found []result `json:"found"`
}

type result struct {
	find.Found

	Path string `json:"path"`
}

func (p *pages) search(r *web.Request) error {
	page := searchPage{Query: r.URL.Query().Get("q"), Found: []result{}}
	if !isText(page.Query) {
		return r.Invalid(fault.New(fault.Invalid, fault.CodeInvalidRequest, "this is no text"), "search.html", searchPage{})
	}
	found, err := p.Find.Find(r.Context(), r.Project.Project, page.Query)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, f := range found {
		path := pathOf(r, f)
		if !seen[path] {
			page.Found = append(page.Found, result{f, path})
		}
		seen[path] = true
	}
	if len(page.Found) == 1 && r.Format() == "" {
		r.Redirect(page.Found[0].Path)
		return nil
	}
	return r.Render("search.html", page)
}

// pathOf is the page of what an id names.
func pathOf(r *web.Request, f find.Found) string {
	switch f.Kind {
	case find.DataPoint:
		return pointPath(r, f.ID)
	case find.Send:
		return r.ProjectPath("sends", f.ID)
	case find.Request:
		return r.ProjectPath("requests", f.ID)
	case find.Deletion:
		return r.ProjectPath("requests") + "?search=" + f.ID
	case find.Identity:
		return r.ProjectPath("identities", f.ID)
	case find.Audience:
		return r.ProjectPath("audiences", f.ID)
	case find.Webhook:
		return r.ProjectPath("webhooks", f.ID)
	default:
		return r.ProjectPath("trace", f.ID)
	}
}

// sendPage is a send with what became of it.
type sendPage struct {
	points.Explained

	Retryable bool   `json:"retryable"`
	Next      string `json:"next"`
	// Open is true while more happens by itself: then Done of the items that are shown are searchable.
	Open     bool `json:"open"`
	Done     int  `json:"done"`
	MayRetry bool `json:"-"`
	// Paths are those of the data points of the items.
	Paths []string `json:"-"`
}

// sendOf is the send in the path. An id that is no UUID names none.
func sendOf(r *web.Request) (uuid.UUID, error) {
	id, err := uuid.Parse(r.PathValue("send"))
	if err != nil {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "the id of a send is a UUID")
	}
	return id, err
}

func (p *pages) send(r *web.Request) error {
	id, err := sendOf(r)
	if err != nil {
		return err
	}
	e, err := p.Explain.Explain(r.Context(), r.Project.Project, id)
	if err != nil {
		return err
	}
	if e.Send == nil {
		r.Redirect(r.ProjectPath("requests", e.RequestID.String()))
		return nil
	}
	page := sendPage{Explained: *e.Send, Retryable: e.Retryable, Next: e.Next}
	page.Open = page.SettledAt == nil && !page.Deleted
	page.MayRetry = page.FailureOpen && e.Retryable && r.May(web.Write) && !r.Project.Archived
	for _, i := range page.Items {
		page.Paths = append(page.Paths, pointPath(r, i.SourceID))
		if i.Searchable {
			page.Done++
		}
	}
	return r.Render("send.html", page)
}

type failedPage struct {
	Failed []points.StoppedSend `json:"failed"`
	Pager  web.Pager            `json:"pager"`
	// MayRetry is true if the person may try them again.
	MayRetry bool `json:"-"`
}

// maxFailed is how many failed sends a page lists.
const maxFailed = 50

func (p *pages) failed(r *web.Request) error {
	after := uuid.Nil
	if text := r.URL.Query().Get("after"); text != "" {
		var err error
		if after, err = uuid.Parse(text); err != nil {
			return wrongCursor()
		}
	}
	list, err := p.Stopped.List(r.Context(), r.Project.Project.ID, maxFailed, after)
	if err != nil {
		return err
	}
	return r.Render("failed.html", failedPage{
		list.Failed, web.Pager{Next: list.After}, r.May(web.Write) && !r.Project.Archived,
	})
}

func (p *pages) retry(r *web.Request) error {
	id, err := sendOf(r)
	if err == nil {
		err = p.Commands.Retry(r.Context(), r.Command(), id)
	}
	if err != nil {
		return err
	}
	return r.Done(r.ProjectPath("sends", id.String()), "retried")
}
