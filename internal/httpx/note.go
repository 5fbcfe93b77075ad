package httpx

import (
	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
)

// Note is what a handler knows about its call for the request log. Fields that it does not set are
// unknown. Set each field as soon as its value is known, so that refused calls have it too.
type Note struct {
	// Identity is the identity that the call is about or answers as.
	Identity string
	// IngestionID is the send that the call made or queued again.
	IngestionID uuid.UUID
	// CreditTenths is what the call was charged.
	CreditTenths int64
	// IDs are the data points that the call contained or returned. Their deletion blanks the bodies
	// of the call.
	IDs []uuid.UUID
	// Verdict is what the receiver decided on an event of a webhook, DroppedBy the filter that dropped it.
	Verdict, DroppedBy string
	// Hits are the results of a recall, in the order of ranks.
	Hits []uuid.UUID
}

// NoteOf returns the note of a call. The handler sets its fields.
func NoteOf(c echo.Context) *Note { return &stateOf(c).note }
