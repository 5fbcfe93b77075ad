package httpx_test

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"go.uber.org/goleak"

	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/readapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves an edge whose routes are what register adds.
func start(t *testing.T, cfg httpx.Config, register func(e *echo.Echo)) (*apitest.Client, *runtest.Output) {
	t.Helper()
	said := &runtest.Output{}
	cfg.Log = slog.New(slog.NewJSONHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if cfg.Keys == nil {
		cfg.Keys = apitest.Keys{}
	}
	cfg.URLs = apitest.URLs
	e := httpx.New(cfg)
	if register != nil {
		register(e)
	}
	return apitest.StartEdge(t, readapi.OpenAPI, e), said
}

// at registers one handler on a route of the contract.
func at(method, path string, h echo.HandlerFunc) func(e *echo.Echo) {
	return func(e *echo.Echo) { e.Add(method, "/api/v1"+path, h) }
}

func noContent(c echo.Context) error { return c.NoContent(http.StatusNoContent) }
