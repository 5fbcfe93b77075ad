package commands

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// fanOutBatch writes each item of a committed batch into the stream of its data point, then the outcomes into the stream
// of the send. It may run any number of times, also in several processes at once: all append under the same ids.
func (l *Log) fanOutBatch(ctx context.Context, b *batch) ([]ingestion.Outcome, error) {
	outcomes := make([]ingestion.Outcome, len(b.prepared))
	err := l.each(ctx, len(b.prepared), func(ctx context.Context, i int) error {
		var err error
		outcomes[i], err = l.fanOutItem(ctx, b, i)
		if err != nil {
			return fmt.Errorf("item %d of send %s: %w", i, b.id, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	name := stream.Name(stream.Ingestion, b.id)
	meta := stagedMeta(&b.accepted)
	for at := eventstore.Revision(0); ; {
		_, err = l.Append(ctx, name, at, meta, ingestion.FannedOut{ProjectID: b.accepted.ProjectID, Outcomes: outcomes})
		if err == nil {
			break
		}
		if !errors.Is(err, eventstore.ErrConflict) {
			return nil, err
		}
		facts, err := l.ReadFrom(ctx, name, 0)
		if err != nil {
			return nil, err
		}
		if stored := fannedOut(facts); stored != nil { // another run was first; what it stored is the answer
			outcomes = stored
			break
		}
		at = eventstore.Revision(len(facts) - 1) // another run gave it up, or it was put back after that
	}
	l.dropStage(ctx, b.accepted.Stage.Stream)
	return outcomes, nil
}

// dropStage tombstones a stage that nothing refers to any more. What fails here is left to the sweep.
func (l *Log) dropStage(ctx context.Context, name string) {
	if _, err := l.tombstone(ctx, name); err != nil {
		l.Logger.WarnContext(ctx, "stage is left to the sweep", "stream", name, "err", err)
	}
}

// tombstone ends a stream for good, at whatever revision it is. ended is false for a stream without events, which stays as it
// is, and for one that is tombstoned already.
func (l *Log) tombstone(ctx context.Context, name string) (ended bool, err error) {
	return l.tombstoneAt(ctx, name, false)
}

// tombstoneAt is tombstone. With empty it also tombstones a stream without events, so that nobody can begin it later.
func (l *Log) tombstoneAt(ctx context.Context, name string, empty bool) (ended bool, err error) {
	for {
		last, ok, err := l.Store.ReadLast(ctx, name)
		if errors.Is(err, eventstore.ErrDeleted) || (err == nil && !ok && !empty) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		at := eventstore.NoStream
		if ok {
			at = last.Revision
		}
		_, err = l.Store.Tombstone(ctx, name, at)
		if errors.Is(err, eventstore.ErrDeleted) {
			return false, nil
		}
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, eventstore.ErrConflict) || ctx.Err() != nil {
			return false, err
		}
	}
}

// resumeBatch fans out a batch that another run left, from its stage. Of one that is deleted no item comes alive.
func (l *Log) resumeBatch(ctx context.Context, commit eventstore.Fact, accepted *ingestion.Accepted, id uuid.UUID, deleted *deletion.Accepted) ([]ingestion.Outcome, error) {
	b, err := l.readStage(ctx, commit, accepted, id)
	if err != nil {
		// The run that finished it drops the stage: then its outcomes stand.
		if facts, readErr := l.ReadFrom(ctx, stream.Name(stream.Ingestion, id), 1); readErr == nil && fannedOut(facts) != nil {
			return fannedOut(facts), nil
		}
		return nil, err
	}
	b.deleted = deleted
	return l.fanOutBatch(ctx, b)
}

// fanOutItem writes one item. It is decided again wherever its data point has moved on since the commit.
func (l *Log) fanOutItem(ctx context.Context, b *batch, i int) (ingestion.Outcome, error) {
	p := &b.prepared[i]
	decided, effect, final := eventstore.Revision(b.accepted.Items[i].Decided), b.commit, b.accepted.Items[i].Final()
	if final && b.effects != nil && b.effects[i] > 0 {
		effect = b.effects[i]
	} else if final {
		var err error
		effect, err = l.effectUpTo(ctx, p.stream, decided)
		if errors.Is(err, eventstore.ErrDeleted) {
			return ingestion.Outcome{Outcome: ingestion.Deleted}, nil
		}
		if err != nil {
			return ingestion.Outcome{}, err
		}
	}
	p.ingest.Commit = uint64(effect)
	texts := uuid.NewSHA1(b.accepted.FanOut, fmt.Appendf(nil, "texts:%d", i))
	meta := stagedMeta(&b.accepted)
	meta.CommandID = uuid.NewSHA1(b.accepted.FanOut, fmt.Appendf(nil, "item:%d", i))
	base, at := b.bases[i], decided
	reread := b.unread
	for {
		var err error
		if reread {
			var outcome ingestion.Outcome
			var done bool
			base, at, outcome, done, err = l.rebase(ctx, p.stream, decided, effect, final, meta.CommandID)
			if errors.Is(err, eventstore.ErrDeleted) {
				return ingestion.Outcome{Outcome: ingestion.Deleted}, nil
			}
			if done || err != nil {
				return outcome, err
			}
		}
		var e event.Event
		outcome := ingestion.Outcome{Outcome: ingestion.Deleted}
		if b.deleted != nil && base.Later == nil && brings(base, p.ingest) {
			// It would be the newest revision, which the deletion takes: so the deletion is stored in its place. Its ids are those of
			// the deletion: the store takes an event for a repetition of another with the same id.
			e = deletedBy(endOf(b.id), b.deleted, b.id, false)
			_, err = l.Append(ctx, p.stream, at, removalMeta(b.deleted, p.dataPoint), e)
		} else {
			if e, err = l.decideItem(ctx, base, p, texts, meta); err != nil {
				return ingestion.Outcome{}, err
			}
			outcome = outcomeOfDecision(e)
			_, err = l.Append(ctx, p.stream, at, meta, e)
		}
		switch {
		case err == nil:
			return outcome, nil
		case errors.Is(err, eventstore.ErrDeleted):
			return ingestion.Outcome{Outcome: ingestion.Deleted}, nil
		case !errors.Is(err, eventstore.ErrConflict):
			return ingestion.Outcome{}, err
		}
		reread = true
	}
}

// effectUpTo is the place in the order of effects of the newest effect that a data point had at a stream revision.
func (l *Log) effectUpTo(ctx context.Context, name string, at eventstore.Revision) (eventstore.Position, error) {
	for ; ; at-- {
		f, ok, err := l.At(ctx, name, at)
		if err != nil {
			return 0, err
		}
		send, standing, live := datapoint.SendOf(f.Event)
		switch {
		case !ok || !live:
			return 0, fmt.Errorf("revision %d of %s is no send", at, name)
		case standing.Historic(): // what it is history before is stored before it
		case send.Commit != 0:
			return eventstore.Position(send.Commit), nil
		default:
			return f.Position, nil
		}
	}
}

// rebase finds what an item stands on once its data point has moved on: the newest effect below the commit is its base,
// and where effects above it are stored already the item becomes history before them. done is true where
// the item stands already, or its data point was deleted.
//
// A final item (ingestion.Item.Final) takes effect right after what it was decided on, which took effect at commit then: there it
// changes nothing but an audience, whatever others changed since.
func (l *Log) rebase(ctx context.Context, name string, decided eventstore.Revision, commit eventstore.Position, final bool, command uuid.UUID) (
	base datapoint.Base, at eventstore.Revision, outcome ingestion.Outcome, done bool, err error,
) {
	facts, err := l.ReadFrom(ctx, name, max(decided, 0))
	if err != nil {
		return base, 0, outcome, false, err
	}
	at = eventstore.NoStream
	var below eventstore.Position
	for _, f := range facts {
		at = f.Revision
		if f.Details.CommandID == command {
			outcome, _ := datapoint.OutcomeOf(f.Event)
			return base, at, outcome, true, nil
		}
		send, standing, live := datapoint.SendOf(f.Event)
		if !live {
			return base, at, ingestion.Outcome{Outcome: ingestion.Deleted}, true, nil
		}
		effect := f.Position
		if send.Commit != 0 {
			effect = eventstore.Position(send.Commit)
		}
		head := standing.Head()
		base.LastNumber = head.LastNumber
		switch {
		case f.Revision == decided:
			// What the item was decided on stands before the commit, whatever of it is history itself.
			base.State = &head
			if below = effect; standing.Historic() {
				below = commit - 1 // its head took effect after it did
			}
			if final {
				below = commit
			}
		case effect > commit:
			base.Later = &head
		case effect >= below:
			state := standing.Effect
			base.State, below = &state, effect
		}
		if base.Later != nil {
			base.Later = &head
		}
	}
	base.Next = int64(at) + 1
	return base, at, outcome, false, nil
}
