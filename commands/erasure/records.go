package erasure

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
)

// partRecords is how many records one event of a stream of records keeps.
const partRecords = 1000

// Owner is what the events of a stream belong to.
type Owner struct {
	Organization uuid.UUID
	// Project is zero for a stream that belongs to no project.
	Project uuid.UUID
}

// ownerOf returns a project as an owner.
func (s Streams) ownerOf(ctx context.Context, project uuid.UUID) (Owner, error) {
	organization, err := s.Projects.OrganizationOf(ctx, project)
	return Owner{organization, project}, err
}

// organizationOf returns the organization of the leaf of an event, in a stream of an owner. It is that of the stream,
// but perhaps not where an event is passed over.
func (s Streams) organizationOf(ctx context.Context, f eventstore.DecodedEvent, of Owner) (uuid.UUID, error) {
	organization, project := f.LeafOwner()
	switch project {
	case uuid.Nil:
		return organization, nil
	case of.Project:
		return of.Organization, nil
	}
	organization, err := s.Projects.OrganizationOf(ctx, project)
	if errors.Is(err, engine.ErrNoProject) {
		return uuid.Nil, nil // as a tree has it
	}
	return organization, err
}

// KeepRecords keeps the records of the events of a stream from a revision on and before another. They
// are about to leave the log, which is safe once it has returned. The records are in a stream that is
// never erased (stream.RecordsName), a bounded part in each event.
//
// It may be repeated after any error, and run in several processes at once: it goes on after the
// stored parts. It fails if an event has left the log without a record.
func (s Streams) KeepRecords(ctx context.Context, of Owner, name string, from, before eventstore.Revision) error {
	if from >= before {
		return nil
	}
	records := stream.RecordsName(name)
	return backoff.Retry(ctx, eventstore.ErrConflict, func() error {
		last, _, err := s.Journal.Last(ctx, records)
		if err != nil {
			return err
		}
		at := last.Revision
		if kept, is := last.Event.(*audit.RecordsKept); is {
			from = max(from, eventstore.Revision(kept.To()))
		}
		for from < before {
			part, err := s.nextRecords(ctx, of, name, from, before)
			if err != nil {
				return err
			}
			done, err := s.Journal.Append(ctx, records, at, event.NewMeta(finisherName, s.Now()).Of(stream.Owner(name)), part)
			if err != nil {
				return err
			}
			at, from = done.Revision, eventstore.Revision(part.To())
		}
		return nil
	})
}

// nextRecords reads the next part of the records of a stream, of one organization.
func (s Streams) nextRecords(
	ctx context.Context, of Owner, name string, from, before eventstore.Revision,
) (*audit.RecordsKept, error) {
	part := &audit.RecordsKept{
		OrganizationID: of.Organization, ProjectID: of.Project, Stream: name, From: int64(from),
	}
	err := s.Journal.Scan(ctx, name, from, func(f eventstore.DecodedEvent) (bool, error) {
		if f.Revision >= before || f.Revision != eventstore.Revision(part.To()) {
			return false, nil
		}
		organization, err := s.organizationOf(ctx, f, of)
		if err != nil {
			return false, err
		}
		if len(part.Records) == 0 {
			part.OrganizationID = organization
		} else if organization != part.OrganizationID {
			return false, nil
		}
		kept, err := f.Kept(organization)
		part.Records = append(part.Records, kept)
		return len(part.Records) < partRecords, err
	})
	if err == nil && len(part.Records) == 0 {
		err = fmt.Errorf("keep records: event %d of %s is gone without a record", from, name)
	}
	return part, err
}

// end tombstones a stream, also one without events, once the records of its events from a revision on
// are kept: the others are kept already. done is false if it was tombstoned.
func (s Streams) end(ctx context.Context, of Owner, name string, from eventstore.Revision) (done bool, err error) {
	err = backoff.Retry(ctx, eventstore.ErrConflict, func() error {
		last, ok, err := s.Journal.Store.ReadLast(ctx, name)
		if err != nil {
			return err
		}
		at := eventstore.NoStream
		if ok {
			at = last.Revision
		}
		if err := s.KeepRecords(ctx, of, name, from, at+1); err != nil {
			return err
		}
		// An event that was appended since is a conflict: its record is kept first.
		_, err = s.Journal.Store.Tombstone(ctx, name, at)
		return err
	})
	if errors.Is(err, eventstore.ErrDeleted) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("tombstone %s: %w", name, err)
	}
	return true, nil
}
