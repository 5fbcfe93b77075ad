package httpx_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
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

// Stream answers what c.JSON would.
func TestStream_SameAsWhole(t *testing.T) {
	type item struct {
		Text string          `json:"text"`
		More json.RawMessage `json:"more,omitempty"`
	}
	type list struct {
		Said  string  `json:"said"`
		Items []item  `json:"items"`
		End   *string `json:"end"`
	}
	for name, items := range map[string][]item{
		"none": {}, "one": {{Text: "<a>"}}, "some": {{Text: "a"}, {Text: `"items":[]`, More: json.RawMessage(`{"x":[]}`)}, {}},
		"long": {{Text: strings.Repeat("x", 1<<20)}, {Text: "\u2028 é"}},
	} {
		t.Run(name, func(t *testing.T) {
			shell := list{Said: `"items":[] <&>`, Items: []item{}}
			api, _ := start(t, httpx.Config{}, func(e *echo.Echo) {
				e.GET("/api/v1/usage", func(c echo.Context) error {
					whole := shell
					whole.Items = items
					return c.JSON(http.StatusOK, whole)
				})
				e.GET("/api/v1/audiences", func(c echo.Context) error {
					return httpx.Stream(c, shell, "items", append([]item{}, items...))
				})
			})
			whole := api.Call(http.MethodGet, "/api/v1/usage", apitest.ProjectKey, "")
			streamed := api.Call(http.MethodGet, "/api/v1/audiences", apitest.ProjectKey, "")
			if whole.Status != 200 || streamed.Status != 200 || streamed.Body != whole.Body ||
				streamed.Header.Get("Content-Type") != whole.Header.Get("Content-Type") {
				t.Errorf("%d %.200s, want %.200s", streamed.Status, streamed.Body, whole.Body)
			}
		})
	}
}

func TestStream_ShellWithoutList(t *testing.T) {
	api, _ := start(t, httpx.Config{}, func(e *echo.Echo) {
		e.GET("/api/v1/usage", func(c echo.Context) error {
			return httpx.Stream(c, map[string]any{"items": nil}, "items", []int{1})
		})
	})
	api.Call(http.MethodGet, "/api/v1/usage", apitest.ProjectKey, "").Want(t, 500)
}

// An error of the first item is answered as one. An error of a later one breaks the connection, so
// that no client takes a part for all.
func TestStreamSeq_Errors(t *testing.T) {
	for name, c := range map[string]struct {
		good   int
		status int
	}{"at once": {0, 503}, "later": {3, 0}} {
		t.Run(name, func(t *testing.T) {
			api, _ := start(t, httpx.Config{}, func(e *echo.Echo) {
				e.GET("/api/v1/usage", func(c2 echo.Context) error {
					return httpx.StreamSeq(c2, map[string]any{"items": []string{}}, "items", func(yield func(string, error) bool) {
						for range c.good {
							if !yield(strings.Repeat("x", 1<<20), nil) {
								return
							}
						}
						yield("", fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "no more"))
					})
				})
			})
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL()+"/api/v1/usage", http.NoBody)
			runtest.Must(t, err)
			req.Header.Set("Authorization", "Bearer "+apitest.ProjectKey)
			res, err := http.DefaultClient.Do(req)
			runtest.Must(t, err)
			defer func() { _ = res.Body.Close() }()
			_, err = io.ReadAll(res.Body)
			if c.status > 0 && (err != nil || res.StatusCode != c.status) || c.status == 0 && err == nil {
				t.Errorf("status %d, %v", res.StatusCode, err)
			}
		})
	}
}
