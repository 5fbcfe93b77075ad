package httpx_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/labstack/echo/v4"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/httpx"
	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
)

func TestCalls_ServedAtOnce(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	api, _ := start(t, httpx.Config{MaxRequests: 2, MaxOfOne: 2}, func(e *echo.Echo) {
		e.POST("/api/v1/ingest", func(c echo.Context) error {
			entered <- struct{}{}
			<-leave
			return c.NoContent(http.StatusNoContent)
		})
		e.POST("/api/v1/recall", noContent)
		e.GET("/healthz", noContent)
	})
	done := make(chan apitest.Response)
	for range 2 {
		go func() { done <- api.Call(http.MethodPost, "/api/v1/ingest", apitest.ProjectKey, "") }()
		<-entered
	}
	for range 3 {
		got := api.Call(http.MethodPost, "/api/v1/recall", apitest.ProjectKey, "")
		got.Want(t, 503, `"code":"service-unavailable"`)
		if got.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	api.Call(http.MethodGet, "/healthz", "", "").Want(t, 204)
	close(leave)
	for range 2 {
		(<-done).Want(t, 204)
	}
	api.Call(http.MethodPost, "/api/v1/recall", apitest.ProjectKey, "").Want(t, 204)
}

// Whatever id is percent-encoded into a path comes out as it was, through the real server and
// router.
func TestPath_AnyID(t *testing.T) {
	var got string
	api, _ := start(t, httpx.Config{}, at(http.MethodDelete, "/data-points/:sourceId", func(c echo.Context) error {
		id, err := httpx.PathParam(c, "sourceId")
		got = id
		if err != nil {
			return err
		}
		return c.NoContent(http.StatusNoContent)
	}))
	rapid.Check(t, func(r *rapid.T) {
		id := rapid.OneOf(rapid.String(), rapid.StringMatching(`[%/@ +:*?#.a2Ff]{1,12}`)).Draw(r, "id")
		if id == "" {
			return
		}
		res := api.Call(http.MethodDelete, "/api/v1/data-points/"+url.PathEscape(id), apitest.ProjectKey, "")
		switch {
		case strings.ContainsRune(id, 0) || !utf8.ValidString(id):
			if res.Status != 400 {
				r.Errorf("%q: status %d", id, res.Status)
			}
		case res.Status != 204 || got != id:
			r.Errorf("%q came out as %q, status %d", id, got, res.Status)
		}
	})
}
