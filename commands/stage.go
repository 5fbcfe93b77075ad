package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// staged is one item of a batch as its stage holds it: all that a fan-out needs when the process that took the batch is gone.
type staged struct {
	SourceID   string          `json:"sourceId"`
	Content    string          `json:"content"`
	Label      *string         `json:"label,omitempty"`
	OccurredAt *time.Time      `json:"occurredAt,omitempty"`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
	Audience   uuid.UUID       `json:"audience,omitzero"`
	Author     string          `json:"author,omitempty"`
	salt
}

// salt is in the first line of a stage. The hash of a stage is in a stream that outlives it (blob.Ref): without something in the
// stage that nobody can guess, a guess of the text could be confirmed after its erasure.
type salt struct {
	Salt uuid.UUID `json:"salt,omitzero"`
}

func newSalt() salt { return salt{uuid.New()} }

// stageError is a stage that is missing or damaged: no other try reads more of it.
type stageError struct {
	send uuid.UUID
	err  error
}

func (e *stageError) Error() string { return fmt.Sprintf("stage of send %s: %v", e.send, e.err) }

func (e *stageError) Unwrap() error { return e.err }

// writeStage writes the items of a batch, one JSON value a line, to a blob of the send.
func (l *Log) writeStage(ctx context.Context, call Call, b *batch, command uuid.UUID) (blob.Ref, error) {
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
			item.salt = newSalt()
		}
		if err := enc.Encode(item); err != nil {
			return blob.Ref{}, fmt.Errorf("stage item %d: %w", p.ingest.Ordinal, err)
		}
	}
	project := call.Principal.Project.ID
	deadline, meta := call.ReceivedAt.Add(BlobKeep), call.meta(command)
	ref, err := l.writeBlob(ctx, &b.stage, b.id, command, project, deadline, meta, buf.Bytes(), holds...)
	if err != nil {
		return blob.Ref{}, unavailable(err)
	}
	return ref, nil
}

// readStage makes a committed batch ready to be fanned out again.
func (l *Log) readStage(ctx context.Context, commit eventstore.Fact, accepted *ingestion.Accepted, id uuid.UUID) (*batch, error) {
	data, err := eventstore.ReadBlob(ctx, l.Store, l.Codec, accepted.Stage)
	if _, is := errors.AsType[*eventstore.BlobError](err); is {
		return nil, &stageError{send: id, err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("stage of send %s: %w", id, err)
	}
	b := &batch{id: id, accepted: *accepted, commit: commit.Position, unread: true}
	dec := json.NewDecoder(bytes.NewReader(data))
	for i, item := range accepted.Items {
		var in staged
		if err := dec.Decode(&in); err != nil {
			return nil, &stageError{send: id, err: fmt.Errorf("item %d: %w", i, err)}
		}
		p := prepared{dataPoint: item.DataPoint, stream: stream.Name(stream.DataPoint, item.DataPoint), content: in.Content, metadata: in.Metadata}
		p.ingest = datapoint.Ingest{
			Send: datapoint.Send{
				ProjectID: accepted.ProjectID, IngestionID: id, Ordinal: i, Items: len(accepted.Items), AcceptedAt: accepted.AcceptedAt,
				RequestID: accepted.RequestID, Author: in.Author, Bytes: item.Bytes, CreditTenths: metering.IngestTenths(item.Bytes), Month: accepted.Month,
			},
			SourceID: in.SourceID, ContentDigest: datapoint.Digest([]byte(in.Content)), Label: in.Label, OccurredAt: in.OccurredAt, Audience: in.Audience,
		}
		if in.Metadata != nil {
			canonical, err := datapoint.CanonicalMetadata(in.Metadata)
			if err != nil {
				return nil, &stageError{send: id, err: fmt.Errorf("item %d: %w", i, err)}
			}
			p.ingest.MetadataSent, p.ingest.MetadataDigest = true, datapoint.Digest(canonical)
		}
		b.prepared = append(b.prepared, p)
	}
	b.bases = make([]datapoint.Base, len(b.prepared))
	return b, nil
}
