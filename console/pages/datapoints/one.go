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
	ID          string         `json:"id"`
	Label       *string        `json:"label"`
	Author      string         `json:"author"`
	Audience    string         `json:"audience"`
	OccurredAt  time.Time      `json:"occurredAt"`
	AcceptedAt  time.Time      `json:"acceptedAt"`
	Revision    int            `json:"revision"`
	Captured    int            `json:"captured"`
	Ingestion   uuid.UUID      `json:"ingestionId"`
	Text        string         `json:"text"`
	TextCut     bool           `json:"textCut"`
	Metadata    string         `json:"metadata"`
	MetadataCut bool           `json:"metadataCut"`
	Memories    []memory       `json:"memories"`
	Events      []pointEvent   `json:"events"`
	Recalls     []trace.Recall `json:"recalls"`
	// MoreMemories and MoreEvents are cursors, "" for none.
	MoreMemories string `json:"moreMemories,omitempty"`
	MoreEvents   string `json:"moreEvents,omitempty"`
	// Deleted is set if the data point was deleted: nothing else is shown then.
	Deleted *trace.Deleted `json:"deleted,omitempty"`
	Path    string         `json:"-"`
	// MayWrite is true if the person may correct and delete it.
	MayWrite bool `json:"-"`
}

type memory struct {
	ID         uuid.UUID `json:"id"`
	Kind       string    `json:"kind"`
	Headline   string    `json:"headline"`
	OccurredAt time.Time `json:"occurredAt"`
	Current    bool      `json:"current"`
}

type pointEvent struct {
	At        time.Time `json:"at"`
	Outcome   string    `json:"outcome"`
	Historic  bool      `json:"historic"`
	Principal string    `json:"principal"`
	Request   uuid.UUID `json:"requestId"`
	Ingestion uuid.UUID `json:"ingestionId"`
	Phase     string    `json:"phase"`
	Revision  int       `json:"revision"`
	Node      uuid.UUID `json:"node"`
	Audience  string    `json:"audience"`
	Author    string    `json:"author"`
	Headline  string    `json:"headline"`
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
	page := onePage{
		ID: p.SourceID, Label: p.Label, Author: p.Author, Audience: audienceName(p.Audience), OccurredAt: p.OccurredAt,
		AcceptedAt: p.AcceptedAt, Revision: p.Revision, Captured: p.Captured, Ingestion: p.Ingestion,
		Text: p.Text, TextCut: p.MoreText, Metadata: p.JSON, MetadataCut: p.MoreJSON,
		Memories: []memory{}, Events: []pointEvent{}, Recalls: p.Recalls, Deleted: p.Deleted, Path: pointPath(r, p.SourceID),
		MayWrite: r.May(web.Write) && !r.Project.Archived,
	}
	for _, m := range p.Memories.Nodes {
		page.Memories = append(page.Memories, memory{m.ID, m.MemoryKind, m.Headline, m.OccurredAt, m.Current})
	}
	if p.Memories.More {
		page.MoreMemories = strconv.FormatInt(p.Memories.End.At.UnixMicro(), 10) + "_" + p.Memories.End.ID.String()
	}
	for _, e := range p.Events {
		page.Events = append(page.Events, pointEvent{
			e.At, e.Outcome, e.Historic, e.Principal, e.Request, e.Ingestion, e.Phase, e.Revision, e.Node,
			audienceName(e.Audience), e.Author, e.Headline,
		})
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
