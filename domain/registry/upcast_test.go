package registry_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
)

func TestUpcast_FirstOrganizationVersion(t *testing.T) {
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

func TestProjectCreated_FirstVersionIsNotKeyed(t *testing.T) {
	newer, payload, err := registry.UpProjectCreated(
		json.RawMessage(`{"organizationId":"8fdbb345-5e46-4611-85f4-314fdff5910c",
		"projectId":"51f2c1a8-2a0f-4e0b-9f5d-0a1f1a3c6c11","number":3,"slug":"default","name":"Default",
		"namespace":"7a0e0f63-58a4-4d8a-8f0c-6f0f6a0f3b11","createdAt":"2026-11-05T09:30:00.000001Z"}`))
	if err != nil || newer != "registry.project-created.v2" {
		t.Fatalf("%s, %v", newer, err)
	}
	var got registry.ProjectCreated
	if err := json.Unmarshal(payload, &got); err != nil {
		t.Fatal(err)
	}
	want := registry.ProjectCreated{
		OrganizationID: uuid.MustParse(
			"8fdbb345-5e46-4611-85f4-314fdff5910c",
		), ProjectID: uuid.MustParse("51f2c1a8-2a0f-4e0b-9f5d-0a1f1a3c6c11"),
		Number: 3, Slug: "default", Name: "Default", Namespace: stream.Namespace{ID: uuid.MustParse("7a0e0f63-58a4-4d8a-8f0c-6f0f6a0f3b11")},
		CreatedAt: time.Date(2026, 11, 5, 9, 30, 0, 1000, time.UTC),
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if _, _, err := registry.UpProjectCreated(json.RawMessage(`[]`)); err == nil {
		t.Error("a payload that is none is read")
	}
}
