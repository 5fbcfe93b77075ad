package writeapi

import (
	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/httpx"
)

// noteSend notes what was sent, for the request log.
func noteSend(c echo.Context, author *string, ingestion uuid.UUID, creditTenths int64) {
	note := httpx.NoteOf(c)
	note.IngestionID, note.CreditTenths = ingestion, creditTenths
	if author != nil {
		note.Identity = *author
	}
}

// noteSources notes the data points that a call carries.
func noteSources(c echo.Context, sourceIDs ...string) {
	note, namespace := httpx.NoteOf(c), httpx.Principal(c).Project.Namespace
	for _, id := range sourceIDs {
		note.IDs = append(note.IDs, stream.DataPointID(namespace, id))
	}
}

// noteItems records what was read of a refused send.
func noteItems(c echo.Context, items ...commands.DataPoint) {
	for _, in := range items {
		switch {
		case in.ID != nil:
			noteSources(c, *in.ID)
		case in.Content != "":
			noteSources(c, datapoint.Digest([]byte(in.Content)))
		}
	}
	if author := authorOf(items); author != nil {
		httpx.NoteOf(c).Identity = *author
	}
}

// authorOf returns the author that all items share, nil if they differ.
func authorOf(items []commands.DataPoint) *string {
	if len(items) == 0 || items[0].Identity == nil {
		return nil
	}
	for _, in := range items[1:] {
		if in.Identity == nil || *in.Identity != *items[0].Identity {
			return nil
		}
	}
	return items[0].Identity
}
