package ingest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// fanOutBatch appends each item of a committed batch to the stream of its data point, and then the
// outcomes to the stream of the send. It may run any number of times, in several processes at once:
// all append under the same ids.
func fanOutBatch(ctx context.Context, l *engine.Journal, b *batch) ([]ingestion.Outcome, error) {
	outcomes, err := fanOutItems(ctx, l, b)
	if err != nil {
		return nil, err
	}
	if outcomes, err = completeFanOut(ctx, l, b, outcomes); err != nil {
		return nil, err
	}
	l.TombstoneStage(ctx, b.accepted.Stage.Stream)
	return outcomes, nil
}

// fanOutItems appends the items in parts, each once the pace allows it.
func fanOutItems(ctx context.Context, l *engine.Journal, b *batch) ([]ingestion.Outcome, error) {
	outcomes := make([]ingestion.Outcome, len(b.prepared))
	left := engine.PaceWait
	for from := 0; from < len(outcomes); from += fanOutPart {
		count := min(fanOutPart, len(outcomes)-from)
		positions := make([]eventstore.Position, count)
		end := l.Pace.Turn(ctx, b.accepted.ProjectID, &left)
		err := l.Each(ctx, count, func(ctx context.Context, i int) (err error) {
			outcomes[from+i], positions[i], err = fanOutItem(ctx, l, b, from+i)
			if err != nil {
				return fmt.Errorf("item %d of send %s: %w", from+i, b.id, err)
			}
			return nil
		})
		end(slices.Max(positions), count)
		if err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

// completeFanOut stores the outcomes of a fan-out. If another run stored some first, it returns
// those.
func completeFanOut(
	ctx context.Context, l *engine.Journal, b *batch, outcomes []ingestion.Outcome,
) (stored []ingestion.Outcome, err error) {
	name := stream.Name(stream.Ingestion, b.id)
	err = engine.UntilNoConflict(ctx, nil, func(reread bool) error {
		state, at := ingestion.State{}, engine.HeadAfter(1)
		state.Evolve(&b.accepted)
		if reread { // another run completed it or abandoned it, or it was retried after that
			if state, at, err = engine.Fold[ingestion.State](ctx, l, name); err != nil {
				return err
			}
		}
		if stored = state.Outcomes; stored != nil {
			return nil
		}
		stored = outcomes
		_, err = l.Append(ctx, name, at.Revision, stagedMeta(&b.accepted), state.CompleteFanOut(outcomes)...)
		return err
	})
	return stored, err
}

// resumeBatch fans out a batch that another run left, from its stage. It stores no live item of a
// deleted batch.
func resumeBatch(
	ctx context.Context, l *engine.Journal, send *storedSend, deleted *deletion.Accepted,
) ([]ingestion.Outcome, error) {
	b, err := readStage(ctx, l, send)
	if err != nil {
		// The run that completes the fan-out tombstones the stage: then its outcomes are stored.
		if now, readErr := readSend(ctx, l, send.id); readErr == nil && now.Outcomes != nil {
			return now.Outcomes, nil
		}
		return nil, err
	}
	b.deleted = deleted
	return fanOutBatch(ctx, l, b)
}

// fanOutItem appends one item. It decides it again if its data point has changed since the commit. The
// position is 0 if it appends nothing.
func fanOutItem(
	ctx context.Context, l *engine.Journal, b *batch, i int,
) (outcome ingestion.Outcome, position eventstore.Position, err error) {
	p := &b.prepared[i]
	decided, effect, final := eventstore.Revision(b.accepted.Items[i].Decided), b.commit, b.accepted.Items[i].Final()
	if final && b.effects != nil && b.effects[i] > 0 {
		effect = b.effects[i]
	} else if final {
		var err error
		effect, err = effectUpTo(ctx, l, p.stream, decided)
		if errors.Is(err, eventstore.ErrDeleted) {
			return ingestion.Outcome{Outcome: ingestion.Deleted}, 0, nil
		}
		if err != nil {
			return ingestion.Outcome{}, 0, err
		}
	}
	p.ingest.Commit = uint64(effect)
	texts := uuid.NewSHA1(b.accepted.FanOut, fmt.Appendf(nil, "texts:%d", i))
	meta := stagedMeta(&b.accepted)
	meta.CommandID = uuid.NewSHA1(b.accepted.FanOut, fmt.Appendf(nil, "item:%d", i))
	item, at := b.decided[i], decided
	err = engine.UntilNoConflict(ctx, nil, func(reread bool) error {
		if reread || b.unread {
			var base datapoint.Base
			var done bool
			var err error
			base, at, outcome, done, err = rebase(ctx, l, p.stream, decided, effect, final, meta.CommandID)
			if errors.Is(err, eventstore.ErrDeleted) {
				outcome = ingestion.Outcome{Outcome: ingestion.Deleted}
				return nil
			}
			if done || err != nil {
				return err
			}
			item = base.Decide(p.ingest)
		}
		var e event.Event
		appended := meta
		if b.deleted != nil && item.Base.Later == nil && item.Outcome.CreatesRevision() {
			// The deletion covers the revision that the item would create, so store the deletion instead,
			// with the ids of the deletion. The store takes an event for a repetition of another with the
			// same id.
			outcome = ingestion.Outcome{Outcome: ingestion.Deleted}
			e, appended = deletedBy(stream.SendDeletionID(b.id), b.deleted, b.id, false), targetMeta(b.deleted, p.dataPoint)
		} else {
			var err error
			if e, err = eventOf(ctx, l, item, p, texts, meta); err != nil {
				return err
			}
			outcome = item.Outcome
		}
		done, err := l.Append(ctx, p.stream, at, appended, e)
		position = done.Position
		if errors.Is(err, eventstore.ErrDeleted) {
			outcome = ingestion.Outcome{Outcome: ingestion.Deleted}
			return nil
		}
		return err
	})
	return outcome, position, err
}

// effectUpTo returns the position of the newest effect that a data point had at a stream revision.
func effectUpTo(
	ctx context.Context, l *engine.Journal, name string, at eventstore.Revision,
) (eventstore.Position, error) {
	for ; ; at-- {
		f, ok, err := l.At(ctx, name, at)
		if err != nil {
			return 0, err
		}
		send, current, live := datapoint.SendOf(f.Event)
		switch {
		case f.IsPassedOver() && at > 0:
		case !ok || !live:
			return 0, fmt.Errorf("read effect of event %d of %s: it is not a send", at, name)
		case current.Historic(): // what it is history before is stored before it
		case send.Commit != 0:
			return eventstore.Position(send.Commit), nil
		default:
			return f.Position, nil
		}
	}
}

// rebase returns the base of an item whose data point has changed since the commit: the newest
// effect before the commit. If later effects are stored already, the item becomes historic. done is
// true if the item is stored already, or its data point is deleted.
//
// A final item (ingestion.Item.Final) takes effect directly after what it was decided on, whose
// effect is at commit then. There it changes at most the audience, whatever others changed since.
func rebase(
	ctx context.Context, l *engine.Journal, name string, decided eventstore.Revision, commit eventstore.Position,
	final bool,
	command uuid.UUID,
) (base datapoint.Base, at eventstore.Revision, outcome ingestion.Outcome, done bool, err error) {
	events, err := l.ReadFrom(ctx, name, max(decided, 0))
	if err != nil {
		return base, 0, outcome, false, err
	}
	at = eventstore.NoStream
	var below eventstore.Position
	for _, f := range events {
		at = f.Revision
		if f.Details.CommandID == command {
			outcome, _ := datapoint.OutcomeOf(f.Event)
			return base, at, outcome, true, nil
		}
		if f.IsPassedOver() {
			continue
		}
		send, current, live := datapoint.SendOf(f.Event)
		if !live {
			return base, at, ingestion.Outcome{Outcome: ingestion.Deleted}, true, nil
		}
		effect := f.Position
		if send.Commit != 0 {
			effect = eventstore.Position(send.Commit)
		}
		head := current.Head()
		base.LastNumber = head.LastNumber
		switch {
		case f.Revision == decided:
			// What the item was decided on took effect before the commit, even if it is historic itself.
			base.State = &head
			if below = effect; current.Historic() {
				below = commit - 1 // its head took effect after it did
			}
			if final {
				below = commit
			}
		case effect > commit:
			base.Later = &head
		case effect >= below:
			state := current.Effect
			base.State, below = &state, effect
		}
		if base.Later != nil {
			base.Later = &head
		}
	}
	base.Next = int64(at) + 1
	return base, at, outcome, false, nil
}

// staged is one item of a batch in its stage: everything that a fan-out needs if the process that
// accepted the batch is gone.
type staged struct {
	SourceID   string          `json:"sourceId"`
	Content    string          `json:"content"`
	Label      *string         `json:"label,omitempty"`
	OccurredAt *time.Time      `json:"occurredAt,omitempty"`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
	Audience   uuid.UUID       `json:"audience,omitzero"`
	Author     string          `json:"author,omitempty"`
	engine.Salt
}

// writeStage writes the items of a batch, one JSON value a line, to a blob of the send.
func writeStage(
	ctx context.Context, l *engine.Journal, call engine.Call, b *batch, command uuid.UUID,
) (blob.Ref, error) {
	var buf bytes.Buffer
	holds := make([]uuid.UUID, len(b.prepared))
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	for i, p := range b.prepared {
		holds[i] = p.dataPoint
		item := staged{
			SourceID: p.ingest.SourceID, Content: p.content, Label: p.ingest.Label, OccurredAt: p.ingest.OccurredAt,
			Metadata: p.metadata, Audience: p.ingest.Audience, Author: p.ingest.Author,
		}
		if i == 0 {
			item.Salt = engine.NewSalt()
		}
		if err := enc.Encode(item); err != nil {
			return blob.Ref{}, fmt.Errorf("stage item %d: %w", p.ingest.Ordinal, err)
		}
	}
	project := call.Principal.Project.ID
	deadline, meta := call.ReceivedAt.Add(blob.Keep), call.Meta(command)
	ref, err := l.StoreBlob(ctx, &b.stage, b.id, command, project, deadline, meta, buf.Bytes(), holds...)
	if err != nil {
		return blob.Ref{}, engine.Unavailable(err)
	}
	return ref, nil
}

// readStage prepares a committed batch to be fanned out again.
func readStage(ctx context.Context, l *engine.Journal, send *storedSend) (*batch, error) {
	id, accepted := send.id, send.Batch
	data, err := l.ReadBlob(ctx, accepted.Stage)
	if _, is := errors.AsType[*eventstore.BlobError](err); is {
		return nil, &engine.StageError{Send: id, Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("stage of send %s: %w", id, err)
	}
	b := &batch{id: id, accepted: *accepted, commit: send.commit, unread: true}
	dec := json.NewDecoder(bytes.NewReader(data))
	for i, item := range accepted.Items {
		var in staged
		if err := dec.Decode(&in); err != nil {
			return nil, &engine.StageError{Send: id, Err: fmt.Errorf("item %d: %w", i, err)}
		}
		author, err := l.AuthorID(ctx, accepted.ProjectID, in.Author)
		if err != nil {
			return nil, err
		}
		p := prepared{
			dataPoint: item.DataPoint, stream: stream.Name(stream.DataPoint, item.DataPoint), content: in.Content,
			metadata: in.Metadata,
		}
		p.ingest = datapoint.Ingest{
			Send: datapoint.Send{
				ProjectID: accepted.ProjectID, IngestionID: id, Ordinal: i, Items: len(accepted.Items),
				AcceptedAt: accepted.AcceptedAt, RequestID: accepted.RequestID, Bytes: item.Bytes,
				CreditTenths: metering.IngestTenths(item.Bytes), Month: accepted.Month,
			},
			Author: in.Author, AuthorID: author, SourceID: in.SourceID, ContentDigest: datapoint.Digest([]byte(in.Content)),
			Label: in.Label, OccurredAt: in.OccurredAt, Audience: in.Audience,
		}
		if in.Metadata != nil {
			canonical, err := datapoint.CanonicalMetadata(in.Metadata)
			if err != nil {
				return nil, &engine.StageError{Send: id, Err: fmt.Errorf("item %d: %w", i, err)}
			}
			p.ingest.MetadataSent, p.ingest.MetadataDigest = true, datapoint.Digest(canonical)
		}
		b.prepared = append(b.prepared, p)
	}
	b.decided = make([]datapoint.Decision, len(b.prepared))
	return b, nil
}
