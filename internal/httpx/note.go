package httpx

import (
	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
)

// Note is what a handler knows of its call for the request log. What it does not set stays unknown.
// Set what a call carries as soon as it is known, so that a refused call has it too.
type Note struct {
	// Identity is who the call is about or answers as.
	Identity string
	// IngestionID is the send that the call made or queued again.
	IngestionID uuid.UUID
	// CreditTenths is what the call was charged.
	CreditTenths int64
	// IDs are the data points that the call carried or returned. Their deletion blanks the bodies of
	// the call.
	IDs []uuid.UUID
	// Hits are the results of a recall, in the order of ranks.
	Hits []uuid.UUID
}

// NoteOf returns the note of a call, to be filled in by its handler.
func NoteOf(c echo.Context) *Note { return &stateOf(c).note }
