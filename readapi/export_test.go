package readapi

import (
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/auth"
)

// RegisterEstimate adds the route of estimates with another wait of long ones.
func RegisterEstimate(e *echo.Echo, r rooms, wait time.Duration) {
	small, long := admission.SmallEstimates, admission.Estimates
	small.Wait, long.Wait = wait, wait
	e.POST(auth.Prefix+"/ingest/estimate", newEstimateAPI(r, small, long).post)
}
