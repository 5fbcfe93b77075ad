package writeapi

import (
	"errors"
	"fmt"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/internal/httpx"
)

// batch is POST /api/v1/ingest/batch.
func (a ingestAPI) batch(c echo.Context) error {
	body, err := httpx.Body(c, httpx.IngestLimit)
	if err != nil {
		return err
	}
	items, key, err := batchOf(body)
	if err != nil {
		noteItems(c, itemsIn(body)...)
		return err
	}
	receipt, err := a.commands.IngestBatch(c.Request().Context(), callOf(c), items, key)
	if err != nil {
		noteItems(c, items...)
		return err
	}
	noteSend(c, authorOf(items), receipt.IngestionID, receipt.CreditTenths)
	for _, item := range receipt.Items {
		noteSources(c, item.SourceID)
	}
	return c.JSON(receiptStatus(receipt.Status), batchReceiptOf(receipt))
}

// batchNames are the names of a batch, without those of its items.
var batchNames = httpx.NewNames("items", "idempotencyKey")

// batchOf reads the body of a batch. The fault is invalid-ingestion for an empty batch, more than
// 1,000 items or a repeated source id, content-too-large for more than 16 MiB of content, and
// invalid-request, with the item's position, for an item that is wrong.
func batchOf(body []byte) (items []commands.DataPoint, key string, err error) {
	var problems httpx.Problems
	f := httpx.FieldsOf(body, "", &problems, batchNames)
	if err := problems.Err(); err != nil {
		return nil, "", err
	}
	key = keyOf(f)
	texts, err := elementsOf(f, &problems)
	if err != nil {
		return nil, "", err
	}
	if err := problems.Err(); err != nil {
		return nil, "", err
	}
	items = make([]commands.DataPoint, len(texts))
	size := 0
	for i, text := range texts {
		at := fmt.Sprintf("items[%d]", i)
		item := httpx.FieldsOf(text, at, &problems, httpx.DataPointNames)
		if err := problems.Err(); err != nil {
			return nil, "", itemFault(err, i)
		}
		items[i] = dataPointOf(item, &problems)
		if err := problems.Err(); err != nil {
			return nil, "", itemFault(err, i)
		}
		size += len(items[i].Content)
	}
	if err := checkSize("the content of the batch", size); err != nil {
		return nil, "", err
	}
	return items, key, checkDistinct(items)
}

// itemsIn reads what it can of the items of a refused batch: the request log holds its body, and must find it by each
// of them.
func itemsIn(body []byte) (items []commands.DataPoint) {
	var ignored httpx.Problems
	f := httpx.FieldsOf(body, "", &ignored, batchNames)
	if !f.Has("items") {
		return nil
	}
	for _, element := range rawjson.Elements(f.Raw("items")) {
		items = append(items, dataPointOf(httpx.FieldsOf(element, "", &ignored, httpx.DataPointNames), &ignored))
		if len(items) == limit.BatchItems {
			break
		}
	}
	return items
}

// elementsOf returns the JSON of each item. It checks their number before any is decoded.
func elementsOf(f httpx.Fields, problems *httpx.Problems) ([][]byte, error) {
	if !f.Has("items") {
		problems.Add("items", "is required")
		return nil, nil
	}
	var texts [][]byte
	count := 0
	for _, element := range rawjson.Elements(f.Raw("items")) {
		if count++; count <= limit.BatchItems {
			texts = append(texts, element)
		}
	}
	switch kind := rawjson.KindOf(f.Raw("items")); {
	case kind != rawjson.Array:
		problems.Add("items", "want an array, got %s", kind)
	case count == 0:
		return nil, fault.New(fault.Invalid, fault.CodeInvalidIngestion,
			"the batch has no items: want 1 to %d", limit.BatchItems)
	case count > limit.BatchItems:
		return nil, fault.New(fault.Invalid, fault.CodeInvalidIngestion,
			"the batch has %d items: want 1 to %d", count, limit.BatchItems)
	}
	return texts, nil
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
