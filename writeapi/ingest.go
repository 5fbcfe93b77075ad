package writeapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/domain/webhook"
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
	items []ingest.DataPoint
	key   string
}

// singleNames are the names of a single send.
var singleNames = fields.DataPointNames.With("idempotencyKey")

// singleOf reads the body of a single send: a data point and its idempotency key.
func singleOf(f fields.Object) (send, error) {
	in, err := fields.DataPointOf(f)
	return send{[]ingest.DataPoint{in}, keyOf(f)}, cmp.Or(err, checkSize("the content", len(in.Content)))
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
	if status == ingest.StatusQueued {
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
	return c.JSON(http.StatusAccepted, client.Retried{IngestionID: id.String(), Status: ingest.StatusQueued})
}

// batch is POST /api/v1/ingest/batch.
func (a ingestAPI) batch(c echo.Context) error {
	batch, err := httpx.Decode(c, httpx.IngestLimit, batchNames, batchOf)
	if err != nil {
		noteItems(c, batch.items...)
		return err
	}
	httpx.NoteItems(c, len(batch.items))
	receipt, err := a.commands.IngestBatch(c.Request().Context(), callOf(c), batch.items, batch.key)
	if err != nil {
		noteItems(c, batch.items...)
		return err
	}
	noteSend(c, authorOf(batch.items), receipt.IngestionID, receipt.CreditTenths)
	for _, item := range receipt.Items {
		noteSources(c, item.SourceID)
	}
	return c.JSON(receiptStatus(receipt.Status), batchReceiptOf(receipt))
}

// batchNames are the names of a batch, without those of its items.
var batchNames = fields.NewNames("items", "idempotencyKey")

// batchOf reads the body of a batch. The fault is invalid-ingestion for an empty batch, more than
// 1,000 items or a repeated source id, content-too-large for more than 16 MiB of content, and
// invalid-request, with the item's position, for an item that is wrong. With a fault comes what can be read of the
// items, at most 1,000: the request log holds the body, and must find it by each of them.
func batchOf(f fields.Object) (batch send, err error) {
	batch.key = keyOf(f)
	if !f.Has("items") {
		f.Problem("items", "is required")
		return batch, nil
	}
	count, size := 0, 0
	for i, element := range rawjson.Elements(f.Raw("items")) {
		if count++; count > limit.BatchItems {
			continue
		}
		item, wrong := fields.Decode(element, fmt.Sprintf("items[%d]", i), fields.DataPointNames, fields.DataPointOf)
		err = cmp.Or(err, itemFault(wrong, i))
		batch.items = append(batch.items, item)
		size += len(item.Content)
	}
	switch kind := rawjson.KindOf(f.Raw("items")); {
	case kind != rawjson.Array:
		f.Problem("items", "want an array, got %s", kind)
	case count == 0:
		return batch, fault.New(fault.Invalid, fault.CodeInvalidIngestion,
			"the batch has no items: want 1 to %d", limit.BatchItems)
	case count > limit.BatchItems:
		return batch, fault.New(fault.Invalid, fault.CodeInvalidIngestion,
			"the batch has %d items: want 1 to %d", count, limit.BatchItems)
	}
	if err = cmp.Or(f.Err(), err, checkSize("the content of the batch", size)); err != nil {
		return batch, err
	}
	return batch, checkDistinct(batch.items)
}

// checkDistinct refuses a source id that occurs twice, also one derived from the content.
func checkDistinct(items []ingest.DataPoint) error {
	first := make(map[string]int, len(items))
	for i, item := range items {
		id := datapoint.Digest([]byte(item.Content))
		if item.ID != nil {
			id = *item.ID
		}
		if before, ok := first[id]; ok {
			return fault.New(fault.Invalid, fault.CodeInvalidIngestion,
				"items[%d] repeats the source id of items[%d]: %q", i, before, id).
				With("item", i)
		}
		first[id] = i
	}
	return nil
}

// itemFault adds the position of the item to its fault.
func itemFault(err error, ordinal int) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.With("item", ordinal)
	}
	return err
}

type deletionAPI struct {
	commands deleter
}

// send is DELETE /api/v1/ingest/:ingestionId.
func (a deletionAPI) send(c echo.Context) error {
	id, err := httpx.PathUUID(c, "ingestionId")
	if err != nil {
		return err
	}
	if err := a.commands.DeleteSend(c.Request().Context(), callOf(c), id); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// one is DELETE /api/v1/data-points/:sourceId.
func (a deletionAPI) one(c echo.Context) error {
	id, err := httpx.PathParam(c, "sourceId")
	if err != nil {
		return err
	}
	if err := fields.CheckName(id, 1, limit.SourceID); err != nil {
		return fields.Invalid("sourceId", "%v", err)
	}
	noteSources(c, id)
	receipt, err := a.commands.DeleteDataPoints(c.Request().Context(), callOf(c), []string{id})
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, deletionReceiptView(receipt))
}

// bulk is POST /api/v1/data-points/delete.
func (a deletionAPI) bulk(c echo.Context) error {
	ids, err := httpx.Decode(c, limit.BulkDeletionBody, deletionNames, deletionOf)
	noteSources(c, ids...)
	if err != nil {
		return err
	}
	receipt, err := a.commands.DeleteDataPoints(c.Request().Context(), callOf(c), ids)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, deletionReceiptView(receipt))
}

// deletionNames are the names of a bulk deletion.
var deletionNames = fields.NewNames("ids")

// deletionOf reads the ids of a bulk deletion: each once, in the order of its first mention. The
// fault is invalid-deletion for none or more than 1,000 of them.
func deletionOf(f fields.Object) ([]string, error) {
	if !f.Has("ids") {
		return nil, fields.Invalid("ids", "is required")
	}
	ids, err := f.DistinctNames("ids", limit.SourceID, limit.DeletionIDs)
	switch {
	case err != nil:
		return nil, err
	case len(ids) > limit.DeletionIDs:
		return nil, fault.New(fault.Invalid, fault.CodeInvalidDeletion, "there are more than %d ids", limit.DeletionIDs)
	case len(ids) == 0:
		return nil, fault.New(fault.Invalid, fault.CodeInvalidDeletion, "there are no ids: want 1 to %d", limit.DeletionIDs)
	}
	return ids, nil
}

// eventReceiver ingests events of webhooks.
type eventReceiver interface {
	ReceiveEvent(ctx context.Context, call engine.Call, eventID string, body []byte) (ingest.EventReceipt, error)
}

type webhookAPI struct {
	commands eventReceiver
}

// receive is POST /api/v1/webhooks/:webhookId/:token.
func (a webhookAPI) receive(c echo.Context) error {
	body, err := httpx.RawBody(c, limit.WebhookBody, fault.New(fault.TooLarge, fault.CodeWebhookBodyTooLarge,
		"the event has more than %d bytes", limit.WebhookBody).With("limitBytes", limit.WebhookBody))
	if err != nil {
		return err
	}
	requestID := httpx.RequestID(c)
	view := client.ReceivedEvent{
		EventID: httpx.EventID(requestID), RequestID: requestID.String(), Verdict: client.VerdictIngested,
	}
	receipt, err := a.commands.ReceiveEvent(c.Request().Context(), callOf(c), view.EventID,
		webhook.Plain(c.Request().Header.Get(echo.HeaderContentType), body))
	if receipt.SourceID != "" {
		noteSources(c, receipt.SourceID)
	}
	if err != nil {
		return err
	}
	note := httpx.NoteOf(c)
	note.CreditTenths = receipt.CreditTenths
	if receipt.DroppedBy != "" {
		view.Verdict, view.DroppedBy = client.VerdictDropped, &receipt.DroppedBy
		note.Verdict, note.DroppedBy = view.Verdict, receipt.DroppedBy
		return c.JSON(http.StatusOK, view)
	}
	note.Verdict = view.Verdict
	noteSend(c, nil, receipt.Send.IngestionID, receipt.CreditTenths)
	view.IngestionID, view.DataPointID = new(receipt.Send.IngestionID.String()), &receipt.SourceID
	view.Unchanged = receipt.Send.Unchanged
	return c.JSON(http.StatusAccepted, view)
}

// receiptView is the JSON of an ingest.Receipt.
type receiptView struct {
	ProjectID    int64     `json:"projectId"`
	IngestionID  uuid.UUID `json:"ingestionId"`
	SourceID     string    `json:"sourceId"`
	Status       string    `json:"status"`
	Unchanged    *bool     `json:"unchanged"`
	CreditTenths int64     `json:"-"`
}

// batchReceiptView is the JSON of an ingest.BatchReceipt.
type batchReceiptView struct {
	ProjectID   int64                `json:"projectId"`
	IngestionID uuid.UUID            `json:"ingestionId"`
	Status      string               `json:"status"`
	Unchanged   *bool                `json:"unchanged"`
	Items       []client.ItemReceipt `json:"items"`
}

func batchReceiptOf(r ingest.BatchReceipt) batchReceiptView {
	v := batchReceiptView{
		ProjectID: r.ProjectID, IngestionID: r.IngestionID, Status: r.Status, Unchanged: r.Unchanged,
		Items: make([]client.ItemReceipt, len(r.Items)),
	}
	for i, item := range r.Items {
		v.Items[i] = client.ItemReceipt(item)
	}
	return v
}

// deletionReceiptView is the JSON of an ingest.DeletionReceipt.
type deletionReceiptView struct {
	OperationID uuid.UUID `json:"operationId"`
	IDs         []string  `json:"ids"`
}

func identityStatusesOf(list []identities.IdentityStatus) []client.BulkStatus {
	views := make([]client.BulkStatus, len(list))
	for i, s := range list {
		views[i] = client.BulkStatus(s)
	}
	return views
}

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
func noteItems(c echo.Context, items ...ingest.DataPoint) {
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
func authorOf(items []ingest.DataPoint) *string {
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
