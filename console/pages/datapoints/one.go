package datapoints

import (
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/projections/trace"
)

// onePage is a data point as its page shows it.
type onePage struct {
	trace.Point

	// MoreMemories and MoreEvents are cursors, "" for none.
	MoreMemories string `json:"moreMemories,omitempty"`
	MoreEvents   string `json:"moreEvents,omitempty"`
	Path         string `json:"-"`
	// MayWrite is true if the person may correct and delete it.
	MayWrite bool `json:"-"`
}

func (p *pages) one(r *web.Request) error {
	q := trace.PointQuery{SourceID: idOf(r), Bytes: shown}
	query := r.URL.Query()
	if text := query.Get("events"); text != "" {
		before, err := strconv.ParseInt(text, 10, 64)
		if err != nil || before < 1 {
			return wrongCursor()
		}
		q.Before = before
	}
	if text := query.Get("memories"); text != "" {
		at, id, _ := strings.Cut(text, "_")
		micros, err := strconv.ParseInt(at, 10, 64)
		parsed, wrong := uuid.Parse(id)
		if err != nil || wrong != nil || micros < 0 || micros > 253_402_300_799_999_999 {
			return wrongCursor()
		}
		q.After = &trace.Cursor{At: time.UnixMicro(micros).UTC(), ID: parsed}
	}
	found, err := p.point(r, q)
	if err != nil {
		return err
	}
	return r.Render("one.html", onePageOf(r, found))
}

func wrongCursor() error {
	return fault.New(fault.Invalid, fault.CodeInvalidRequest, "the place in the list is wrong: open the page again")
}

// point reads the data point of the path. An id that no data point can have is not found.
func (p *pages) point(r *web.Request, q trace.PointQuery) (trace.Point, error) {
	if !isText(q.SourceID) {
		return trace.Point{}, fault.New(fault.NotFound, fault.CodeDataPointNotFound, "no data point can have this id")
	}
	return p.Trace.Point(r.Context(), r.Project.Project, q)
}

// isText reports whether a text can be stored.
func isText(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

func onePageOf(r *web.Request, p trace.Point) onePage {
	page := onePage{Point: p, Path: pointPath(r, p.SourceID), MayWrite: r.May(web.Write) && !r.Project.Archived}
	if p.Derived.More {
		page.MoreMemories = strconv.FormatInt(p.Derived.End.At.UnixMicro(), 10) + "_" + p.Derived.End.ID.String()
	}
	if n := len(p.Events); n > 0 && p.Older {
		page.MoreEvents = strconv.FormatInt(p.Events[n-1].Number, 10)
	}
	return page
}

// text writes the whole text of the newest revision, or with ?of=metadata its metadata.
func (p *pages) text(r *web.Request) error {
	found, err := p.point(r, trace.PointQuery{SourceID: idOf(r)})
	if err != nil {
		return err
	}
	if found.Deleted != nil {
		return gone()
	}
	text := found.Text
	if r.URL.Query().Get("of") == "metadata" {
		text = found.JSON
	}
	r.Writer().Header().Set("X-Content-Type-Options", "nosniff")
	return r.Stream("text/plain; charset=utf-8", "", func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}

func gone() error {
	return fault.New(fault.Conflict, fault.CodeDataPointDeleted, "this data point was deleted")
}
