package httpx_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
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
			runtest.Must(t, err)
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
		runtest.Must(t, err)
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
	runtest.Must(t, errorOf(zip.Write(bytes.Repeat([]byte(" "), 1<<20))))
	runtest.Must(t, zip.Close())
	api.Call(http.MethodPost, "/api/v1/ingest", apitest.ProjectKey, packed.String()[:500], "Content-Encoding: gzip").
		Want(t, 415)
}

// serveOver serves an edge over TCP, as the service does.
func serveOver(t *testing.T, cfg httpx.Config, register func(e *echo.Echo)) (address string) {
	t.Helper()
	cfg.Log, cfg.Keys, cfg.URLs = slog.New(slog.DiscardHandler), apitest.Keys{}, apitest.URLs
	e := httpx.New(cfg)
	if register != nil {
		register(e)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	runtest.Must(t, err)
	server, served := httpx.NewServer(e, cfg.Log), make(chan error, 1)
	go func() { served <- server.Serve(httpx.NewConnections(64).Listen(l)) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
	return l.Addr().String()
}

// zeros are bytes without an end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// A client that writes its whole body before it reads gets the answer to a call that is refused before that.
func TestRefusal_OfBodyThatIsNotRead(t *testing.T) {
	const small = 1 << 20
	register := func(e *echo.Echo) { e.POST("/api/v1/recall", echoBody(small)) }
	limited := func(auth.Principal) (time.Duration, bool) { return time.Second, false }
	unavailable := func(context.Context, admission.Write) (func(), error) {
		return nil, fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "no room")
	}
	for name, c := range map[string]struct {
		cfg          httpx.Config
		key, path    string
		bytes        int64
		status       int
		inBody, head string
	}{
		"a byte too long":    {httpx.Config{}, apitest.ProjectKey, "/recall", small + 1, 413, "content-too-large", ""},
		"far too long":       {httpx.Config{}, apitest.ProjectKey, "/recall", 60 << 20, 413, "content-too-large", ""},
		"an unknown key":     {httpx.Config{}, apitest.UnknownKey, "/recall", 20 << 20, 401, "unauthorized", ""},
		"beyond the rate":    {httpx.Config{Limit: limited}, apitest.ProjectKey, "/recall", 20 << 20, 429, "", "1"},
		"no room":            {httpx.Config{Writes: unavailable}, apitest.ProjectKey, "/ingest/batch", 20 << 20, 503, "no room", "2"},
		"no such route":      {httpx.Config{}, apitest.ProjectKey, "/nothing", 20 << 20, 404, "not-found", ""},
		"as long as is read": {httpx.Config{}, apitest.ProjectKey, "/recall", httpx.DrainBytes, 413, "content-too-large", ""},
	} {
		t.Run(name, func(t *testing.T) {
			address := serveOver(t, c.cfg, register)
			conn := connect(t, address)
			runtest.Must(t, errorOf(fmt.Fprintf(conn, "POST /api/v1%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
				"Content-Length: %d\r\n\r\n", c.path, c.key, c.bytes)))
			if n, err := io.CopyN(conn, zeros{}, c.bytes); err != nil {
				t.Fatalf("the connection broke after %d bytes: %v", n, err)
			}
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			runtest.Must(t, err)
			body, err := io.ReadAll(res.Body)
			runtest.Must(t, errors.Join(err, res.Body.Close()))
			if res.StatusCode != c.status || !strings.Contains(string(body), c.inBody) ||
				res.Header.Get("Retry-After") != c.head {
				t.Errorf("%d, Retry-After %q: %s", res.StatusCode, res.Header.Get("Retry-After"), body)
			}
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && c.bytes > 1<<20+1 {
				t.Errorf("the connection goes on with %v", err)
			}
			res, err = http.Post("http://"+address+"/api/v1"+c.path, "application/json", //nolint:noctx // of the test
				bytes.NewReader(make([]byte, min(c.bytes, 20<<20))))
			if err != nil {
				t.Fatalf("net/http: %v", err)
			}
			if err := res.Body.Close(); err != nil || res.StatusCode != 401 {
				t.Errorf("net/http: %d, %v", res.StatusCode, err)
			}
		})
	}
}

// What is read of such a body is bounded.
func TestRefusal_OfBodyWithoutEnd(t *testing.T) {
	conn := connect(t, serveOver(t, httpx.Config{}, nil))
	const head = "POST /api/v1/recall HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
	runtest.Must(t, errorOf(io.WriteString(conn, head)))
	chunk := "100000\r\n" + strings.Repeat("x", 1<<20) + "\r\n"
	for n := int64(0); ; n += 1 << 20 {
		if _, err := io.WriteString(conn, chunk); err != nil {
			if n < httpx.DrainBytes/2 {
				t.Errorf("the connection ended after %d bytes", n)
			}
			return
		}
		if n > 2*httpx.DrainBytes {
			t.Fatal("the body is read without end")
		}
	}
}

// The time of a call does not run while it waits for room.
func TestWrites_WaitTakesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 5 * time.Second
		l := servePipes(t, httpx.Config{
			Timeout: timeout,
			Writes: func(_ context.Context, w admission.Write) (func(), error) {
				w.Parked()
				pass(8 * time.Minute) // longer than any body may take
				return func() {}, nil
			},
		}, func(e *echo.Echo) {
			e.POST("/api/v1/ingest", func(c echo.Context) error {
				if _, err := httpx.Body(c, 100); err != nil {
					return err
				}
				pass(timeout - time.Second)
				return c.Request().Context().Err()
			})
		})
		if status := send(t, l, apitest.ProjectKey, 20); status != 200 {
			t.Errorf("status %d", status)
		}
	})
}

// A write that waits for room holds no place among the calls. The end of its connection ends the wait, although its
// body is not read.
func TestWrites_Wait(t *testing.T) {
	room := admission.NewRoom(admission.RoomWait)
	var mu sync.Mutex
	wait := true
	set := func(waits bool) {
		mu.Lock()
		wait = waits
		mu.Unlock()
		room.Set(admission.State{Waits: func(_ allowance.Owner, _ admission.Lane) string {
			if wait {
				return "it waits"
			}
			return ""
		}})
	}
	set(true)
	parked, ended := make(chan struct{}, 8), make(chan error, 8)
	address := serveOver(t, httpx.Config{
		MaxRequests: 2, MaxOfOne: 2,
		Writes: func(ctx context.Context, w admission.Write) (func(), error) {
			park := w.Parked
			w.Parked = func() { park(); parked <- struct{}{} }
			leave, err := room.Enter(ctx, w)
			ended <- err
			return leave, err
		},
	}, func(e *echo.Echo) {
		e.POST("/api/v1/ingest/batch", echoBody(httpx.IngestLimit))
		e.GET("/api/v1/usage", noContent)
	})
	send := func() net.Conn {
		c := connect(t, address)
		runtest.Must(t, errorOf(fmt.Fprintf(c, "POST /api/v1/ingest/batch HTTP/1.1\r\nHost: x\r\n"+
			"Authorization: Bearer %s\r\nContent-Length: 8\r\n\r\n\"012345\"", apitest.ProjectKey)))
		<-parked
		return c
	}
	first, second, third := send(), send(), send()
	for range 3 { // of two places
		conn := connect(t, address)
		runtest.Must(t, errorOf(fmt.Fprintf(conn, "GET /api/v1/usage HTTP/1.1\r\nHost: x\r\n"+
			"Authorization: Bearer %s\r\n\r\n", apitest.ProjectKey)))
		if status, body := answer(t, conn); status != 204 {
			t.Errorf("a call while others wait: %d %s", status, body)
		}
	}
	runtest.Must(t, third.Close())
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the wait of a client that left ended with %v", err)
	}
	set(false)
	for _, c := range []net.Conn{first, second} {
		if status, body := answer(t, c); status != 200 {
			t.Errorf("after the wait: %d %s", status, body)
		}
	}
}

// Bodies of four organizations fill the allowance and then stay silent, within the time that a body may take. A
// neighbour's body is read nevertheless, and so is a small one of each of the four.
func TestBody_SilentBodiesKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const share = 1 << 20
		bodies := httpx.NewBodies(admission.Bodies.Of(4 * share))
		l := servePipes(t, httpx.Config{Bodies: bodies}, ingest)
		for _, key := range hostileKeys {
			for range 4 {
				peer := l.dial(t)
				go func() {
					announce(t, peer, key, share/4)
					_, _ = io.WriteString(peer, strings.Repeat("x", share/4-1))
					_, _ = io.Copy(io.Discard, peer)
				}()
			}
		}
		synctest.Wait()
		if n := bodies.InFlight(); n != 4*share {
			t.Fatalf("%d bytes are reserved, want all", n)
		}
		for _, length := range []int{httpx.FreeBody + 1, share / 2, share} {
			if status := send(t, l, neighbourKey, length); status != 200 {
				t.Errorf("a neighbour's body of %d bytes: status %d", length, status)
			}
		}
		if n := bodies.InFlight(); n == 0 {
			t.Error("nothing is silent any more: the test shows nothing")
		}
		if status := send(t, l, hostileKeys[0], httpx.FreeBody); status != 200 {
			t.Errorf("a small body of a silent organization: status %d", status)
		}
	})
}

// A connection whose body does not arrive makes place for a new one.
func TestConnections_SilentBodiesMakePlace(t *testing.T) {
	l := httpx.NewConnections(4)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	runtest.Must(t, err)
	read := make(chan struct{}, 8)
	e := httpx.New(httpx.Config{Log: slog.New(slog.DiscardHandler), Keys: apitest.Keys{}, URLs: apitest.URLs})
	e.POST("/api/v1/ingest", func(c echo.Context) error {
		read <- struct{}{}
		return echoBody(httpx.SmallLimit)(c)
	})
	server := httpx.NewServer(e, slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- server.Serve(l.Listen(listener)) }()
	defer func() {
		_ = server.Close()
		<-served
	}()
	dial := func() net.Conn {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
		runtest.Must(t, err)
		return c
	}
	for range 4 {
		c := dial()
		defer func() { _ = c.Close() }()
		announce(t, c, apitest.ProjectKey, 10)
		<-read
	}
	for l.Waiting() < 4 { // the handlers wait for their bodies
		runtime.Gosched()
	}
	c := dial()
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute)) // for a hang alone
	announce(t, c, apitest.ProjectKey, 10)
	<-read
	runtest.Must(t, errorOf(io.WriteString(c, text(10))))
	if status, body := answer(t, c); status != 200 {
		t.Errorf("a fifth connection: status %d %s", status, body)
	}
}
