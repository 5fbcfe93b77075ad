package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/tenants"
)

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
func (s *Service) ReceiveEvent(ctx context.Context, call Call, eventID string, body []byte) (EventReceipt, error) {
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

// TryEvent returns what an event of a webhook with these settings would become in the project of the call, and its
// price by the plan of the call. It writes nothing. Its faults are invalid-request and webhook-body-too-large.
func (s *Service) TryEvent(
	ctx context.Context, call Call, settings webhook.Settings, body []byte,
) (out tenants.TriedEvent, err error) {
	if len(body) > limit.WebhookBody {
		return out, fault.New(fault.Invalid, fault.CodeWebhookBodyTooLarge, "the event has more than %d bytes",
			limit.WebhookBody)
	}
	mapping, err := settings.Compile()
	if err != nil {
		return out, err
	}
	body = webhook.Plain("", body)
	for i, matches := range mapping.Matches(body) {
		out.Filters = append(out.Filters, tenants.TriedFilter{Filter: settings.Filters[i].String(), Matches: matches})
	}
	event, tenths := mapping.Map(body), int64(metering.WebhookEventTenths)
	if event.DroppedBy == "" {
		tenths += metering.IngestTenths(int64(len(event.Content)))
	}
	if call.Principal.Limits.Plan.Metered() {
		out.Credits = new(metering.Credits(tenths))
	}
	if event.DroppedBy != "" {
		out.Verdict, out.DroppedBy = "dropped", &event.DroppedBy
		return out, nil
	}
	out.Verdict, out.Content, out.ID, out.Audience = "ingested", event.Content, event.ID, settings.Audience
	if !event.OccurredAt.IsZero() {
		out.OccurredAt = &event.OccurredAt
	}
	err = s.CheckWebhook(ctx, call, settings)
	if f, is := errors.AsType[*fault.Error](err); is && f.Code == fault.CodeAudienceUnknown {
		out.Refused, err = f.Msg, nil
	}
	return out, err
}
