package registry_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/registry"
)

func TestOrganizationsOfTheFirstVersionAreSelfHosted(t *testing.T) {
	newer, payload, err := registry.UpOrganizationCreated(json.RawMessage(
		`{"organizationId":"8fdbb345-5e46-4611-85f4-314fdff5910c","name":"Acme","createdAt":"2026-11-05T09:30:00.000001Z"}`))
	if err != nil || newer != "registry.organization-created.v2" {
		t.Fatalf("%s, %v", newer, err)
	}
	var got registry.OrganizationCreated
	if err := json.Unmarshal(payload, &got); err != nil {
		t.Fatal(err)
	}
	want := registry.OrganizationCreated{
		OrganizationID: uuid.MustParse("8fdbb345-5e46-4611-85f4-314fdff5910c"), Name: "Acme", Plan: metering.SelfHosted,
		CreatedAt: time.Date(2026, 11, 5, 9, 30, 0, 1000, time.UTC),
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if _, _, err := registry.UpOrganizationCreated(json.RawMessage(`[]`)); err == nil {
		t.Error("a payload that is none is read")
	}
}
