// Package trace is the pages that answer where something comes from and what became of it: the request log, and the
// nodes of trace with their lineage and timeline.
package trace

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/svg"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/why"
)

//go:embed *.html
var templates embed.FS

// Deps are what the pages read.
type Deps struct {
	Calls   why.Calls
	Explain why.Explainer
	Trace   *why.Trace
	// Names finds the names of people. Who is removed is not in it.
	Names interface {
		Names(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]string, error)
	}
}

// Area returns the pages.
func Area(d Deps) web.Area {
	routes := []web.Route{}
	for path, serve := range map[string]func(*web.Request) error{
		"requests": d.requests, "requests/{request}": d.request, "requests/{request}/{body}": d.body,
		"trace": d.roots, "trace/{node}": d.node, "trace/{node}/lineage": d.lineage,
		"trace/{node}/timeline": d.timeline,
	} {
		auditors := web.AuditedTexts
		if path == "requests" {
			auditors = web.Audited // the list has no texts
		}
		routes = append(routes, web.Route{
			Pattern: "GET /p/{project}/" + path, Needs: web.Read, Auditors: auditors, Serve: serve,
		})
	}
	return web.Area{Templates: templates, Routes: routes}
}

// The messages of these pages that are in no template.
const (
	noSuch      = "the project has nothing with the id %.60q"
	noBody      = "the bodies of this call are not stored, or no longer"
	callsByTime = "Calls by time"
	lineageOf   = "Lineage of %s"
	timelineOf  = "Timeline of %s"
	moreNodes   = "%d more"
	moreInputs  = "inputs +%d"
	moreOutputs = "outputs +%d"
	callTime    = "Time"
)

var (
	timelineRows = []string{"Occurred", "Arrived", "Searchable", "Recalled"}
	outcomes     = []svg.Series{
		{Name: "accepted", Class: "good"}, {Name: "failed later", Class: "warn"}, {Name: "rejected", Class: "bad"},
	}
)

// id reads an id of the path.
func id(r *web.Request, name string) (uuid.UUID, error) {
	text := r.PathValue(name)
	parsed, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.Nil, fault.New(fault.NotFound, fault.CodeNotFound, noSuch, text)
	}
	return parsed, nil
}

// filled returns the parameters of the query that are not empty: a form sends all its fields.
func filled(r *web.Request) url.Values {
	query := r.URL.Query()
	for name, values := range query {
		if len(values) == 1 && values[0] == "" {
			delete(query, name)
		}
	}
	return query
}

// requestList is the data of the list of calls.
type requestList struct {
	From, To      time.Time
	BucketMinutes int
	Totals        requestlog.Totals
	Calls         web.Part[why.Call]
	Chart         svg.Bars `json:"-"`
}

func (d Deps) requests(r *web.Request) error {
	project := r.Project.Project
	values := filled(r)
	values.Del("after") // it has the cursors of the pages before too
	q, err := why.CallQueryOf(values, r.Now(), project, true)
	if err != nil {
		return r.Invalid(err, "requests.html", requestList{})
	}
	page := requestList{From: q.From, To: q.To}
	return web.List[why.Call]{
		Name: "requests-" + project.Slug, Columns: []string{
			"receivedAt", "requestId", "endpoint", "path", "status", "errorCode", "outcome", "durationMs", "key", "person",
			"identity", "ingestionId", "phase", "credits",
		},
		Cells: func(c why.Call) []any {
			var credits *json.Number
			if c.CreditTenths != nil {
				credits = new(metering.Credits(*c.CreditTenths))
			}
			return []any{
				c.ReceivedAt, c.RequestID, c.Endpoint, c.Path, c.Status, c.ErrorCode, c.Outcome, c.Duration.Milliseconds(),
				c.Key.Name, c.By, c.Identity, c.IngestionID, c.Phase, credits,
			}
		},
		Read: func(after, before string, most int) (web.Part[why.Call], error) {
			return web.Forwards(after, before, func(at string) ([]why.Call, string, error) {
				var wrong fields.Problems
				q := q
				q.First, q.After = min(most, limit.RequestPage), wrong.Cursor("after", at, "requests")
				if err := wrong.Err(); err != nil {
					return nil, "", err
				}
				found, err := d.Calls.List(r.Context(), project, q)
				if err == nil {
					err = d.name(r, found.Calls)
				}
				if err != nil || !found.HasMore {
					return found.Calls, "", err
				}
				return found.Calls, found.EndCursor.String(), nil
			})
		},
	}.Page(r, "requests.html", &page, &page.Calls, func() error {
		counts, err := d.Calls.Histogram(r.Context(), project, q)
		page.BucketMinutes, page.Totals, page.Chart = counts.BucketMinutes, counts.Totals, chart(r, counts, q)
		page.Calls.Pager.Total = web.Total(counts.Totals.Accepted + counts.Totals.FailedLater + counts.Totals.Rejected)
		return err
	})
}

// name finds the names of the people who made calls.
func (d Deps) name(r *web.Request, calls []why.Call) error {
	var ids []uuid.UUID
	for _, c := range calls {
		if c.Person != nil {
			ids = append(ids, *c.Person)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	names, err := d.Names.Names(r.Context(), ids)
	for i, c := range calls {
		if c.Person != nil {
			calls[i].By = cmp.Or(names[*c.Person], person.RemovedName)
		}
	}
	return err
}

// chart draws the calls of a window. A bar narrows it.
func chart(r *web.Request, h requestlog.Histogram, q requestlog.Query) svg.Bars {
	b := svg.Bars{Label: callsByTime, Heading: callTime, Series: outcomes}
	layout, length := "15:04", time.Duration(h.BucketMinutes)*time.Minute
	if q.To.Sub(q.From) > 2*24*time.Hour {
		layout = "2 Jan"
	}
	for _, bucket := range h.Buckets {
		from, to := bucket.Start, bucket.Start.Add(length)
		if from.Before(q.From) {
			from = q.From
		}
		if to.After(q.To) {
			to = q.To
		}
		at := bucket.Start.In(r.Zone())
		b.Bars = append(b.Bars, svg.Bar{
			Label: at.Format("2006-01-02 15:04 MST"), Tick: at.Format(layout),
			Href:   r.With("from", from.Format(time.RFC3339Nano), "to", to.Format(time.RFC3339Nano)),
			Values: []float64{float64(bucket.Accepted), float64(bucket.FailedLater), float64(bucket.Rejected)},
		})
	}
	return b
}

// Presets are windows that end now. The longest one is a day shorter than a window may be, so that its URL stays valid.
func (l requestList) Presets(r *web.Request) (list []web.Link) {
	for _, p := range []struct {
		text  string
		hours time.Duration
	}{{"1 h", 1}, {"24 h", 24}, {"7 d", 7 * 24}, {"30 d", 30 * 24}} {
		from := r.Now().Add(-p.hours * time.Hour).Format(time.RFC3339)
		list = append(list, web.Link{Text: p.text, Path: r.With("from", from, "to", "")})
	}
	return list
}

// requestView is the data of one call.
type requestView struct {
	why.Call
	RequestBytes, ResponseBytes     int64
	RequestHeaders, ResponseHeaders json.RawMessage
	ExpiresAt                       *time.Time
	Bodies                          []body
	Next                            string
}

// body is the beginning of a body of a call. Cut reports that the log has more, Truncated that even the log has not all
// of it.
type body struct {
	Name, Text     string
	Cut, Truncated bool
}

// shownBody is how much of a body a page shows.
const shownBody = 64 << 10

func (d Deps) request(r *web.Request) error {
	found, err := d.find(r)
	if err != nil {
		return err
	}
	named := []why.Call{found.Call}
	if err := d.name(r, named); err != nil {
		return err
	}
	found.Call = named[0]
	explained, err := d.Explain.Explain(r.Context(), r.Project.Project, found.RequestID)
	if err != nil {
		return err
	}
	v := requestView{
		Call: found.Call, RequestBytes: found.Logged.RequestBytes, ResponseBytes: found.Logged.ResponseBytes,
		RequestHeaders: found.Logged.RequestHeaders, ResponseHeaders: found.Logged.ResponseHeaders,
		ExpiresAt: found.ExpiresAt, Next: explained.Next,
	}
	if p := found.Logged.Payload; p != nil {
		v.Bodies = []body{
			bodyOf("request", p.Request, p.RequestTruncated), bodyOf("response", p.Response, p.ResponseTruncated),
		}
	}
	return r.Render("request.html", v)
}

func (d Deps) find(r *web.Request) (why.CallDetail, error) {
	requestID, err := id(r, "request")
	if err != nil {
		return why.CallDetail{}, err
	}
	return d.Calls.Get(r.Context(), r.Project.Project, requestID, r.Now())
}

func bodyOf(name string, text []byte, truncated bool) body {
	b := body{Name: name, Truncated: truncated, Cut: len(text) > shownBody}
	var indented bytes.Buffer
	if !b.Cut && json.Indent(&indented, text, "", "  ") == nil {
		text = indented.Bytes()
	}
	b.Text = strings.ToValidUTF8(string(text[:min(len(text), shownBody)]), "\uFFFD")
	return b
}

// body writes a whole body as a file of text, so that no browser runs it.
func (d Deps) body(r *web.Request) error {
	found, err := d.find(r)
	if err != nil {
		return err
	}
	p := found.Logged.Payload
	if p == nil {
		return fault.New(fault.NotFound, fault.CodeNotFound, "%s", noBody)
	}
	text, ok := map[string][]byte{"request": p.Request, "response": p.Response}[r.PathValue("body")]
	if !ok {
		return fault.New(fault.NotFound, fault.CodeNotFound, noSuch, r.PathValue("body"))
	}
	if err := r.Store(); err != nil {
		return err
	}
	h := r.Writer().Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Disposition", `attachment; filename="`+r.PathValue("body")+"-"+found.RequestID.String()+`.txt"`)
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	_, _ = io.Copy(r.Writer(), bytes.NewReader(text)) // a browser that left reads no more
	return nil
}

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

func (d Deps) node(r *web.Request) error {
	nodeID, err := id(r, "node")
	if err != nil {
		return err
	}
	found, err := d.Trace.Node(r.Context(), r.Project.Project, nodeID)
	if err != nil {
		return err
	}
	return r.Render("node.html", found)
}

// lineageView is the data of a lineage.
type lineageView struct {
	why.Lineage
	Listed  []lineageNode
	Drawing svg.Drawing `json:"-"`
}

// lineageNode is a node with the references that show more of its sides, "" if nothing is hidden there.
type lineageNode struct {
	why.Brief
	Inputs, Outputs svg.Link
}

// maxReveal is how many sides the URL of a lineage reveals one by one. The next one reveals all.
const maxReveal = 16

func (d Deps) lineage(r *web.Request) error {
	root, err := id(r, "node")
	if err != nil {
		return err
	}
	all, texts := r.URL.Query().Get("revealAll") == "true", r.URL.Query()["reveal"]
	if len(texts) == 0 {
		texts = []string{root.String() + ":" + why.Inputs, root.String() + ":" + why.Outputs}
	}
	reveal, err := why.SidesOf(texts)
	if err != nil {
		return err
	}
	found, err := d.Trace.Lineage(r.Context(), r.Project.Project, root, all, reveal, limit.TraceNodes)
	if err != nil {
		return err
	}
	v := lineageView{Lineage: found}
	more := func(node uuid.UUID, side, text string, hidden int) (link svg.Link) {
		if hidden > 0 && !all {
			values := url.Values{"reveal": append(texts[:len(texts):len(texts)], node.String()+":"+side)}
			if len(texts) >= maxReveal {
				values = url.Values{"revealAll": {"true"}}
			}
			link = svg.Link{Text: fmt.Sprintf(text, hidden), Href: "?" + values.Encode()}
		}
		return link
	}
	drawn := svg.Lineage{
		Label:  fmt.Sprintf(lineageOf, found.Root.Headline),
		Folded: func(n int) string { return fmt.Sprintf(moreNodes, n) },
	}
	for i, n := range found.Nodes {
		listed := lineageNode{
			Brief:   n,
			Inputs:  more(n.ID, why.Inputs, moreInputs, found.Sides[i].Inputs),
			Outputs: more(n.ID, why.Outputs, moreOutputs, found.Sides[i].Outputs),
		}
		v.Listed = append(v.Listed, listed)
		class := n.Kind
		if n.ID == found.Root.ID {
			class += " root"
		}
		drawn.Nodes = append(drawn.Nodes, svg.Node{
			ID: n.ID.String(), Title: n.Headline, Subtitle: cmp.Or(n.MemoryKind, n.Kind), Class: class,
			Href: r.ProjectPath("trace", n.ID.String()), Inputs: listed.Inputs, Outputs: listed.Outputs,
		})
	}
	for _, e := range found.Edges {
		drawn.Edges = append(drawn.Edges, svg.Edge{From: e.Input.String(), To: e.Derived.String()})
	}
	v.Drawing = drawn.Draw()
	return r.Render("lineage.html", v)
}

// timelineView is the data of a timeline. Moments are those of the root.
type timelineView struct {
	why.Timeline
	Node    why.Node
	Drawing svg.Timeline `json:"-"`
}

func (d Deps) timeline(r *web.Request) error {
	root, err := id(r, "node")
	if err != nil {
		return err
	}
	var problems fields.Problems
	query := r.URL.Query()
	from, to := problems.Instant("from", query.Get("from")), problems.Instant("to", query.Get("to"))
	if err := problems.Err(); err != nil {
		return err
	}
	found, err := d.Trace.Timeline(r.Context(), r.Project.Project, root, from, to)
	if err != nil {
		return err
	}
	v := timelineView{Timeline: found}
	if v.Node, err = d.Trace.Node(r.Context(), r.Project.Project, root); err != nil {
		return err
	}
	v.Drawing = svg.Timeline{
		Label: fmt.Sprintf(timelineOf, found.Root.Headline),
		Rows:  timelineRows,
		From:  found.From, To: found.To, Zone: r.Zone(),
		Narrow: func(from, to time.Time) string {
			return r.With("from", from.UTC().Format(time.RFC3339Nano), "to", to.UTC().Format(time.RFC3339Nano))
		},
	}
	add := func(b why.Brief, class string, searchable *time.Time, at ...time.Time) {
		if searchable != nil {
			at = append(at, *searchable)
		}
		v.Drawing.Moments = append(v.Drawing.Moments, svg.Moment{
			Title: b.Headline, Class: class, Href: r.ProjectPath("trace", b.ID.String()), At: at,
		})
	}
	if found.Deleted == nil {
		add(found.Root, "root", v.Node.ReadyAt, v.Node.OccurredAt, v.Node.CreatedAt)
	}
	for _, m := range found.Nodes {
		add(m.Brief, m.Section, m.SearchableAt, m.OccurredAt, m.ArrivedAt)
	}
	for _, c := range found.Recalls {
		v.Drawing.Moments = append(v.Drawing.Moments, svg.Moment{
			Title: c.Identity, Class: "recall", Href: r.ProjectPath("requests", c.Request.String()),
			At: []time.Time{{}, {}, {}, c.ReceivedAt},
		})
	}
	return r.Render("timeline.html", v)
}
