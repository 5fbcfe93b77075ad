package why_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/why"
)

// A body that is not there as it came is neither a sample nor sent again, and the answer has the reason.
func TestSamples_LostBodies(t *testing.T) {
	days := metering.DefaultPlanTerms().Of(metering.SelfHosted).RetentionDays
	for _, c := range []struct {
		name, lost, body string
		change           func(*logFake)
		at               time.Time
	}{
		{name: "kept", body: "whole"},
		{name: "empty", change: func(f *logFake) { f.call.Payload.Request, f.call.RequestBytes = nil, 0 }},
		{name: "expired", lost: "no longer", at: noon.AddDate(0, 0, days)},
		{name: "never stored", lost: "not stored", change: func(f *logFake) { f.call.Payload = nil }},
		{name: "of a deleted data point", lost: "no longer", change: func(f *logFake) { f.deleted = true }},
		{name: "cut", lost: "was cut", change: func(f *logFake) { f.call.Payload.RequestTruncated, f.call.RequestBytes = true, 9 }},
		{name: "refused unread", lost: "before its body was read", change: func(f *logFake) {
			f.call.Status, f.call.Payload.Request, f.call.Payload.RequestTruncated = 409, nil, true
		}},
	} {
		f := &logFake{call: requestlog.Call{
			Entry: requestlog.Entry{
				Endpoint: requestlog.EventEndpoint, DataPoint: &point, ReceivedAt: noon, Status: 202,
				Webhook: &requestlog.Webhook{ID: "whk_one", EventID: "evt_1"},
			},
			Plan: string(metering.SelfHosted), IDs: []uuid.UUID{point}, RequestBytes: 5,
			Payload: &requestlog.Payload{Request: []byte("whole")},
		}}
		if c.change != nil {
			c.change(f)
		}
		at := noon
		if !c.at.IsZero() {
			at = c.at
		}
		samples, err := f.queries().Samples(t.Context(), project, "whk_one", at)
		if err != nil || len(samples) != 1 {
			t.Fatal(samples, err)
		}
		if got := samples[0].Lost; (got == "") != (c.lost == "") || !strings.Contains(got, c.lost) {
			t.Errorf("%s: a sample is lost for %q, want %q", c.name, got, c.lost)
		}
		body, err := f.queries().Body(t.Context(), project, "whk_one", uuid.UUID{9}, at)
		if c.lost == "" && (err != nil || string(body) != c.body) ||
			c.lost != "" && (err == nil || !strings.Contains(err.Error(), c.lost) || body != nil) {
			t.Errorf("%s: body %q, %v", c.name, body, err)
		}
	}
}

func TestBody_OfAnotherWebhookOrWithAKey(t *testing.T) {
	f := &logFake{call: requestlog.Call{
		Entry: requestlog.Entry{ReceivedAt: noon, Status: 202, Webhook: &requestlog.Webhook{ID: "whk_one", EventID: "evt_1"}},
		Plan:  string(metering.SelfHosted), RequestBytes: 30, Payload: &requestlog.Payload{Request: []byte("svc_sk_redacted")},
	}}
	for webhook, want := range map[string]string{"whk_one": "evt_1: the body held an API key", "whk_two": "has no event"} {
		if body, err := f.queries().Body(t.Context(), project, webhook, uuid.UUID{9}, noon); err == nil ||
			!strings.Contains(err.Error(), want) || body != nil {
			t.Errorf("%s: %q, %v", webhook, body, err)
		}
	}
	f.call.Webhook = nil
	if _, err := f.queries().Body(t.Context(), project, "whk_one", uuid.UUID{9}, noon); err == nil {
		t.Error("the body of another call is that of an event")
	}
}

func TestActivity_OfADay(t *testing.T) {
	f := &logFake{}
	got, err := f.queries().Activity(t.Context(), project, []string{"whk_one"}, noon)
	if err != nil || got["whk_one"].Ingested != 24 || !got["whk_one"].LastAt.Equal(noon.Add(-24*time.Hour)) {
		t.Errorf("activity %+v, %v", got, err)
	}
	ids, err := f.queries().SourceIDs(t.Context(), project, []why.Call{{}, {Entry: requestlog.Entry{DataPoint: &point}}})
	if err != nil || len(ids) != 1 || ids[point] != "source" {
		t.Errorf("source ids %v, %v", ids, err)
	}
}
