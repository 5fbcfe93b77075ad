package todo

import "github.com/google/uuid"

// Reservation is what a try of a send has reserved of its limits.
type Reservation struct {
	SendID, Try uuid.UUID
}
