package metering_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/metering"
)

func TestCharged_FirstVersionCountsNoEvents(t *testing.T) {
	newer, payload, err := metering.UpCharged(json.RawMessage(`{"projectId":"51f2c1a8-2a0f-4e0b-9f5d-0a1f1a3c6c11",
		"month":"2026-11","recalls":6,"recallTenths":7,"seen":[],"at":"2026-11-05T09:30:00.000001Z"}`))
	if err != nil || newer != "usage.charged.v2" {
		t.Fatalf("%s, %v", newer, err)
	}
	var got metering.Charged
	if err := json.Unmarshal(payload, &got); err != nil {
		t.Fatal(err)
	}
	want := got
	want.Month, want.Recalls, want.RecallTenths, want.WebhookEvents, want.WebhookTenths = "2026-11", 6, 7, 0, 0
	if diff := cmp.Diff(want, got); diff != "" || got.ProjectID.String() != "51f2c1a8-2a0f-4e0b-9f5d-0a1f1a3c6c11" {
		t.Errorf("project %s (-want +got):\n%s", got.ProjectID, diff)
	}
	if _, _, err := metering.UpCharged(json.RawMessage(`[]`)); err == nil {
		t.Error("a payload that is none is read")
	}
}
