package readapi

import (
	"net/http"

	"github.com/labstack/echo/v4"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/datapoints"
)

// status is the JSON of the status of a send.
type status struct {
	// Status is of this send only; the other members but Failure are of its project.
	Status string `json:"status"`
	// Settled is true if no send of the project is open or failed, Blocked if only failed ones remain.
	Settled   bool      `json:"settled"`
	Blocked   bool      `json:"blocked"`
	Readiness readiness `json:"readiness"`
	// Failure is null unless Status is failed.
	Failure *client.Failure `json:"failure"`
}

// readiness counts the sends of a project.
type readiness struct {
	Raw           int64 `json:"raw"`
	Comprehension int64 `json:"comprehension"`
	Consolidation int64 `json:"consolidation"`
	Failed        int64 `json:"failed"`
}

func statusOf(s datapoints.Status) status {
	return status{
		Status: s.Status, Settled: s.Settled, Blocked: s.Blocked,
		Readiness: readiness(s.Readiness), Failure: (*client.Failure)(s.Failure),
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
