package why

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/trace"
)

const (
	// pointEvents is how many events of a data point are read at once, pointRecalls how many recalls.
	pointEvents  = 25
	pointRecalls = 25
)

// PointQuery asks for a data point by its source id.
type PointQuery struct {
	SourceID string
	// Bytes is how much of each text is read, 0 for all of it.
	Bytes int
	// Before is the event before which the events begin, 0 for the newest.
	Before int64
	// After is where the memories continue.
	After *Cursor
}

// Point is a data point with what happened to it.
type Point struct {
	datapoints.Stored
	// Text and JSON are the content and the metadata, or their beginnings if MoreText or MoreJSON is true.
	Text     string `json:"text"`
	MoreText bool   `json:"textCut"`
	JSON     string `json:"metadata"`
	MoreJSON bool   `json:"metadataCut"`
	// Events are the newest first, of which some are Older.
	Events []PointEvent `json:"events"`
	Older  bool         `json:"olderEvents"`
	// Derived are the memories of the newest revision that has any.
	Derived RootPage `json:"derived"`
	// Recalls are the newest that returned it or a memory of it, of as many days as a window of the trace has.
	Recalls []Recall `json:"recalls"`
	// Deleted is set if it was deleted. Only SourceID is set then.
	Deleted *Deleted `json:"deleted,omitempty"`
}

// MoreEvents is where the events continue, "" if they do not.
func (p Point) MoreEvents() string {
	if n := len(p.Events); n > 0 && p.Older {
		return strconv.FormatInt(p.Events[n-1].Number, 10)
	}
	return ""
}

// MoreMemories is where the memories continue, "" if they do not.
func (p Point) MoreMemories() string {
	if !p.Derived.More {
		return ""
	}
	return p.Derived.End.String()
}

// Continue begins the events and the memories where MoreEvents and MoreMemories of a page said, "" for the first ones.
func (q *PointQuery) Continue(events, memories string) bool {
	var wrong, broken error
	if events != "" {
		q.Before, wrong = strconv.ParseInt(events, 10, 64)
	}
	if memories != "" {
		var at requestlog.Cursor
		at, broken = requestlog.ParseCursor(memories)
		q.After = &Cursor{At: at.At, ID: at.ID}
	}
	return wrong == nil && broken == nil && (events == "" || q.Before >= 1)
}

// PointEvent is an event of a data point: a send, and what it made of it.
type PointEvent struct {
	// Number is that of the event in its stream, from 0.
	Number int64 `json:"number"`
	// Outcome is created, updated, moved or unchanged. Historic is true if a later effect was stored before.
	Outcome  string    `json:"outcome"`
	Historic bool      `json:"historic"`
	At       time.Time `json:"at"`
	// Principal is who called, as in the metadata of the event.
	Principal string    `json:"principal"`
	Request   uuid.UUID `json:"requestId"`
	Ingestion uuid.UUID `json:"ingestionId"`
	// Phase is that of the send now.
	Phase string `json:"phase"`
	// Revision is that of the data point after the event, Node its id in the trace.
	Revision int       `json:"revision"`
	Node     uuid.UUID `json:"node"`
	// AudienceID is the audience after the event, and Audience its slug, "" if it was removed or is private. PrivateTo is
	// the identity that alone may read what is private.
	AudienceID uuid.UUID `json:"audienceId"`
	Audience   string    `json:"audience"`
	PrivateTo  string    `json:"privateTo,omitempty"`
	Author     string    `json:"author"`
	OccurredAt time.Time `json:"occurredAt"`
	// Headline describes a revision.
	Headline string `json:"headline"`
}

// Point reads a data point of a project. Its fault is data-point-not-found.
func (s *Trace) Point(ctx context.Context, project auth.Project, q PointQuery) (p Point, err error) {
	id := stream.DataPointID(project.Namespace, q.SourceID)
	known, err := s.again(ctx, func() (bool, error) { return s.stored(ctx, project, id, &p) })
	if err == nil && !known {
		err = fault.New(fault.NotFound, fault.CodeDataPointNotFound, "the project has no data point with this id").
			With("ids", []string{q.SourceID})
	}
	if p.SourceID = q.SourceID; err != nil || p.Deleted != nil {
		return p, err
	}
	if err := s.pointTexts(ctx, &p, q.Bytes); err != nil {
		return p, err
	}
	if err := s.pointEvents(ctx, project, &p, q.Before); err != nil {
		return p, err
	}
	of := filter{send: &revisionList{dataPoints: []uuid.UUID{id}, numbers: []int32{int32(p.Captured)}}}
	p.Derived, err = s.memoryRoots(ctx, project, RootsQuery{First: limit.TraceRoots, AfterMemories: q.After}, of)
	if err != nil {
		return p, fmt.Errorf("list the memories of a data point: %w", err)
	}
	if s.Recalls != nil {
		now := s.Now()
		p.Recalls, err = s.Recalls.Of(ctx, project.ID, id, now.Add(-maxWindow), now, pointRecalls)
	}
	if err == nil {
		err = p.show(ctx, id)
	}
	return p, err
}

// show adds the texts of a data point to the read of the request.
func (p *Point) show(ctx context.Context, id uuid.UUID) error {
	if err := showOne(ctx, reads.Point, datapoint.NodeID(id, p.Revision)); err != nil {
		return err
	}
	for _, e := range p.Events {
		if err := showOne(ctx, reads.Point, e.Node); err != nil {
			return err
		}
	}
	return show(ctx, reads.Point, p.Derived.Nodes, idOfRoot)
}

// stored reads the row of a data point, or when it was deleted. It returns false if the projections know neither.
func (s *Trace) stored(ctx context.Context, project auth.Project, id uuid.UUID, p *Point) (ok bool, err error) {
	if p.Stored, ok, err = (datapoints.Queries{DB: s.DB}).Stored(ctx, project.ID, id); ok || err != nil {
		return ok, err
	}
	var d Deleted
	err = s.DB.QueryRow(ctx, `select deleted_at, request_id from trace.deleted where data_point = $1 and project_id = $2`,
		id, project.ID).Scan(&d.At, &d.Request)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for a deleted data point: %w", err)
	}
	d.At = d.At.UTC()
	p.Deleted = &d
	return true, nil
}

// pointTexts reads the texts of a data point. One whose blob is lost is empty.
func (s *Trace) pointTexts(ctx context.Context, p *Point, most int) (err error) {
	inline := ""
	if p.Metadata != nil {
		inline = *p.Metadata
	}
	if p.Text, p.MoreText, err = s.beginning(ctx, string(p.Content), p.ContentBlob, most); err == nil {
		p.JSON, p.MoreJSON, err = s.beginning(ctx, inline, p.MetadataBlob, most)
	}
	return err
}

// beginning returns the first bytes of a text in whole characters, and whether there are more.
func (s *Trace) beginning(ctx context.Context, text string, ref *blob.Ref, most int) (string, bool, error) {
	more := false
	if ref != nil {
		var data []byte
		var err error
		if most > 0 {
			data, err = s.Journal.ReadBlobStart(ctx, *ref)
			more = int64(len(data)) < ref.Size
		} else if err = allowance.Reserve(ctx, ref.Size); err == nil {
			data, err = s.Journal.ReadBlob(ctx, *ref)
		}
		if err != nil && !trace.IsLost(err) {
			return "", false, fmt.Errorf("read the text of a data point: %w", err)
		}
		text = string(data)
	}
	if most > 0 && len(text) > most {
		text, more = text[:most], true
	}
	if more {
		text = wholeCharacters([]byte(text))
	}
	return text, more, nil
}

// pointEvents reads events of a data point, with the phases of their sends and the slugs of their audiences.
func (s *Trace) pointEvents(ctx context.Context, project auth.Project, p *Point, before int64) error {
	from := eventstore.EndOfStream
	if before > 0 {
		from = eventstore.Revision(before - 1)
	}
	recorded, err := s.Journal.Read(ctx, stream.Name(stream.DataPoint, p.ID), from, eventstore.Backwards, pointEvents)
	if err != nil && !errors.Is(err, eventstore.ErrDeleted) { // deleted since: the next call reports it
		return err
	}
	var sends, audiences []uuid.UUID
	for _, e := range recorded {
		send, states, ok := datapoint.SendOf(e.Event)
		if !ok {
			continue
		}
		outcome, _ := datapoint.OutcomeOf(e.Event)
		event := PointEvent{
			Number: int64(e.Revision), Outcome: outcome.Outcome, Historic: states.Historic(), At: send.AcceptedAt.UTC(),
			Principal: e.Details.Principal, Request: send.RequestID, Ingestion: send.IngestionID,
			Revision: states.Effect.Revision, Node: datapoint.NodeID(p.ID, states.Effect.Revision),
			AudienceID: states.Effect.Audience, OccurredAt: states.Effect.OccurredAt.UTC(),
		}
		if revised, is := e.Event.(*datapoint.RevisionAccepted); is {
			r := Revision{Accepted: revised, Content: revised.Content.Inline}
			event.Author, event.Headline = revised.Author, r.Headline()
		}
		p.Events = append(p.Events, event)
		sends, audiences = append(sends, event.Ingestion), append(audiences, event.AudienceID)
	}
	if n := len(recorded); n > 0 {
		p.Older = recorded[n-1].Revision > 0
	}
	phases, err := datapoints.Queries{DB: s.DB}.Phases(ctx, project, sends)
	if err != nil {
		return err
	}
	readers, err := s.readers(ctx, project, audiences)
	if err != nil {
		return err
	}
	for n := range p.Events {
		e := &p.Events[n]
		e.Phase = phases[e.Ingestion].Phase
		e.Audience, e.PrivateTo = readers[e.AudienceID].slug, readers[e.AudienceID].identity
	}
	return nil
}

// reader names who reads what is in an audience: its slug, or the identity that it is private to.
type reader struct{ slug, identity string }

// readers reads who reads what is in some audiences.
func (s *Trace) readers(ctx context.Context, project auth.Project, ids []uuid.UUID) (map[uuid.UUID]reader, error) {
	readers := map[uuid.UUID]reader{uuid.Nil: {slug: audience.Default}}
	if !slices.ContainsFunc(ids, func(id uuid.UUID) bool { return id != uuid.Nil }) {
		return readers, nil
	}
	rows, err := s.DB.Query(ctx, `select id, slug, '' from directory.audiences where project_id = $1 and id = any($2::uuid[])
		union all select private, '', identity from directory.identities
			where project_id = $1 and private = any($2::uuid[]) and identity is not null`, project.ID, ids)
	if err != nil {
		return nil, fmt.Errorf("read who reads audiences: %w", err)
	}
	var id uuid.UUID
	var one reader
	_, err = pgx.ForEachRow(rows, []any{&id, &one.slug, &one.identity}, func() error { readers[id] = one; return nil })
	if err != nil {
		return nil, fmt.Errorf("read who reads audiences: %w", err)
	}
	return readers, nil
}
