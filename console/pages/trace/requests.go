package trace

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
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
