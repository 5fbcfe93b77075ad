package commands

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// prepared is a data point with everything that follows from its text.
type prepared struct {
	dataPoint    uuid.UUID
	stream       string
	ingest       datapoint.Ingest // Content and Metadata not placed yet
	content      string
	metadata     json.RawMessage
	externalized bool // the texts are where the event will refer to them
	blobs        written
	newest       eventstore.DecodedEvent // of the stream when it was last read; zero if none is retained
}

// prepare digests one data point of a send and finds its audience. The caller sets the ids of the
// send and of its items.
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
		p.ingest.AuthorID = stream.IdentityID(call.Principal.Project.Namespace, *in.Identity)
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

// inlineBody is how many bytes of JSON the texts of an event may have. Beyond it, the larger text
// goes to a blob. The rest of blob.InlineLimit is for the other fields of the event.
const inlineBody = blob.InlineLimit - 16<<10

// externalize decides which texts are in the event and writes the others to blobs. Repeated with
// the same command, it writes nothing twice.
func (l *Journal) externalize(ctx context.Context, p *prepared, command uuid.UUID, meta event.Meta) error {
	if p.externalized {
		return nil
	}
	contentSize, metadataSize := jsonSize(p.content), jsonSize(string(p.metadata))
	var contentOut, metadataOut bool
	if contentSize+metadataSize > inlineBody {
		contentOut = contentSize >= metadataSize || contentSize > inlineBody
		metadataOut = !contentOut || metadataSize > inlineBody
	}
	var err error
	p.ingest.Content, err = l.storeText(ctx, p, p.content, contentOut, uuid.NewSHA1(command, []byte("content")), meta)
	if err != nil {
		return err
	}
	if p.metadata != nil {
		metadata, err := l.storeText(ctx, p, string(p.metadata), metadataOut, uuid.NewSHA1(command, []byte("metadata")), meta)
		if err != nil {
			return err
		}
		p.ingest.Metadata = &metadata
	}
	p.externalized = true
	return nil
}

// storeText returns a text for an event: inline or, if out is true, in a blob.
func (l *Journal) storeText(
	ctx context.Context, p *prepared, text string, out bool, command uuid.UUID, meta event.Meta,
) (datapoint.Text, error) {
	if !out {
		return datapoint.Text{Inline: text}, nil
	}
	meta.CommandID = command
	deadline := p.ingest.AcceptedAt.Add(blob.Keep)
	ref, err := l.writeBlob(ctx, &p.blobs, p.dataPoint, command, p.ingest.ProjectID, deadline, meta, []byte(text))
	if err != nil {
		return datapoint.Text{}, fmt.Errorf("write blob: %w", unavailable(err))
	}
	return datapoint.Text{Blob: &ref}, nil
}

// jsonSize is an upper bound of the length of a text as a JSON string.
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

// fingerprint identifies the payload of a request, so that a second use of its idempotency key can
// be compared. It is keyed, since the log keeps it permanently and must not reveal what was sent.
func (s *Service) fingerprint(kind string, items []DataPoint) (string, error) {
	mac := hmac.New(sha256.New, s.hashKey)
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
