package readapi

import (
	"net/http"

	"github.com/labstack/echo/v4"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/datapoints"
)

func statusOf(s datapoints.Status) client.IngestionStatus {
	return client.IngestionStatus{
		Status: s.Status, Settled: s.Settled, Blocked: s.Blocked,
		Readiness: client.Readiness{
			Raw: int(s.Readiness.Raw), Comprehension: int(s.Readiness.Comprehension),
			Consolidation: int(s.Readiness.Consolidation), Failed: int(s.Readiness.Failed),
		},
		Failure: (*client.Failure)(s.Failure),
	}
}

type statusAPI struct {
	queries statuses
}

// get is GET /api/v1/ingest/:ingestionId.
func (a statusAPI) get(c echo.Context) error {
	id, err := httpx.PathUUID(c, "ingestionId")
	if err != nil {
		return err
	}
	found, err := a.queries.Status(c.Request().Context(), httpx.Principal(c).Project, id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, statusOf(found))
}
