package readapi

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/httpx"
)

// The statuses of a send.
const (
	StatusProcessing = "processing"
	StatusCompleted  = "completed"
	StatusFailed     = "failed"
)

// Status is how far a send and its project are.
type Status struct {
	// Status is of this send only.
	Status string `json:"status"`
	// Settled is true when nothing of the project is under way and nothing failed; Blocked when only failed sends remain.
	Settled   bool      `json:"settled"`
	Blocked   bool      `json:"blocked"`
	Readiness Readiness `json:"readiness"`
	// Failure is there when Status is failed.
	Failure *Failure `json:"failure"`
}

// Readiness counts the sends of a project.
type Readiness struct {
	Raw           int64 `json:"raw"`
	Comprehension int64 `json:"comprehension"`
	Consolidation int64 `json:"consolidation"`
	Failed        int64 `json:"failed"`
}

// Failure says why a send stopped.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
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
	status, err := a.queries.Status(c.Request().Context(), httpx.Principal(c).Project, id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, status)
}
