package erasure

import (
	"cmp"
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// isErased reports whether the service tombstoned the streams of a data point. It ends the memories first, so the
// stream of a data point whose memories live on was tombstoned by somebody else.
func (s Streams) isErased(ctx context.Context, dataPoint uuid.UUID) (bool, error) {
	for _, of := range []string{stream.DataPoint, stream.Memory} {
		_, _, err := s.Journal.Store.ReadLast(ctx, stream.Name(of, dataPoint))
		if !errors.Is(err, eventstore.ErrDeleted) {
			return false, err
		}
	}
	return true, nil
}

// endedFacts is nextFacts of a data point whose stream is tombstoned. It is nil if another deletion retained the facts
// and erased them. Otherwise somebody else tombstoned the stream: the facts are those that the tables know, and its
// events have no records.
func (e *Eraser) endedFacts(ctx context.Context, record *deletionRecord, r *retaining) (*deletion.FactsKept, error) {
	if r.ended == nil {
		erased, err := e.isErased(ctx, r.dataPoint)
		if err != nil {
			return nil, err
		}
		if erased && !r.began {
			r.Complete = true
			return nil, nil //nolint:nilnil // there is nothing to retain
		}
		blobs, err := e.Blobs.BlobsOf(ctx, []uuid.UUID{r.dataPoint})
		if err != nil {
			return nil, err
		}
		r.ended = &ended{blobs: blobs}
	}
	known, err := e.Deletions.FactsOf(ctx, r.dataPoint, r.ended.revision, partFacts)
	if err != nil {
		return nil, err
	}
	if r.ended.project = cmp.Or(r.ended.project, record.ProjectID, known.ProjectID); r.ended.project == uuid.Nil {
		r.Complete = true
		return nil, nil //nolint:nilnil // nobody knows anything of it
	}
	part := &deletion.FactsKept{
		ProjectID: r.ended.project, DataPoint: r.dataPoint, DeletedAt: known.DeletedAt,
		Facts: known.Items, From: r.Next, To: r.Next, Newest: max(r.newest, known.Newest),
	}
	r.newest = part.Newest
	if record.Commit != nil {
		part.DeletedAt, part.RequestID = record.Commit.AcceptedAt, record.Commit.RequestID
		part.Principal = record.Commit.Principal
	}
	if part.OrganizationID, err = e.Projects.OrganizationOf(ctx, part.ProjectID); err != nil {
		return nil, err
	}
	for _, fact := range part.Facts {
		r.ended.revision = fact.Revision
	}
	n := min(len(r.ended.blobs), partBlobs)
	part.Blobs, r.ended.blobs = r.ended.blobs[:n:n], r.ended.blobs[n:]
	if len(part.Facts) == partFacts || len(r.ended.blobs) > 0 {
		return part, nil
	}
	r.organization = part.OrganizationID
	err = e.addMemories(ctx, r, part)
	part.MemoriesTo, part.Complete = r.NextMemory, r.Complete
	return part, err
}

// ended is how much is retained of a data point whose stream somebody else tombstoned.
type ended struct {
	project  uuid.UUID
	revision int      // the last one whose facts are
	blobs    []string // those that are still to be named
}
