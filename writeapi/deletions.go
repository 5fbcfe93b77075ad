package writeapi

import (
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/httpx"
)

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
func deletionOf(f fields.Object) (ids []string, err error) {
	if !f.Has("ids") {
		return nil, fields.Invalid("ids", "is required")
	}
	if kind := rawjson.KindOf(f.Raw("ids")); kind != rawjson.Array {
		return nil, fields.Invalid("ids", "want an array, got %s", kind)
	}
	seen := map[string]bool{}
	for i, element := range rawjson.Elements(f.Raw("ids")) {
		at := fmt.Sprintf("ids[%d]", i)
		id, ok := rawjson.Text(element)
		if !ok {
			return nil, fields.Invalid(at, "want a string, got %s", rawjson.KindOf(element))
		}
		if wrong := fields.CheckName(id, 1, limit.SourceID); wrong != nil {
			return nil, fields.Invalid(at, "%v", wrong)
		}
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
		if len(ids) > limit.DeletionIDs {
			return nil, fault.New(fault.Invalid, fault.CodeInvalidDeletion, "there are more than %d ids", limit.DeletionIDs)
		}
	}
	if len(ids) == 0 {
		return nil, fault.New(fault.Invalid, fault.CodeInvalidDeletion, "there are no ids: want 1 to %d", limit.DeletionIDs)
	}
	return ids, nil
}
