package writeapi

import (
	"cmp"
	"net/http"

	"github.com/labstack/echo/v4"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/httpx"
)

type ingestAPI struct {
	commands ingester
}

// single is POST /api/v1/ingest.
func (a ingestAPI) single(c echo.Context) error {
	send, err := httpx.Decode(c, httpx.IngestLimit, singleNames, singleOf)
	if err != nil {
		noteItems(c, send.items...)
		return err
	}
	in := send.items[0]
	in.Private = in.Private || httpx.InnerOf(c).Private
	receipt, err := a.commands.Ingest(c.Request().Context(), callOf(c), in, send.key)
	if err != nil {
		noteItems(c, in)
		return err
	}
	noteSend(c, in.Identity, receipt.IngestionID, receipt.CreditTenths)
	noteSources(c, receipt.SourceID)
	return c.JSON(receiptStatus(receipt.Status), receiptView(receipt))
}

// send is the body of a send, single or batch, with its idempotency key, "" for none.
type send struct {
	items []commands.DataPoint
	key   string
}

// singleNames are the names of a single send.
var singleNames = fields.DataPointNames.With("idempotencyKey")

// singleOf reads the body of a single send: a data point and its idempotency key.
func singleOf(f fields.Object) (send, error) {
	in, err := fields.DataPointOf(f)
	return send{[]commands.DataPoint{in}, keyOf(f)}, cmp.Or(err, checkSize("the content", len(in.Content)))
}

// keyOf returns the idempotency key, "" for none.
func keyOf(f fields.Object) string {
	if key := f.Name("idempotencyKey", 1, limit.IdempotencyKey); key != nil {
		return *key
	}
	return ""
}

// checkSize refuses content over the limit; bytes is its size in UTF-8.
func checkSize(what string, size int) error {
	if size <= limit.ContentBytes {
		return nil
	}
	return fault.New(fault.TooLarge, fault.CodeContentTooLarge,
		"%s has %d bytes in UTF-8: want at most %d", what, size, limit.ContentBytes).
		With("limitBytes", limit.ContentBytes).With("bytes", size)
}

// receiptStatus returns 202 if something is queued, 200 if nothing is left to do.
func receiptStatus(status string) int {
	if status == commands.StatusQueued {
		return http.StatusAccepted
	}
	return http.StatusOK
}

// retry is POST /api/v1/ingest/:ingestionId/retry. It takes no body.
func (a ingestAPI) retry(c echo.Context) error {
	id, err := httpx.PathUUID(c, "ingestionId")
	if err != nil {
		return err
	}
	if err := a.commands.Retry(c.Request().Context(), callOf(c), id); err != nil {
		return err
	}
	httpx.NoteOf(c).IngestionID = id
	return c.JSON(http.StatusAccepted, client.Retried{IngestionID: id.String(), Status: commands.StatusQueued})
}
