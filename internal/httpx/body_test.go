package httpx_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/httpx"
)

// echoBody answers with how long the body is.
func echoBody(limit int64) echo.HandlerFunc {
	return func(c echo.Context) error {
		body, err := httpx.Body(c, limit)
		if err != nil {
			return err
		}
		return c.JSON(http.StatusOK, map[string]int{"length": len(body)})
	}
}

// nested is an array n deep.
func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestBodies_Accepted(t *testing.T) {
	api, _ := start(t, httpx.Config{}, at(http.MethodPost, "/ingest", echoBody(30000)))
	for _, c := range []struct {
		name, body, header string
		status             int
		says               string
	}{
		{"object", `{"a":1}`, "", 200, `"length":7`},
		{"space around", " \n{} \t", "", 200, `"length":6`},
		{"empty", "", "", 400, "the body is empty"},
		{"space only", "  ", "", 400, "invalid-request"},
		{"not JSON", "{a:1}", "", 400, "invalid-request"},
		{"cut off", `{"a":`, "", 400, "invalid-request"},
		{"more after the value", `{} {}`, "", 400, "invalid-request"},
		{"comma after the value", `{},`, "", 400, "invalid-request"},
		{"NUL after the value", "{}\x00", "", 400, "invalid-request"},
		{"byte order mark", "\ufeff{}", "", 200, `{"length":2}`},
		{"two byte order marks", "\ufeff\ufeff{}", "", 400, "invalid-request"},
		{"byte order mark alone", "\ufeff", "", 400, "the body is empty"},
		{"not UTF-8", "{\"a\":\"\xff\"}", "", 400, "not UTF-8"},
		{"half of UTF-16 in UTF-8", "{\"a\":\"\xed\xa0\x80\"}", "", 400, "not UTF-8"},
		{"half a surrogate pair", `{"id":"a\ud83d"}`, "", 400, "surrogate"},
		{"half a surrogate pair, nested", `{"metadata":{"a":["\udca1\ud83d"]}}`, "", 400, "surrogate"},
		{"half a surrogate pair in a name", `{"\ud800":1}`, "", 400, "surrogate"},
		{"a surrogate pair", `{"id":"\ud83d\udca1"}`, "", 200, ""},
		{"10,000 deep", nested(10000), "", 200, `"length":20000`},
		{"10,001 deep", nested(10001), "", 400, "exceeded max depth"},
		{"at the limit", `"` + strings.Repeat("x", 29998) + `"`, "", 200, `"length":30000`},
		{"over the limit", `"` + strings.Repeat("x", 29999) + `"`, "", 413, `"data":{"bytes":30001,"limitBytes":30000}`},
		{"no content type", `{}`, "Content-Type:", 200, ""},
		{"charset", `{}`, "Content-Type: application/json; charset=utf-8", 200, ""},
		{"charset in quotes", `{}`, `Content-Type: application/json; charset="UTF-8"`, 200, ""},
		{"charset within UTF-8", `{}`, "Content-Type: application/json; charset=us-ascii", 200, ""},
		{"foreign charset", `{}`, "Content-Type: application/json; charset=iso-8859-1", 415, "iso-8859-1"},
		{"wide charset", `{}`, "Content-Type: application/vnd.x+json; charset=UTF-16LE", 415, "UTF-16LE"},
		{"capitals", `{}`, "Content-Type: Application/JSON", 200, ""},
		{"problem json", `{}`, "Content-Type: application/problem+json", 200, ""},
		{"text", `{}`, "Content-Type: text/plain", 415, "unsupported-media-type"},
		{"form", `{}`, "Content-Type: application/x-www-form-urlencoded", 415, "unsupported-media-type"},
		{"not a media type", `{}`, "Content-Type: ;;", 415, "unsupported-media-type"},
		{"json in the name only", `{}`, "Content-Type: text/jsonp", 415, "unsupported-media-type"},
		{"text, empty", "", "Content-Type: text/plain", 400, "the body is empty"},
		{"packed", `{}`, "Content-Encoding: gzip", 415, "unsupported-media-type"},
		{"identity", `{}`, "Content-Encoding: identity", 200, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var headers []string
			if c.header != "" {
				headers = append(headers, c.header)
			}
			api.Call(http.MethodPost, "/api/v1/ingest", apitest.ProjectKey, c.body, headers...).Want(t, c.status, c.says)
		})
	}
}

// short is longer than what needs no reservation.
const short = 4 * httpx.FreeBody

func TestBodies_UnknownLength(t *testing.T) {
	const limit = 3 * short
	api, _ := start(t, httpx.Config{}, at(http.MethodPost, "/ingest", echoBody(limit)))
	for _, c := range []struct {
		length int
		kind   string
		status int
		says   string
	}{
		{0, "text/plain", 400, "the body is empty"},
		{10, "application/json", 200, `"length":10`},
		{10, "text/plain", 415, "unsupported-media-type"},
		{short, "", 200, fmt.Sprintf(`"length":%d`, short)},
		{short + 1, "", 200, fmt.Sprintf(`"length":%d`, short+1)},
		{limit, "", 200, fmt.Sprintf(`"length":%d`, limit)},
		{limit + 1, "", 413, fmt.Sprintf(`"data":{"limitBytes":%d}`, limit)},
	} {
		t.Run(fmt.Sprint(c.length), func(t *testing.T) {
			body := ""
			if c.length > 0 {
				body = `"` + strings.Repeat("x", c.length-2) + `"`
			}
			// A reader of a type that net/http does not know goes out in chunks.
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api.URL()+"/api/v1/ingest",
				io.MultiReader(strings.NewReader(body)))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+apitest.ProjectKey)
			req.Header.Set("Content-Type", c.kind)
			if c.kind == "" {
				req.Header.Del("Content-Type")
			}
			api.Do(req).Want(t, c.status, c.says)
		})
	}
}

func TestBodies_ReleasedAfterRefusal(t *testing.T) {
	few := admission.Bodies.Of(16 * short)
	few.Wait = time.Millisecond
	bodies := httpx.NewBodies(few)
	api, _ := start(t, httpx.Config{Bodies: bodies}, func(e *echo.Echo) {
		e.POST("/api/v1/ingest", func(c echo.Context) error {
			if _, err := httpx.Body(c, 2*short); err != nil {
				return err
			}
			panic("after the body")
		})
	})
	send := func(body io.Reader) apitest.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api.URL()+"/api/v1/ingest", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+apitest.ProjectKey)
		return api.Do(req)
	}
	long := `"` + strings.Repeat("x", short+1) + `"`
	for range 20 {
		send(strings.NewReader(long)).Want(t, 500)
		send(strings.NewReader(long[1:])).Want(t, 400)
		send(io.MultiReader(strings.NewReader(long))).Want(t, 500)
		send(io.MultiReader(strings.NewReader(long+long))).Want(t, 413)
		send(strings.NewReader(`"`)).Want(t, 400)
	}
	// A short response goes out when its handler has returned, so its share is back.
	if n := bodies.InFlight(); n != 0 {
		t.Errorf("%d bytes are still taken", n)
	}
}

func TestBodies_Compressed(t *testing.T) {
	api, _ := start(t, httpx.Config{}, at(http.MethodPost, "/ingest", echoBody(1000)))
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if _, err := zip.Write(bytes.Repeat([]byte(" "), 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	api.Call(http.MethodPost, "/api/v1/ingest", apitest.ProjectKey, packed.String()[:500], "Content-Encoding: gzip").
		Want(t, 415)
}
