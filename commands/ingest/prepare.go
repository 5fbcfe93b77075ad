package ingest

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
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
	blobs        engine.Written
	newest       eventstore.DecodedEvent // of the stream when it was last read; zero if none is retained
}

// prepare digests one data point of a send and finds its audience. The caller sets the ids of the
// send and of its items.
func (s *Service) prepare(
	ctx context.Context, call engine.Call, in DataPoint, audiences *identities.AudienceNames,
) (prepared, error) {
	audience, err := audiences.ID(ctx, in.Audience)
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

// externalize decides which texts are in the event and writes the others to blobs. Repeated with
// the same command, it writes nothing twice.
func externalize(ctx context.Context, l *engine.Journal, p *prepared, command uuid.UUID, meta event.Meta) error {
	if p.externalized {
		return nil
	}
	contentSize, metadataSize := jsonSize(p.content), jsonSize(string(p.metadata))
	var contentOut, metadataOut bool
	if contentSize+metadataSize > engine.InlineBody {
		contentOut = contentSize >= metadataSize || contentSize > engine.InlineBody
		metadataOut = !contentOut || metadataSize > engine.InlineBody
	}
	var err error
	p.ingest.Content, err = storeText(ctx, l, p, p.content, contentOut, uuid.NewSHA1(command, []byte("content")), meta)
	if err != nil {
		return err
	}
	if p.metadata != nil {
		of := uuid.NewSHA1(command, []byte("metadata"))
		metadata, err := storeText(ctx, l, p, string(p.metadata), metadataOut, of, meta)
		if err != nil {
			return err
		}
		p.ingest.Metadata = &metadata
	}
	p.externalized = true
	return nil
}

// storeText returns a text for an event: inline or, if out is true, in a blob.
func storeText(
	ctx context.Context, l *engine.Journal, p *prepared, text string, out bool, command uuid.UUID, meta event.Meta,
) (datapoint.Text, error) {
	if !out {
		return datapoint.Text{Inline: text}, nil
	}
	meta.CommandID = command
	deadline := p.ingest.AcceptedAt.Add(blob.Keep)
	ref, err := l.StoreBlob(ctx, &p.blobs, p.dataPoint, command, p.ingest.ProjectID, deadline, meta, []byte(text))
	if err != nil {
		return datapoint.Text{}, fmt.Errorf("write blob: %w", engine.Unavailable(err))
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

const (
	// appendGrace is how long after the end of its command an append may still be on its way to the
	// event store.
	appendGrace = 10 * time.Second
	// reservationHold is how long the sweep takes a reservation for one that is in use.
	reservationHold = engine.DecideTimeout + appendGrace
	// releaseTimeout bounds the release of a reservation, which continues when the caller is gone.
	releaseTimeout = 5 * time.Second
)

// reservation is what one try of a send reserves of its caps. The try reserves once it knows that
// it creates a revision, and releases if it is refused. What is stored, or may be, stays reserved
// until the send is projected or cannot be stored any more.
type reservation struct {
	service *Service
	of      metering.Reservation
	held    bool
}

// newReservation is the reservation of a new try of a send, which holds nothing yet.
func (s *Service) newReservation(call engine.Call, send uuid.UUID) *reservation {
	p := call.Principal
	return &reservation{service: s, of: metering.Reservation{
		OrganizationID: p.OrganizationID, ProjectID: p.Project.ID, SendID: send, Try: uuid.New(), Limits: p.Limits,
		At: call.ReceivedAt,
	}}
}

// hasCaps reports whether the send has caps. Without a cap, no reservation is made.
func (r *reservation) hasCaps() bool { return r.of.Limits.Bind() }

// reserve reserves, unless the try holds a reservation already.
func (r *reservation) reserve(ctx context.Context, items, tenths int64) error {
	if !r.hasCaps() || r.held {
		return nil
	}
	r.of.Items, r.of.CreditTenths = items, tenths
	err := r.service.limits.Reserve(ctx, r.of, reservationHold)
	// After a failure the reservation may be stored, so it is released. After a refusal it is not.
	var refused *fault.Error
	r.held = !errors.As(err, &refused) || refused.Kind == fault.Unavailable
	return err
}

// convert leaves the reservation to the send that was appended. err is that of the append: after a
// definite refusal the try keeps the reservation.
func (r *reservation) convert(err error) {
	if err == nil || !errors.Is(err, eventstore.ErrConflict) && !errors.Is(err, eventstore.ErrDeleted) {
		r.held = false
	}
}

// release ends the reservation if the try still holds it. If that fails, the sweep ends it.
func (r *reservation) release(ctx context.Context) {
	if !r.held {
		return
	}
	r.held = false
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := r.service.limits.Release(ctx, r.of.SendID, r.of.Try); err != nil {
		r.service.journal.Logger.WarnContext(ctx, "reservation not released, left to the sweep", "send", r.of.SendID,
			"err", err)
	}
}
