package erasure

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

// TruncateIdentity keeps the records of the events of an identity before a removal, tombstones the blobs
// that these events refer to, and then truncates them. It does nothing if they are truncated already.
//
// The directory projection has applied the removal, so that no reader needs the text, and the rows
// of every bulk write that was committed before the removal are complete: a row that takes effect
// before it is decided on those events.
func (s Streams) TruncateIdentity(ctx context.Context, r work.Removal) error {
	name := stream.Name(stream.Identity, r.IdentityID)
	var blobs []string
	before := false
	err := s.Journal.Scan(ctx, name, 0, func(f eventstore.DecodedEvent) (bool, error) {
		if f.Revision >= r.Revision {
			return false, nil
		}
		before, blobs = true, append(blobs, blobsOf(f)...)
		return true, nil
	})
	if err != nil || !before {
		return err
	}
	of, err := s.ownerOf(ctx, r.ProjectID)
	if err != nil {
		return err
	}
	if err := s.KeepRecords(ctx, of, name, 0, r.Revision); err != nil {
		return err
	}
	// Tombstone the blobs first: only the events name them.
	if _, err := s.tombstoneBlobs(ctx, blobs); err != nil {
		return err
	}
	truncate := func() error { return s.Journal.Store.Truncate(ctx, name, r.Revision) }
	return backoff.Retry(ctx, eventstore.ErrUnknown, truncate)
}

// IsTruncated reports whether the stream of an identity has no event before a removal.
func (s Streams) IsTruncated(ctx context.Context, r work.Removal) (bool, error) {
	first, err := s.Journal.Store.Read(ctx, stream.Name(stream.Identity, r.IdentityID), 0, eventstore.Forwards, 1)
	return err == nil && (len(first) == 0 || first[0].Revision >= r.Revision), err
}

// TruncateIdentities truncates the removed identities that are due. Their own process did not, or it
// is not known whether it did.
func (e *Eraser) TruncateIdentities(ctx context.Context, due func(work.Removal) bool) error {
	if e.truncated == nil {
		e.truncated = make(map[uuid.UUID]eventstore.Revision)
	}
	var errs []error
	var denied DeniedError
	err := e.eachRemovals(ctx, func(page []work.Removal) error {
		for _, r := range page {
			if e.isKnownTruncated(r) || !due(r) {
				continue
			}
			err := e.bounded(ctx, func(ctx context.Context) error {
				if err := e.Rows.CompleteRows(ctx, r.ProjectID, r.IdentityID, e.Now()); err != nil {
					return err
				}
				return e.TruncateIdentity(ctx, r)
			})
			if err != nil {
				if err = fmt.Errorf("truncate identity %s: %w", r.IdentityID, err); !denied.add(err) {
					errs = append(errs, err)
				}
				continue
			}
			e.truncated[r.IdentityID] = r.Revision
		}
		return nil
	})
	return denied.join(append(errs, err)...)
}

// eachRemovals calls do with every removal that is not cleared, a page at a time.
func (e *Eraser) eachRemovals(ctx context.Context, do func(page []work.Removal) error) error {
	var last *work.Removal
	for ctx.Err() == nil {
		page, err := e.Identities.OpenRemovals(ctx, last, listSize)
		if err != nil || len(page) == 0 {
			return err
		}
		if err := do(page); err != nil {
			return err
		}
		last = &page[len(page)-1]
	}
	return ctx.Err()
}

func (e *Eraser) isKnownTruncated(r work.Removal) bool {
	at, known := e.truncated[r.IdentityID]
	return known && at == r.Revision
}

// truncatedIdentity is a removal whose stream is truncated, and that is not recorded as cleared.
type truncatedIdentity struct {
	work.Removal
	// waits is true while something else may hold a copy: a bulk write with a pending fan-out, or an
	// unreferenced blob.
	waits bool
}

// truncatedIdentities lists the truncated identities that may still be on the disk. An identity that
// waits for something else is listed once, and again when it does not wait any more.
func (e *Eraser) truncatedIdentities(ctx context.Context) (found []truncatedIdentity, err error) {
	truncated, deferred := make(map[uuid.UUID]eventstore.Revision), make(map[uuid.UUID]eventstore.Revision)
	bulks, all, err := e.firstBulks(ctx)
	if err != nil {
		return nil, err
	}
	err = e.eachRemovals(ctx, func(page []work.Removal) error {
		copied, err := e.copied(ctx, page)
		if err != nil {
			return err
		}
		for _, r := range page {
			if !e.isKnownTruncated(r) {
				// The process of the removal truncates it, unless that process ends first.
				if done, err := e.IsTruncated(ctx, r); err != nil {
					return err
				} else if !done {
					continue
				}
			}
			truncated[r.IdentityID] = r.Revision
			first, open := bulks[r.ProjectID]
			waits := !all || copied[r.IdentityID] || open && first < r.Position
			if waits {
				deferred[r.IdentityID] = r.Revision
				if at, known := e.deferredRemovals[r.IdentityID]; known && at == r.Revision {
					continue
				}
			}
			found = append(found, truncatedIdentity{r, waits})
		}
		return nil
	})
	if err == nil {
		e.truncated, e.deferredRemovals = truncated, deferred
	}
	return found, err
}

func (e *Eraser) copied(ctx context.Context, page []work.Removal) (map[uuid.UUID]bool, error) {
	projects, ids := make([]uuid.UUID, len(page)), make([]uuid.UUID, len(page))
	for n, r := range page {
		projects[n], ids[n] = r.ProjectID, r.IdentityID
	}
	return e.Blobs.Copied(ctx, projects, ids)
}

// firstBulks returns the position of the first bulk write of each project whose fan-out is pending.
// all is false if there are more bulk writes than listSize.
func (e *Eraser) firstBulks(ctx context.Context) (first map[uuid.UUID]eventstore.Position, all bool, err error) {
	open, err := e.Identities.PendingBulks(ctx, listSize)
	first = make(map[uuid.UUID]eventstore.Position)
	for _, b := range open {
		if _, known := first[b.ProjectID]; !known {
			first[b.ProjectID] = b.Position
		}
	}
	return first, len(open) < listSize, err
}

// recordCleared records the identities that do not wait as cleared, and returns how many.
func (e *Eraser) recordCleared(ctx context.Context, identities []truncatedIdentity) (cleared int, err error) {
	var errs []error
	for _, r := range identities {
		if r.waits {
			continue
		}
		err := e.bounded(ctx, func(ctx context.Context) error { return e.RecordCleared(ctx, r.Removal, e.Now()) })
		if err != nil {
			errs = append(errs, fmt.Errorf("record identity %s as cleared: %w", r.IdentityID, err))
			continue
		}
		cleared++
	}
	if cleared > 0 {
		errs = append(errs, e.waitHead(ctx, projection.Directory))
	}
	return cleared, errors.Join(errs...)
}
