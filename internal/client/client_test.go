package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// script answers each request with the next step; it fails the test when it is asked for more.
type script struct {
	t     *testing.T
	steps []step
	seen  []*http.Request
	times []time.Time
}

type step struct {
	status int
	header map[string]string
	body   string
	err    error
}

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	if len(s.seen) == len(s.steps) {
		s.t.Fatalf("request %d was not expected: %s %s", len(s.seen)+1, req.Method, req.URL)
	}
	next := s.steps[len(s.seen)]
	s.seen, s.times = append(s.seen, req), append(s.times, time.Now())
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

func scripted(t *testing.T, steps ...step) (*Client, *script) {
	t.Helper()
	s := &script{t: t, steps: steps}
	c, err := New("http://annals.test/", "svc_sk_secret", Options{Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

var (
	refused = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	lost    = &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}
)

const receipt = `{"projectId":1,"ingestionId":"i","sourceId":"s","status":"queued","unchanged":null}`

func TestCall_Repeated(t *testing.T) {
	for name, c := range map[string]struct {
		steps []step
		// least is the shortest time that all waits together may take.
		least time.Duration
	}{
		"rate limit names its wait":       {[]step{{status: 429, header: map[string]string{"Retry-After": "7"}}, {status: 202, body: receipt}}, 7 * time.Second},
		"unavailable names its wait":      {[]step{{status: 503, header: map[string]string{"Retry-After": "3"}, body: `{"code":"service-unavailable"}`}, {status: 202, body: receipt}}, 3 * time.Second},
		"unavailable without a wait":      {[]step{{status: 503}, {status: 503}, {status: 202, body: receipt}}, 300 * time.Millisecond},
		"lost connection":                 {[]step{{err: lost}, {status: 202, body: receipt}}, 100 * time.Millisecond},
		"a wait that asks for a lot ends": {[]step{{status: 503, header: map[string]string{"Retry-After": "86400"}}, {status: 202, body: receipt}}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, s := scripted(t, c.steps...)
				start := time.Now()
				got, err := client.Ingest(t.Context(), DataPoint{Content: "tea"}, "")
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(Receipt{ProjectID: 1, IngestionID: "i", SourceID: "s", Status: "queued"}, got); diff != "" {
					t.Error(diff)
				}
				if len(s.seen) != len(c.steps) {
					t.Errorf("sent %d times, want %d", len(s.seen), len(c.steps))
				}
				if waited := time.Since(start); waited < c.least || waited > c.least+5*time.Second {
					t.Errorf("waited %v, want about %v", waited, c.least)
				}
			})
		})
	}
}

func TestCall_NotRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(context.Context, *Client) error
		step step
	}{
		"refused content":              {ingest, step{status: 400, body: `{"code":"invalid-request","debugMessage":"content is empty"}`}},
		"a cap does not pass":          {ingest, step{status: 429, body: `{"code":"project-cap-reached"}`}},
		"server down":                  {ingest, step{err: refused}},
		"pipeline switched off":        {retry, step{status: 503, body: `{"code":"pipeline-disabled"}`}},
		"creation with unknown end":    {create, step{err: lost}},
		"creation that may have taken": {create, step{status: 503, body: `{"code":"service-unavailable"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := scripted(t, c.step)
			if err := c.do(t.Context(), client); err == nil {
				t.Fatal("no error")
			}
		})
	}
}

func ingest(ctx context.Context, c *Client) error {
	_, err := c.Ingest(ctx, DataPoint{Content: "tea"}, "")
	return err
}

func retry(ctx context.Context, c *Client) error { return c.Retry(ctx, "i") }

func create(ctx context.Context, c *Client) error {
	_, err := c.CreateProject(ctx, "p")
	return err
}

func TestCall_AttemptsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := step{status: 503, body: `{"code":"service-unavailable","debugMessage":"far behind"}`}
		client, s := scripted(t, busy, busy, busy, busy, busy, busy)
		err := ingest(t.Context(), client)
		if e, ok := errors.AsType[*Error](err); !ok || e.Status != 503 || e.Code != "service-unavailable" ||
			e.Message != "far behind" {
			t.Fatalf("got %v", err)
		}
		if len(s.seen) != 6 {
			t.Errorf("tried %d times, want 6", len(s.seen))
		}
	})
}

func TestWait_ContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := scripted(t, step{status: 503, header: map[string]string{"Retry-After": "50"}})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		if err := ingest(ctx, client); err == nil {
			t.Fatal("no error")
		}
		if waited := time.Since(start); waited != 2*time.Second {
			t.Errorf("waited %v, want 2s", waited)
		}
	})
}

func TestErrors_NameTheRequestOnly(t *testing.T) {
	client, _ := scripted(t,
		step{status: 401, header: map[string]string{"X-Request-Id": "r-1"}, body: `{"code":"unauthorized","status":401,"debugMessage":"no such key","data":{}}`},
		step{err: refused},
		step{status: 502, body: "<html>bad gateway</html>"},
	)
	for _, want := range []string{
		"the server answered 401 unauthorized: no such key (request r-1)",
		"no answer from http://annals.test: dial tcp: connection refused",
		"the server answered 502",
	} {
		err := ingest(t.Context(), client)
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the key is in %v", err)
		}
	}
}

func TestCall_Request(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = append(got, r.Method+" "+r.URL.EscapedPath()+" "+r.Header.Get("Authorization")+" "+string(body))
		_, _ = w.Write([]byte(`{}`))
	}))
	defer server.Close()
	c, err := New(server.URL, "svc_mk_k", Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, do := range []func() error{
		func() error {
			_, err := c.IngestBatch(ctx, []json.RawMessage{json.RawMessage(`{"content":"a"}`)}, "k")
			return err
		},
		func() error {
			_, err := c.Recall(ctx, RecallRequest{Query: "q", Identity: "me", Limit: 3})
			return err
		},
		func() error { _, err := c.Status(ctx, "a/b"); return err },
		func() error { return c.RevokeKey(ctx, "p", "k") },
		func() error { _, err := c.DeleteDataPoints(ctx, []string{"x"}); return err },
		func() error {
			return c.PutIdentity(ctx, Identity{Identity: "a/b", Traits: map[string]string{"team": "x"}})
		},
		func() error { return c.PutIdentities(ctx, []Identity{{Identity: "a"}}) },
		func() error {
			_, err := c.PutRule(ctx, "team",
				Rule{Match: "any", Conditions: []Comparison{{Trait: "team", Operator: "is", Values: []string{"x"}}}})
			return err
		},
		func() error { _, err := c.Recompute(ctx, "team"); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		`POST /api/v1/ingest/batch Bearer svc_mk_k {"items":[{"content":"a"}],"idempotencyKey":"k"}`,
		`POST /api/v1/recall Bearer svc_mk_k {"query":"q","identity":"me","limit":3}`,
		`GET /api/v1/ingest/a%2Fb Bearer svc_mk_k `,
		`DELETE /api/v1/projects/p/keys/k Bearer svc_mk_k `,
		`POST /api/v1/data-points/delete Bearer svc_mk_k {"ids":["x"]}`,
		`PUT /api/v1/identities/a%2Fb Bearer svc_mk_k {"traits":{"team":"x"}}`,
		`POST /api/v1/identities/bulk Bearer svc_mk_k [{"identity":"a","traits":null}]`,
		`PUT /api/v1/audiences/team Bearer svc_mk_k {"kind":"rule","rule":{"match":"any","conditions":[{"trait":"team","operator":"is","values":["x"]}]}}`,
		`POST /api/v1/audiences/team/recompute Bearer svc_mk_k `,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestCall_RedirectIsNotFollowed(t *testing.T) {
	client, _ := scripted(t, step{status: 307, header: map[string]string{"Location": "http://elsewhere.test/"}})
	if err := ingest(t.Context(), client); err == nil || !strings.Contains(err.Error(), "307") {
		t.Fatalf("got %v", err)
	}
}

func TestWaitSettled_Polls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, s := scripted(t,
			step{status: 200, body: `{"status":"processing","readiness":{"raw":1}}`},
			step{status: 200, body: `{"status":"completed","readiness":{"comprehension":1}}`},
			step{status: 200, body: `{"status":"completed","settled":true}`},
		)
		got, err := client.WaitSettled(t.Context(), "i", nil)
		if err != nil || !got.Settled || len(s.seen) != 3 {
			t.Fatalf("got %+v, %v after %d polls", got, err, len(s.seen))
		}
	})
}

func TestResultTokens_RoundUpOnce(t *testing.T) {
	r := Result{Content: "ééééé", Sources: []Source{{Excerpts: []string{"ab", "c"}}}}
	if got := r.Tokens(); got != 2 {
		t.Errorf("got %d, want 2", got)
	}
}

func TestMetric(t *testing.T) {
	text := "# TYPE a counter\na{x=\"1\"} 7\na{x=\"2\"} 1.5e+06\n"
	client, _ := scripted(t, step{status: 200, body: text}, step{status: 200, body: text}, step{status: 404})
	if got, err := client.Metric(t.Context(), `a{x="2"}`); got != 1.5e6 || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := client.Metric(t.Context(), "b"); got != 0 || err != nil {
		t.Errorf("a metric that is not there: %v, %v", got, err)
	}
	if _, err := client.Metric(t.Context(), "a"); err == nil {
		t.Error("no error")
	}
}
