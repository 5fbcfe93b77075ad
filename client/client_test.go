package annals_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	annals "github.com/annals-project/annals/client"
)

// script answers each request with the next step. It fails the test at a request without one.
type script struct {
	t      *testing.T
	steps  []step
	seen   []*http.Request
	bodies []string
}

type step struct {
	status int
	header map[string]string
	body   string
	err    error
	// hang answers only when the request is given up.
	hang bool
}

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	if len(s.seen) == len(s.steps) {
		s.t.Fatalf("request %d was not expected: %s %s", len(s.seen)+1, req.Method, req.URL)
	}
	next := s.steps[len(s.seen)]
	s.seen = append(s.seen, req)
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			s.t.Fatal(err)
		}
	}
	s.bodies = append(s.bodies, string(body))
	if next.hang {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	if next.err != nil {
		return nil, next.err
	}
	res := &http.Response{
		StatusCode: next.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(next.body)), Request: req,
	}
	for k, v := range next.header {
		res.Header.Set(k, v)
	}
	return res, nil
}

const secretKey = "svc_sk_secret"

func scripted(t *testing.T, steps []step, options ...annals.Option) (*annals.Client, *script) {
	t.Helper()
	s := &script{t: t, steps: steps}
	c, err := annals.New("http://annals.test/", secretKey, append(options, annals.WithTransport(s))...)
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

var (
	refused = step{err: &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}}
	lost    = step{err: &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}}
	accept  = step{status: 202, body: `{"projectId":1,"ingestionId":"i","sourceId":"s","status":"queued","unchanged":null}`}
	gone    = step{status: 404, body: `{"code":"not-found","status":404,"debugMessage":"there is none","data":{}}`}
	busy    = step{status: 503, body: `{"code":"service-unavailable","debugMessage":"far from done"}`}
)

func ingest(ctx context.Context, c *annals.Client) error {
	_, err := c.Ingest(ctx, annals.DataPoint{Content: "tea"})
	return err
}

func TestNew_Invalid(t *testing.T) {
	for name, c := range map[string]struct{ base, key string }{
		"no scheme":               {"annals.test:8080", "k"},
		"no host":                 {"http://", "k"},
		"another scheme":          {"ftp://annals.test", "k"},
		"a password":              {"http://ana:hidden@annals.test", "k"},
		"a query":                 {"http://annals.test?x=1", "k"},
		"key and address swapped": {"svc_sk_hidden", "http://annals.test"},
		"a line in the key":       {"http://annals.test", "svc_sk_hidden\n"},
	} {
		if _, err := annals.New(c.base, c.key); err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestClient_PrintsNoKey(t *testing.T) {
	c, _ := scripted(t, nil)
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if text := fmt.Sprintf(format, c); strings.Contains(text, "secret") {
			t.Errorf("%s prints %s", format, text)
		}
	}
}

func TestErrors_NameTheRequestOnly(t *testing.T) {
	for want, s := range map[string]step{
		"the server answered 401 unauthorized: no such key (request r-1)": {status: 401, header: map[string]string{"X-Request-Id": "r-1"}, body: `{"code":"unauthorized","status":401,"debugMessage":"no such key","data":{}}`},
		"no answer from http://annals.test: dial tcp: connection refused": refused,
		"the server answered 502": {status: 502, body: "<html>bad gateway</html>"},
		"no answer from http://annals.test: read answer: unexpected EOF": {status: 200, body: `{"dataPoints":1,"points":[{`},
	} {
		c, _ := scripted(t, []step{s}, annals.WithMaxAttempts(1))
		var err error
		if s.status != 200 {
			err = ingest(t.Context(), c)
		} else {
			_, err = c.EstimateFull(t.Context(), annals.EstimateRequest{}, func() error { return nil }, nil)
		}
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	c, _ := scripted(t, []step{lost})
	_, err := c.ReceiveEvent(t.Context(), annals.Event{WebhookID: "whk_1", Token: "hidden", Body: []byte("x")})
	if err == nil || strings.Contains(err.Error(), "hidden") {
		t.Errorf("the token is in %v", err)
	}
}

func TestAPIError_Fields(t *testing.T) {
	c, _ := scripted(t, []step{{
		status: 429, header: map[string]string{"X-Request-Id": "r-1", "Retry-After": "7"},
		body: `{"code":"project-cap-reached","status":429,"debugMessage":"full","data":{"cap":"ingestion"}}`,
	}})
	var got *annals.APIError
	if err := ingest(t.Context(), c); !errors.As(err, &got) {
		t.Fatalf("got %v", err)
	}
	want := &annals.APIError{
		Status: 429, Code: annals.CodeProjectCapReached, Message: "full", RequestID: "r-1", RetryAfter: 7 * time.Second,
		Data: json.RawMessage(`{"cap":"ingestion"}`),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestCall_RedirectIsNotFollowed(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the redirect was followed")
	}))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	c, err := annals.New(server.URL, secretKey)
	if err != nil {
		t.Fatal(err)
	}
	var got *annals.APIError
	if err := ingest(t.Context(), c); !errors.As(err, &got) || got.Status != http.StatusTemporaryRedirect {
		t.Errorf("got %v", err)
	}
}

func TestCall_EmptyID(t *testing.T) {
	c, _ := scripted(t, nil)
	if err := c.DeleteIngestion(t.Context(), ""); err == nil {
		t.Error("no error")
	}
}

func TestCall_UnreadableAnswer(t *testing.T) {
	c, _ := scripted(t, []step{{status: 200, body: "<html>"}})
	if err := ingest(t.Context(), c); err == nil || !strings.Contains(err.Error(), "read the answer") {
		t.Errorf("got %v", err)
	}
}

func TestInProject(t *testing.T) {
	c, s := scripted(t, []step{{status: 200, body: `{}`}, {status: 200, body: `{}`}})
	for _, client := range []*annals.Client{c.InProject("planning"), c} {
		if _, err := client.GetIdentity(t.Context(), "ana"); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.seen[0]; got.URL.RawQuery != "project=planning" || got.Header.Get("X-Service-Project") != "planning" {
		t.Errorf("got %s %v", got.URL, got.Header)
	}
	if got := s.seen[1]; got.URL.RawQuery != "" || got.Header.Get("X-Service-Project") != "" {
		t.Errorf("the first client has changed: %s %v", got.URL, got.Header)
	}
}

func TestIngestBatch_ItemsHaveNoKey(t *testing.T) {
	c, _ := scripted(t, nil)
	_, err := c.IngestBatch(t.Context(), annals.Batch{Items: []annals.DataPoint{{Content: "a", IdempotencyKey: "k"}}})
	if err == nil || !strings.Contains(err.Error(), "items[0]") {
		t.Errorf("got %v", err)
	}
}

func TestBatch_RawItems(t *testing.T) {
	c, s := scripted(t, []step{accept})
	_, err := c.IngestBatch(t.Context(), annals.Batch{
		RawItems: []json.RawMessage{json.RawMessage(`{"content":"<a>","label":null}`)}, IdempotencyKey: "k",
	})
	if want := `{"items":[{"content":"<a>","label":null}],"idempotencyKey":"k"}`; err != nil || s.bodies[0] != want {
		t.Errorf("sent %s, %v", s.bodies[0], err)
	}
}

func TestRecallResultTokens_RoundUpOnce(t *testing.T) {
	r := annals.RecallResult{Content: "ééééé", Sources: []annals.RecallSource{{Excerpts: []string{"ab", "c"}}}}
	if got := r.Tokens(); got != 2 {
		t.Errorf("got %d, want 2", got)
	}
}

func TestProjectID(t *testing.T) {
	named := map[string]string{"X-Annals-Project": "p-1"}
	c, _ := scripted(t, []step{
		{status: 200, header: named, body: `{}`},
		{status: 403, header: named, body: `{"code":"project-archived"}`},
		{status: 401, body: `{"code":"unauthorized"}`},
	})
	for range 2 {
		if id, err := c.ProjectID(t.Context()); id != "p-1" || err != nil {
			t.Errorf("got %q, %v", id, err)
		}
	}
	if id, err := c.ProjectID(t.Context()); id != "" || err == nil {
		t.Errorf("got %q, %v", id, err)
	}
}

func TestReady(t *testing.T) {
	c, _ := scripted(t, []step{
		{status: 200, body: `{"status":"ready","serversDown":["the model cannot be used"]}`},
		{status: 503, body: `{"code":"service-unavailable","data":{"notReady":[{"part":"postgres","reason":"no answer"}]}}`},
		{status: 503, body: "bad gateway"},
		gone,
	})
	is, err := c.Ready(t.Context())
	if err != nil || !is.Ready || len(is.ServersDown) != 1 {
		t.Errorf("got %+v, %v", is, err)
	}
	is, err = c.Ready(t.Context())
	if err != nil || is.Ready || len(is.NotReady) != 1 || is.NotReady[0].Part != "postgres" {
		t.Errorf("got %+v, %v", is, err)
	}
	for _, status := range []int{503, 404} {
		var got *annals.APIError
		if _, err := c.Ready(t.Context()); !errors.As(err, &got) || got.Status != status {
			t.Errorf("got %v", err)
		}
	}
}
