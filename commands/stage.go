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
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

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
	salt
}

// salt is in the first line of a stage. The hash of a stage is in a stream that outlives the stage
// (blob.Ref). Without a secret in the stage, a guess of the text could be confirmed after its
// erasure.
type salt struct {
	Salt uuid.UUID `json:"salt,omitzero"`
}

func newSalt() salt { return salt{uuid.New()} }

// stageError is a stage that is missing or damaged: another try cannot read it either.
type stageError struct {
	send uuid.UUID
	err  error
}

func (e *stageError) Error() string { return fmt.Sprintf("stage of send %s: %v", e.send, e.err) }

func (e *stageError) Unwrap() error { return e.err }

// writeStage writes the items of a batch, one JSON value a line, to a blob of the send.
func (l *Journal) writeStage(ctx context.Context, call Call, b *batch, command uuid.UUID) (blob.Ref, error) {
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
	deadline, meta := call.ReceivedAt.Add(blob.Keep), call.meta(command)
	ref, err := l.writeBlob(ctx, &b.stage, b.id, command, project, deadline, meta, buf.Bytes(), holds...)
	if err != nil {
		return blob.Ref{}, unavailable(err)
	}
	return ref, nil
}

// readStage prepares a committed batch to be fanned out again.
func (l *Journal) readStage(ctx context.Context, send *storedSend) (*batch, error) {
	id, accepted := send.id, send.Batch
	data, err := l.ReadBlob(ctx, accepted.Stage)
	if _, is := errors.AsType[*eventstore.BlobError](err); is {
		return nil, &stageError{send: id, err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("stage of send %s: %w", id, err)
	}
	b := &batch{id: id, accepted: *accepted, commit: send.commit, unread: true}
	dec := json.NewDecoder(bytes.NewReader(data))
	for i, item := range accepted.Items {
		var in staged
		if err := dec.Decode(&in); err != nil {
			return nil, &stageError{send: id, err: fmt.Errorf("item %d: %w", i, err)}
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
				return nil, &stageError{send: id, err: fmt.Errorf("item %d: %w", i, err)}
			}
			p.ingest.MetadataSent, p.ingest.MetadataDigest = true, datapoint.Digest(canonical)
		}
		b.prepared = append(b.prepared, p)
	}
	b.decided = make([]datapoint.Decision, len(b.prepared))
	return b, nil
}
