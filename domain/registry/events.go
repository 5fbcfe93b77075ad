// Package registry is the root of a log: its id, its organizations, and the numbers and slugs of all projects.
package registry

import (
	"time"

	"github.com/google/uuid"
)

// LogOpened is the first event of a log. LogID tells this log from any other, also from an older copy that went on by itself.
type LogOpened struct {
	LogID    uuid.UUID `json:"logId"`
	OpenedAt time.Time `json:"openedAt"`
}

// EventType implements event.Event.
func (LogOpened) EventType() string { return "registry.log-opened.v1" }

// OrganizationCreated creates an organization.
type OrganizationCreated struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	Name           string    `json:"name"`
	CreatedAt      time.Time `json:"createdAt"`
}

// EventType implements event.Event.
func (OrganizationCreated) EventType() string { return "registry.organization-created.v1" }

// ProjectCreated creates a project: this append decides its number (from 1, across the log) and its slug (within the organization).
type ProjectCreated struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	ProjectID      uuid.UUID `json:"projectId"`
	Number         int64     `json:"number"`
	Slug           string    `json:"slug"`
	Name           string    `json:"name"`
	// Namespace is what the ids of the project's sources, identities and keys are derived in.
	Namespace uuid.UUID `json:"namespace"`
	CreatedAt time.Time `json:"createdAt"`
}

// EventType implements event.Event.
func (ProjectCreated) EventType() string { return "registry.project-created.v1" }
