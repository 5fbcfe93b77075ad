// Package shown answers what a read record names: the texts as the log has them, who asked as which identity, and
// whether that identity could read them then.
package shown

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	domainreads "github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/readlog"
	"github.com/annals-project/annals/projections/reads"
	"github.com/annals-project/annals/projections/why"
)

// Reader reads what read records name.
type Reader struct {
	Reads interface {
		// Find returns where the log has a part of the record of a request. ok is false if there is none.
		Find(ctx context.Context, request uuid.UUID, part int) (at reads.Place, ok bool, err error)
	}
	Log interface {
		// At returns an event of a stream. ok is false if there is none.
		At(ctx context.Context, stream string, revision eventstore.Revision) (
			e eventstore.DecodedEvent, ok bool, err error)
	}
	Texts interface {
		// ShownText reads at most so many bytes of a text that a read record of a project names.
		ShownText(ctx context.Context, organization uuid.UUID, project auth.Project, of domainreads.Shown, most int) (
			why.ShownText, error)
	}
	Access interface {
		// ExplainAt explains whether an identity could read a data point at a time.
		ExplainAt(ctx context.Context, project auth.Project, identity, sourceID string, at time.Time) (
			why.Reading, error)
	}
	Projects interface {
		// ProjectNamed finds a project by its slug.
		ProjectNamed(ctx context.Context, organization uuid.UUID, slug string) (auth.Named, bool, error)
	}
}

// Query names a part of the record of a request. From is the first of its texts, Count how many of them, and Bytes the
// most of each.
type Query struct {
	Request            uuid.UUID
	Part               int
	From, Count, Bytes int
}

// Text is a text that was shown.
type Text struct {
	domainreads.Shown
	why.ShownText

	// Reading is whether the identity could read it then, nil if none asked or the text is erased.
	Reading *why.Reading `json:"reading,omitempty"`
}

// Shown is what a request was shown.
type Shown struct {
	reads.Read

	Project        string    `json:"project"`
	OrganizationID uuid.UUID `json:"organizationId"`
	// Question is the keyed hash of the question, "" without one.
	Question string `json:"question,omitempty"`
	// Stream and Revision are where the record is. Rooted reports that it is in the tree of its batch.
	Stream   string `json:"stream"`
	Revision int64  `json:"revision"`
	Rooted   bool   `json:"rooted"`
	// Shown are the texts from From on.
	From  int    `json:"from"`
	Shown []Text `json:"shown"`
}

// Next is the text with which the list goes on, 0 if it does not.
func (s Shown) Next() int {
	if next := s.From + len(s.Shown); next < s.Texts {
		return next
	}
	return 0
}

// Read reads what a request of any project was shown. The fault is not-found if there is no record of it.
func (r Reader) Read(ctx context.Context, q Query) (Shown, error) {
	at, ok, err := r.Reads.Find(ctx, q.Request, q.Part)
	if err != nil || !ok {
		return Shown{}, none(err)
	}
	named, ok, err := r.Projects.ProjectNamed(ctx, at.Organization, at.Slug)
	if err != nil || !ok {
		return Shown{}, none(err)
	}
	return r.read(ctx, at, named.Project, q)
}

// ReadOf is Read for one project: a record of another is not found.
func (r Reader) ReadOf(ctx context.Context, project auth.Project, q Query) (Shown, error) {
	at, ok, err := r.Reads.Find(ctx, q.Request, q.Part)
	if err != nil || !ok || at.Project != project.ID {
		return Shown{}, none(err)
	}
	return r.read(ctx, at, project, q)
}

func none(err error) error {
	if err != nil && !errors.Is(err, eventstore.ErrDeleted) {
		return err
	}
	return fault.New(fault.NotFound, fault.CodeNotFound, "there is no record of this request, or no longer")
}

func (r Reader) read(ctx context.Context, at reads.Place, project auth.Project, q Query) (s Shown, err error) {
	record, rooted, err := r.record(ctx, at)
	if err != nil {
		return s, err
	}
	s = Shown{
		Read: at.Read, Project: at.Slug, OrganizationID: at.Organization, Question: record.Question, Stream: at.Stream,
		Revision: int64(at.Revision), Rooted: rooted, From: q.From, Shown: []Text{},
	}
	texts := record.Shown[min(q.From, len(record.Shown)):]
	readings, seen := map[string]*why.Reading{}, []domainreads.Shown{}
	for _, of := range texts[:min(q.Count, len(texts))] {
		text := Text{Shown: of}
		if text.ShownText, err = r.Texts.ShownText(ctx, at.Organization, project, of, q.Bytes); err != nil {
			return s, err
		}
		if text.Text != "" {
			seen = append(seen, domainreads.Shown{Node: of.Node, DataPoint: of.DataPoint, Spans: of.Spans})
		}
		if id := text.SourceID; id != "" && at.Read.Identity != "" {
			if readings[id] == nil {
				reading, err := r.Access.ExplainAt(ctx, project, at.Read.Identity, id, record.At)
				if err != nil {
					return s, err
				}
				readings[id] = &reading
			}
			text.Reading = readings[id]
		}
		s.Shown = append(s.Shown, text)
	}
	return s, readlog.From(ctx).Show(ctx, domainreads.Past, seen...)
}

// record reads a record from the log. rooted reports that the event before it has the root of its batch.
func (r Reader) record(ctx context.Context, at reads.Place) (record domainreads.Record, rooted bool, err error) {
	e, ok, err := r.Log.At(ctx, at.Stream, at.Revision)
	if err != nil || !ok {
		return record, false, none(err)
	}
	batch, is := e.Event.(*domainreads.Recorded)
	if !is {
		return record, false, fmt.Errorf("event %d of %s has no read records", at.Revision, at.Stream)
	}
	n := slices.IndexFunc(batch.Records, func(d domainreads.Record) bool {
		return d.ID == at.Read.ID && d.Part == at.Read.Part
	})
	if n < 0 {
		return record, false, fmt.Errorf("event %d of %s has no record of %s", at.Revision, at.Stream, at.Read.ID)
	}
	before, ok, err := r.Log.At(ctx, at.Stream, at.Revision-1)
	if err != nil {
		return record, false, err
	}
	want, _, err := domainreads.Batch(batch.OrganizationID, batch.ProjectID, batch.Records)
	root, is := before.Event.(*domainreads.Rooted)
	return batch.Records[n], ok && is && slices.Equal(root.Root, want.Root) && root.Size == want.Size, err
}
