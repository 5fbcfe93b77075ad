package commands

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/stream"
)

// BlobKeep is how long a blob that nothing refers to yet is left alone.
const BlobKeep = 24 * time.Hour

// prepared is a data point with everything that follows from its text alone.
type prepared struct {
	dataPoint uuid.UUID
	stream    string
	ingest    datapoint.Ingest // Content and Metadata not placed yet
	content   string
	metadata  json.RawMessage
	placed    bool // the texts are where the event will refer to them
	blobs     written
}

// prepare digests one data point of a send and finds the audience that it names. The ids of the send and of its items are left to the caller.
func (s *Service) prepare(ctx context.Context, call Call, in DataPoint, audiences *audienceNames) (prepared, error) {
	audience, err := audiences.id(ctx, in.Audience)
	if err != nil {
		return prepared{}, err
	}
	digest := datapoint.Digest([]byte(in.Content))
	sourceID := digest
	if in.ID != nil {
		sourceID = *in.ID
	}
	size := int64(len(in.Content))
	p := prepared{content: in.Content, metadata: in.Metadata}
	p.dataPoint = stream.DataPointID(call.Principal.Project.Namespace, sourceID)
	p.stream = stream.Name(stream.DataPoint, p.dataPoint)
	p.ingest = datapoint.Ingest{
		Send: datapoint.Send{
			ProjectID: call.Principal.Project.ID, Items: 1, AcceptedAt: call.ReceivedAt, RequestID: call.RequestID,
			Bytes: size, CreditTenths: metering.IngestTenths(size), Month: metering.Month(call.ReceivedAt),
		},
		SourceID: sourceID, ContentDigest: digest, Label: in.Label, OccurredAt: in.Timestamp, Audience: audience,
	}
	if in.Identity != nil {
		p.ingest.Author = *in.Identity
	}
	if in.Metadata != nil {
		canonical, err := datapoint.CanonicalMetadata(in.Metadata)
		if err != nil {
			return prepared{}, err
		}
		p.ingest.MetadataSent = true
		p.ingest.MetadataDigest = datapoint.Digest(canonical)
	}
	return p, nil
}

// inlineBody is how many bytes of JSON the texts of an event may take before the larger goes into a blob;
// the rest of blob.InlineLimit is for everything else that the event carries.
const inlineBody = blob.InlineLimit - 16<<10

// place decides which texts stand in the event and writes the others to blobs, before anything refers to them.
// Repeated with the same command, it writes nothing twice.
func (l *Log) place(ctx context.Context, p *prepared, command uuid.UUID, meta event.Meta) error {
	if p.placed {
		return nil
	}
	contentSize, metadataSize := jsonSize(p.content), jsonSize(string(p.metadata))
	var contentOut, metadataOut bool
	if contentSize+metadataSize > inlineBody {
		contentOut = contentSize >= metadataSize || contentSize > inlineBody
		metadataOut = !contentOut || metadataSize > inlineBody
	}
	var err error
	if p.ingest.Content, err = l.text(ctx, p, p.content, contentOut, uuid.NewSHA1(command, []byte("content")), meta); err != nil {
		return err
	}
	if p.metadata != nil {
		metadata, err := l.text(ctx, p, string(p.metadata), metadataOut, uuid.NewSHA1(command, []byte("metadata")), meta)
		if err != nil {
			return err
		}
		p.ingest.Metadata = &metadata
	}
	p.placed = true
	return nil
}

func (l *Log) text(ctx context.Context, p *prepared, text string, out bool, command uuid.UUID, meta event.Meta) (datapoint.Text, error) {
	if !out {
		return datapoint.Text{Inline: text}, nil
	}
	meta.CommandID = command
	deadline := p.ingest.AcceptedAt.Add(BlobKeep)
	ref, err := l.writeBlob(ctx, &p.blobs, p.dataPoint, command, p.ingest.ProjectID, deadline, meta, []byte(text))
	if err != nil {
		return datapoint.Text{}, fmt.Errorf("write blob: %w", unavailable(err))
	}
	return datapoint.Text{Blob: &ref}, nil
}

// jsonSize is at least the length of a text as a JSON string.
func jsonSize(text string) int {
	size := len(text)
	for i := range len(text) {
		switch c := text[i]; {
		case c < 0x20:
			size += 5 // \u00XX
		case c == '"', c == '\\':
			size++
		case c == 0xe2:
			size += 3 // U+2028 and U+2029 are escaped
		}
	}
	return size
}

// fingerprint tells whether two requests with one idempotency key ask for the same. It is keyed, so that the log, which
// keeps it for ever, does not give away what was sent.
func (s *Service) fingerprint(kind string, items []DataPoint) (string, error) {
	mac := hmac.New(sha256.New, s.HashKey)
	enc := json.NewEncoder(mac)
	if err := enc.Encode(kind); err != nil {
		return "", err
	}
	for _, in := range items {
		in.Content = datapoint.Digest([]byte(in.Content))
		if in.Metadata != nil {
			canonical, err := datapoint.CanonicalMetadata(in.Metadata)
			if err != nil {
				return "", err
			}
			in.Metadata = canonical
		}
		// An omitted metadata and one that is null encode alike, so say which.
		if err := enc.Encode(struct {
			DataPoint
			MetadataSent bool
		}{in, in.Metadata != nil}); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(mac.Sum(nil)), nil
}
