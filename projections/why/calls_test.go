package why_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/why"
)

var (
	send  = uuid.UUID{2}
	point = uuid.UUID{3}
	noon  = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

// logFake is a log of one call, its send and its data point.
type logFake struct {
	call    requestlog.Call
	phase   datapoints.SendPhase
	deleted bool
}

func (f *logFake) Get(context.Context, uuid.UUID, uuid.UUID) (requestlog.Call, error) {
	return f.call, nil
}

func (f *logFake) List(context.Context, uuid.UUID, requestlog.Query) (requestlog.Page, error) {
	return requestlog.Page{Entries: []requestlog.Entry{f.call.Entry}, TotalCount: 1}, nil
}

func (f *logFake) Histogram(context.Context, uuid.UUID, requestlog.Query) (requestlog.Histogram, error) {
	return requestlog.Histogram{}, nil
}

func (f *logFake) Phases(
	_ context.Context, _ auth.Project, sends []uuid.UUID,
) (map[uuid.UUID]datapoints.SendPhase, error) {
	phases := map[uuid.UUID]datapoints.SendPhase{}
	for _, id := range sends {
		phases[id] = f.phase
	}
	return phases, nil
}

func (f *logFake) Deleted(_ context.Context, _ auth.Project, dataPoints []uuid.UUID) (map[uuid.UUID]bool, error) {
	deleted := map[uuid.UUID]bool{}
	for _, id := range dataPoints {
		deleted[id] = f.deleted
	}
	return deleted, nil
}

func (f *logFake) AnyDeleted(_ context.Context, _ auth.Project, dataPoints []uuid.UUID) (bool, error) {
	return f.deleted && len(dataPoints) > 0, nil
}

func (f *logFake) SourceIDs(_ context.Context, _ auth.Project, dataPoints []uuid.UUID) (map[uuid.UUID]string, error) {
	ids := map[uuid.UUID]string{}
	for _, id := range dataPoints {
		ids[id] = "source"
	}
	return ids, nil
}

func (f *logFake) Activity(
	_ context.Context, _ uuid.UUID, _ []string, from, to time.Time,
) (map[string]requestlog.Activity, error) {
	return map[string]requestlog.Activity{"whk_one": {LastAt: &from, Ingested: int64(to.Sub(from) / time.Hour)}}, nil
}

func (f *logFake) Events(context.Context, uuid.UUID, string, int) ([]requestlog.Event, error) {
	e := requestlog.Event{Entry: f.call.Entry, Bytes: f.call.RequestBytes, Plan: f.call.Plan, Empty: true}
	if p := f.call.Payload; p != nil {
		e.Stored, e.Cut, e.Empty = true, p.RequestTruncated, len(p.Request) == 0
	}
	return []requestlog.Event{e}, nil
}

func (f *logFake) DroppedEvents(
	context.Context, uuid.UUID, []string, time.Time, int,
) ([]requestlog.Event, error) {
	return nil, nil
}

func (f *logFake) MarkReplayed(context.Context, requestlog.Entry, uuid.UUID) error { return nil }

func (f *logFake) queries() why.Calls {
	return why.Calls{Log: f, Sends: f, PlanTerms: metering.DefaultPlanTerms()}
}

func TestList_Outcomes(t *testing.T) {
	webhook := func(verdict string) *requestlog.Webhook { return &requestlog.Webhook{Verdict: verdict} }
	for _, c := range []struct {
		entry  requestlog.Entry
		failed bool
		want   string
	}{
		{requestlog.Entry{Status: 202, IngestionID: &send}, false, why.OutcomeAccepted},
		{requestlog.Entry{Status: 202, IngestionID: &send}, true, why.OutcomeFailedLater},
		{requestlog.Entry{Status: 409, IngestionID: &send}, true, why.OutcomeRejected},
		{requestlog.Entry{Status: 200}, true, why.OutcomeAccepted},
		{requestlog.Entry{Status: 202, Webhook: webhook("dropped")}, false, why.OutcomeDropped},
		{requestlog.Entry{Status: 202, Webhook: webhook("ingested"), IngestionID: &send}, true, why.OutcomeFailedLater},
		{requestlog.Entry{Status: 413, Webhook: webhook("")}, false, why.OutcomeRejected},
	} {
		f := &logFake{call: requestlog.Call{Entry: c.entry}, phase: datapoints.SendPhase{Phase: "p", Failed: c.failed}}
		page, err := f.queries().List(t.Context(), project, requestlog.Query{})
		if err != nil {
			t.Fatal(err)
		}
		got := page.Calls[0]
		if got.Outcome != c.want || (got.Phase != nil) != (c.entry.IngestionID != nil) {
			t.Errorf("%+v: outcome %s, phase %v, want %s", c.entry, got.Outcome, got.Phase, c.want)
		}
	}
}

// From the moment of a deletion, a call has neither its bodies nor the source id in its path; and without a deletion
// its bodies go with their time.
func TestGet_WhatIsNotReturned(t *testing.T) {
	days := metering.DefaultPlanTerms().Of(metering.SelfHosted).RetentionDays
	for _, c := range []struct {
		name    string
		deleted bool
		at      time.Time
		path    string
		bodies  bool
	}{
		{"kept", false, noon.AddDate(0, 0, days).Add(-1), "/api/v1/data-points/secret", true},
		{"expired", false, noon.AddDate(0, 0, days), "/api/v1/data-points/secret", false},
		{"deleted", true, noon, "/api/v1/data-points/{sourceId}", false},
	} {
		f := &logFake{deleted: c.deleted, call: requestlog.Call{
			Entry: requestlog.Entry{
				Endpoint: "DELETE /api/v1/data-points/{sourceId}", Path: "/api/v1/data-points/secret", DataPoint: &point,
				ReceivedAt: noon, Status: 202,
			},
			Plan: string(metering.SelfHosted), IDs: []uuid.UUID{point}, Payload: &requestlog.Payload{Request: []byte("secret")},
		}}
		got, err := f.queries().Get(t.Context(), project, uuid.UUID{9}, c.at)
		if err != nil {
			t.Fatal(err)
		}
		if got.Path != c.path || got.Logged.Path != c.path {
			t.Errorf("%s: path %s and %s", c.name, got.Path, got.Logged.Path)
		}
		if (got.Logged.Payload != nil) != c.bodies || (got.ExpiresAt != nil) != c.bodies {
			t.Errorf("%s: bodies %v until %v", c.name, got.Logged.Payload, got.ExpiresAt)
		}
	}
}

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

// A date alone in `to` is that day to its end, which is exclusive. The 31 days are measured before.
func TestQueryOf_Windows(t *testing.T) {
	for query, want := range map[string][2]string{
		"":                              {"2026-11-20T09:00:00Z", "2026-11-21T09:00:00Z"},
		"from=2026-11-21":               {"2026-11-21T00:00:00Z", "2026-11-21T09:00:00Z"},
		"to=2026-06-30":                 {"2026-06-30T00:00:00Z", "2026-07-01T00:00:00Z"},
		"to=2026-06-30T00:00Z":          {"2026-06-29T00:00:00Z", "2026-06-30T00:00:00Z"},
		"from=2026-06-30&to=2026-06-30": {"2026-06-30T00:00:00Z", "2026-07-01T00:00:00Z"},
		"from=2026-05-30&to=2026-06-30": {"2026-05-30T00:00:00Z", "2026-07-01T00:00:00Z"},
		"from=2026-06-30T12&to=2026-06-30T00:00:00-12:00": {"2026-06-30T12:00:00Z", "2026-06-30T12:00:00Z"},
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		for _, paged := range []bool{true, false} { // a list, a histogram
			now := time.Date(2026, time.November, 21, 9, 0, 0, 0, time.UTC)
			q, err := why.CallQueryOf(values, now, apitest.Principal.Project, paged)
			if err != nil {
				t.Fatal(query, err)
			}
			if got := [2]string{q.From.Format(time.RFC3339Nano), q.To.Format(time.RFC3339Nano)}; got != want {
				t.Errorf("%s: %s, want %s", query, got, want)
			}
		}
	}
}
