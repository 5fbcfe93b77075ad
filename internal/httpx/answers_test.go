package httpx_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/httpx"
)

func TestAnswers_InFlight(t *testing.T) {
	answers := allowance.New(allowance.Config{Total: 400, Share: 100, Wait: time.Millisecond, Waiters: 4, Refusal: "full"})
	entered, leave := make(chan struct{}), make(chan struct{})
	api, _ := start(t, httpx.Config{Answers: answers}, func(e *echo.Echo) {
		e.GET("/api/v1/usage", func(c echo.Context) error {
			if err := allowance.Reserve(c.Request().Context(), 100); err != nil {
				return err
			}
			entered <- struct{}{}
			<-leave
			return c.NoContent(http.StatusNoContent)
		})
		e.GET("/api/v1/audiences", func(c echo.Context) error { return allowance.Reserve(c.Request().Context(), 1) })
		e.POST("/api/v1/recall", noContent)
	})
	done := make(chan apitest.Response)
	go func() { done <- api.Call(http.MethodGet, "/api/v1/usage", apitest.ProjectKey, "") }()
	<-entered
	if n := answers.InUse(); n != 100 {
		t.Errorf("%d bytes in flight, want a quarter", n)
	}
	refused := api.Call(http.MethodGet, "/api/v1/audiences", apitest.ProjectKey, "")
	refused.Want(t, 503, `"code":"service-unavailable"`)
	if refused.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	api.Call(http.MethodPost, "/api/v1/recall", apitest.ProjectKey, "").Want(t, 204)
	close(leave)
	(<-done).Want(t, 204)
	if n := answers.InUse(); n != 0 {
		t.Errorf("%d bytes in flight after the answer", n)
	}
}
