package writeapi

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/httpx"
)

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
func checkDistinct(items []commands.DataPoint) error {
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
