// Package ingest takes what is sent: single sends and batches, and moves, corrections and deletions of data points.
// Service.Ingest, Service.IngestBatch and the fan-outs are where to start reading.
package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/fields"
)

// Config is what the commands of this package need. DataPoints, Limits, Events and LoadGauge may be nil.
type Config struct {
	Journal   *engine.Journal
	Waiter    engine.Waiter
	Authors   *identities.Authors
	Audiences *identities.AudienceReader
	Directory identities.Directory
	Sends     Sends
	// DataPoints saves a batch the reads of new data points. Without it, each is read.
	DataPoints DataPoints
	// Limits reserve what sends cost. Without it, sends have no caps.
	Limits Limiter
	// Events counts the events that webhooks receive, and charges their price. Without it, they are free.
	Events  Events
	HashKey []byte // key of the fingerprints, at least 32 bytes
	// Pipeline is false if background derivation is switched off: then nothing can be retried.
	Pipeline bool
	// LoadGauge measures how many callers wait for sends.
	LoadGauge *engine.LoadGauge
}

// Service is the commands on sends and data points.
type Service struct {
	journal    *engine.Journal
	waiter     engine.Waiter
	authors    *identities.Authors
	audiences  *identities.AudienceReader
	directory  identities.Directory
	sends      Sends
	dataPoints DataPoints
	limits     Limiter
	events     Events
	hashKey    []byte
	pipeline   bool
	load       *engine.LoadGauge
}

// New makes a Service.
func New(cfg Config) *Service {
	s := &Service{
		journal: cfg.Journal, waiter: cfg.Waiter, authors: cfg.Authors, audiences: cfg.Audiences, directory: cfg.Directory,
		sends: cfg.Sends, dataPoints: cfg.DataPoints, limits: cfg.Limits, events: cfg.Events, hashKey: cfg.HashKey,
		pipeline: cfg.Pipeline, load: cfg.LoadGauge,
	}
	if s.limits == nil {
		s.limits = unlimited{}
	}
	if s.events == nil {
		s.events = uncounted{}
	}
	if s.load == nil {
		s.load = &engine.LoadGauge{}
	}
	return s
}

// Sends reads the sends of a project, and never one of another project where it takes one.
type Sends interface {
	// Targets returns the data points of the items of a send that created a revision, in order,
	// deleted ones too. found is false only once the projection has passed the head of the log.
	Targets(
		ctx context.Context, project auth.Project, ingestionID uuid.UUID,
	) (dataPoints []uuid.UUID, found bool, err error)
	// ProjectOf returns the project of a send, also of a project that is not the caller's.
	ProjectOf(ctx context.Context, ingestionID uuid.UUID) (project uuid.UUID, found bool, err error)
	// Pending returns those of the data points that a committed batch of the project creates whose
	// fan-out is not complete. It returns once the projection has passed the head of the log.
	Pending(ctx context.Context, project auth.Project, dataPoints []uuid.UUID) (map[uuid.UUID]bool, error)
	// NewestSends returns the live ones of the data points, each with the send of its newest revision.
	NewestSends(ctx context.Context, project auth.Project, dataPoints []uuid.UUID) (map[uuid.UUID]uuid.UUID, error)
	// Completed reports whether polls show the send as completed: a watermark found it searchable, or
	// a deletion of the whole send was answered.
	Completed(ctx context.Context, project auth.Project, ingestionID uuid.UUID) (bool, error)
}

// DataPoints reads which data points were ever sent.
type DataPoints interface {
	// Sent returns those of the data points of which the projection has applied a send, deleted ones
	// too. It contains all whose deletion was answered, since that answer waits for the projection.
	// For the rest it is a hint, which may be late.
	Sent(ctx context.Context, dataPoints []uuid.UUID) (map[uuid.UUID]struct{}, error)
}

// Limiter reserves what sends cost, under the caps of their projects and organizations, for all
// processes together.
type Limiter interface {
	// Reserve makes a reservation if the caps allow it, and holds it for a time: what is not appended
	// by then never is. A try may reserve once. Its faults are project-cap-reached, spend-cap-reached,
	// out-of-credits and service-unavailable.
	Reserve(ctx context.Context, r metering.Reservation, hold time.Duration) error
	// Release ends the reservation of a try of which nothing was stored nor will be.
	Release(ctx context.Context, sendID, try uuid.UUID) error
}

// Events counts the events that webhooks receive, and charges their price under the caps of their
// projects and organizations, for all processes together.
type Events interface {
	// ChargeEvent runs work for one received event and counts it. An event whose work fails costs
	// nothing. The faults are those of work and of Limiter.Reserve.
	ChargeEvent(ctx context.Context, p auth.Principal, at time.Time, work func() error) error
}

// unlimited is a Limiter without caps.
type unlimited struct{}

func (unlimited) Reserve(context.Context, metering.Reservation, time.Duration) error { return nil }

func (unlimited) Release(context.Context, uuid.UUID, uuid.UUID) error { return nil }

// uncounted are Events that cost nothing.
type uncounted struct{}

func (uncounted) ChargeEvent(_ context.Context, _ auth.Principal, _ time.Time, work func() error) error {
	return work()
}

// DataPoint is one data point as sent, already checked against the limits.
type DataPoint = fields.DataPoint

// The statuses of a receipt.
const (
	StatusQueued    = "queued"
	StatusCompleted = "completed"
)

// Receipt is the answer to a single send.
type Receipt struct {
	ProjectID   int64
	IngestionID uuid.UUID
	SourceID    string
	Status      string
	// Unchanged is true, or null if something changed.
	Unchanged *bool
	// CreditTenths is what this call was charged: nothing if it repeats an idempotency key.
	CreditTenths int64
}

// BatchReceipt is the answer to a batch. Status and Unchanged describe it as a whole.
type BatchReceipt struct {
	ProjectID   int64
	IngestionID uuid.UUID
	Status      string
	Unchanged   *bool
	Items       []ItemReceipt
	// CreditTenths is what this call was charged: nothing if it repeats an idempotency key.
	CreditTenths int64
}

// ItemReceipt is the answer to one item, in the order sent.
type ItemReceipt struct {
	Ordinal   int
	SourceID  string
	Status    string
	Unchanged *bool
}

// DeletionReceipt is the answer to a deletion by source ids: each id once, in the order sent.
type DeletionReceipt struct {
	OperationID uuid.UUID
	IDs         []string
}

func dataPointDeleted(sourceID string) *fault.Error {
	return fault.New(fault.Conflict, fault.CodeDataPointDeleted,
		"the data point %q is deleted; its id cannot be reused", sourceID)
}

func idempotencyConflict(key string, id uuid.UUID) *fault.Error {
	return fault.New(fault.Conflict, fault.CodeIdempotencyConflict, "the idempotency key was used with another payload").
		With("idempotencyKey", key).With("ingestionId", id)
}

// EventReceipt is the answer to an event of a webhook. Send is zero for a dropped event.
type EventReceipt struct {
	// DroppedBy is the filter that dropped the event, or webhook.NoContent; "" if it was ingested.
	DroppedBy string
	Send      Receipt
	// SourceID is the id of the data point, also of a refused one, "" for a dropped event.
	SourceID string
	// CreditTenths is the price of the event and of its ingestion.
	CreditTenths int64
}

// webhookSource is the source in the metadata of a data point that came through a webhook.
const webhookSource = "webhook"

// ReceiveEvent maps the body of an event by the settings of the webhook that calls, and ingests the data
// point. eventID is the id of the data point if the settings map none.
//
// Its faults are those of Ingest, and project-cap-reached, spend-cap-reached and out-of-credits for the
// event itself. A refused event costs nothing.
func (s *Service) ReceiveEvent(
	ctx context.Context, call engine.Call, eventID string, body []byte,
) (EventReceipt, error) {
	w := call.Principal.Webhook
	mapping, err := w.Settings.Compile()
	if err != nil {
		return EventReceipt{}, fmt.Errorf("settings of webhook %s: %w", w.ID, err)
	}
	metadata, err := json.Marshal(map[string]string{"source": webhookSource, "webhookId": w.ID})
	if err != nil {
		return EventReceipt{}, err
	}
	event := mapping.Map(body)
	receipt := EventReceipt{DroppedBy: event.DroppedBy, CreditTenths: metering.WebhookEventTenths}
	err = s.events.ChargeEvent(ctx, call.Principal, call.ReceivedAt, func() (err error) {
		if event.DroppedBy != "" {
			return nil
		}
		in := DataPoint{Content: event.Content, ID: &eventID, Timestamp: &call.ReceivedAt, Metadata: metadata}
		if event.ID != "" {
			in.ID = &event.ID
		}
		if !event.OccurredAt.IsZero() {
			in.Timestamp = &event.OccurredAt
		}
		if w.Settings.Audience != "" {
			in.Audience = &w.Settings.Audience
		}
		receipt.SourceID = *in.ID
		receipt.Send, err = s.Ingest(ctx, call, in, "")
		receipt.CreditTenths += receipt.Send.CreditTenths
		return err
	})
	return receipt, err
}
