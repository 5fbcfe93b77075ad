package datapoints

import (
	"cmp"
	"slices"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/fields"
	points "github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/history"
	"github.com/annals-project/annals/projections/why"
)

// result is something that an id names, with its page.
type result struct {
	why.Found

	Path string `json:"path"`
}

// folders have the pages of what ids name; all others are nodes of the trace.
var folders = map[why.Kind]string{
	why.FoundDataPoint: "data", why.FoundSend: "sends", why.FoundRequest: "requests", why.FoundIdentity: "identities",
	why.FoundAudience: "audiences", why.FoundWebhook: "webhooks",
}

// search shows what an id names. With one meaning, the browser goes there at once.
func (p *pages) search(r *web.Request) error {
	results, query := []result{}, r.URL.Query().Get("q")
	if !isText(query) {
		return r.Invalid(fields.Invalid("q", "is no text"), "search.html", results)
	}
	found, err := p.Find.Find(r.Context(), r.Project.Project, query)
	if err != nil {
		return err
	}
	for _, f := range found {
		one := result{f, r.ProjectPath(cmp.Or(folders[f.Kind], "trace"), f.ID)}
		if f.Kind == why.FoundDeletion {
			one.Path = r.ProjectPath("requests") + "?search=" + f.ID
		}
		if !slices.ContainsFunc(results, func(other result) bool { return other.Path == one.Path }) {
			results = append(results, one)
		}
	}
	if len(results) == 1 && r.Format() == "" {
		r.Redirect(results[0].Path)
		return nil
	}
	return r.Render("search.html", results)
}

// sendPage is a send with what became of it.
type sendPage struct {
	why.Explanation

	// Open is true while more happens by itself: then Done of the items that are shown are searchable.
	Open bool
	Done int
	// By is who sent it, nil if that is not known any more. IsLogged reports that the request log has the call.
	By       *history.Principal
	IsLogged bool
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
	page := sendPage{Explanation: e, Open: e.Send.SettledAt == nil && !e.Send.Deleted}
	for _, i := range e.Send.Items {
		if i.Searchable {
			page.Done++
		}
	}
	if err := p.sentBy(r, &page); err != nil {
		return err
	}
	return r.Render("send.html", page)
}

// sentBy adds who sent a send.
func (p *pages) sentBy(r *web.Request, page *sendPage) error {
	first := uuid.Nil
	if len(page.Send.Items) > 0 {
		first = page.Send.Items[0].DataPoint
	}
	by, known, err := p.History.SentBy(r.Context(), page.Send.ID, first)
	if err != nil {
		return err
	}
	if known {
		page.By = &by
	}
	logged, err := p.Log.Logged(r.Context(), r.Project.Project.ID, []uuid.UUID{page.Send.RequestID})
	page.IsLogged = logged[page.Send.RequestID]
	return err
}

func (p *pages) failed(r *web.Request) error {
	var page web.Part[points.StoppedSend]
	return web.List[points.StoppedSend]{
		Name: "failed-sends", Columns: []string{"acceptedAt", "send", "items", "code", "message", "failedAt", "retryable"},
		Cells: func(s points.StoppedSend) []any {
			return []any{s.AcceptedAt, s.IngestionID, s.Items, s.Code, s.Message, s.FailedAt, s.Retryable}
		},
		Read: func(after, before string, most int) (web.Part[points.StoppedSend], error) {
			return web.Forwards(after, before, func(cursor string) (_ []points.StoppedSend, next string, err error) {
				from := uuid.Nil
				if cursor != "" {
					if from, err = uuid.Parse(cursor); err != nil {
						return nil, "", web.WrongPlace()
					}
				}
				list, err := p.Stopped.List(r.Context(), r.Project.Project.ID, most, from)
				return list.Failed, list.After, err
			})
		},
	}.Serve(r, "failed.html", &page, &page)
}

func (p *pages) retry(r *web.Request) error {
	id, err := sendOf(r)
	if err == nil {
		err = p.Commands.Retry(r.Context(), r.Command(), id)
	}
	return r.Did(err, r.ProjectPath("sends", id.String()), "retried")
}
