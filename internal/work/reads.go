package work

import "github.com/google/uuid"

// ReadsDay is a day of the read records of a project.
type ReadsDay struct {
	ProjectID, OrganizationID uuid.UUID
	// Day is in UTC, as stream.ReadsName has it.
	Day string
}
