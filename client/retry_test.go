package annals_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	annals "github.com/annals-project/annals/client"
)

// Each kind of call is repeated after the failures that the package comment names, and after no other.
func TestRepeats_ByKindOfCall(t *testing.T) {
	failures := map[string]step{
		"no connection":  refused,
		"no answer":      lost,
		"no such host":   {err: &net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}},
		"400":            {status: 400, body: `{"code":"invalid-request"}`},
		"429":            {status: 429},
		"429 of a cap":   {status: 429, body: `{"code":"project-cap-reached"}`},
		"429 of a proxy": {status: 429, body: `<html>`},
		"402":            {status: 402, body: `{"code":"out-of-credits"}`},
		"500":            {status: 500, body: `{"code":"internal"}`},
		"502":            {status: 502},
		"503":            busy,
		"504":            {status: 504},
	}
	safe := []string{"no connection", "no answer", "429", "429 of a proxy", "502", "503", "504"}
	once := []string{"no connection"}
	one := step{status: 200, body: `{}`}
	for name, c := range map[string]struct {
		do       func(context.Context, *annals.Client) error
		repeated []string
	}{
		"ingest": {ingest, safe},
		"batch": {func(ctx context.Context, c *annals.Client) error {
			_, err := c.IngestBatch(ctx, annals.Batch{Items: []annals.DataPoint{{Content: "tea"}}})
			return err
		}, safe},
		"estimate": {func(ctx context.Context, c *annals.Client) error {
			_, err := c.Estimate(ctx, annals.EstimateRequest{})
			return err
		}, safe},
		"get": {func(ctx context.Context, c *annals.Client) error { _, err := c.GetUsage(ctx); return err }, safe},
		"put": {func(ctx context.Context, c *annals.Client) error {
			_, err := c.PutIdentity(ctx, annals.IdentityRow{Identity: "ana"})
			return err
		}, safe},
		"delete": {func(ctx context.Context, c *annals.Client) error { return c.DeleteIngestion(ctx, "i") }, safe},
		"recall": {func(ctx context.Context, c *annals.Client) error {
			_, err := c.Recall(ctx, annals.RecallRequest{Query: "q", Identity: "ana"})
			return err
		}, []string{"503"}},
		"create project": {func(ctx context.Context, c *annals.Client) error {
			_, err := c.CreateProject(ctx, annals.NewProject{Name: "p"})
			return err
		}, once},
		"create key": {func(ctx context.Context, c *annals.Client) error {
			_, err := c.CreateProjectKey(ctx, annals.NewProjectKey{Project: "p", Name: "k"})
			return err
		}, once},
		"bulk identities": {func(ctx context.Context, c *annals.Client) error {
			_, err := c.PutIdentities(ctx, []annals.IdentityRow{{Identity: "ana"}})
			return err
		}, once},
		"patch": {func(ctx context.Context, c *annals.Client) error {
			_, err := c.PatchIdentity(ctx, annals.IdentityPatch{Identity: "ana"})
			return err
		}, once},
		"bulk deletion": {func(ctx context.Context, c *annals.Client) error {
			_, err := c.DeleteDataPoints(ctx, []string{"a"})
			return err
		}, once},
		"retry": {func(ctx context.Context, c *annals.Client) error { _, err := c.RetryIngestion(ctx, "i"); return err }, once},
		"event": {func(ctx context.Context, c *annals.Client) error {
			_, err := c.ReceiveEvent(ctx, annals.Event{WebhookID: "w", Token: "t"})
			return err
		}, once},
	} {
		for failure, first := range failures {
			synctest.Test(t, func(t *testing.T) {
				want := slices.Contains(c.repeated, failure)
				client, s := scripted(t, []step{first, one})
				err := c.do(t.Context(), client)
				if repeated := len(s.seen) == 2; repeated != want || (err == nil) != want {
					t.Errorf("%s after %s: sent %d times, %v", name, failure, len(s.seen), err)
				}
			})
		}
	}
}

func TestRepeats_Pauses(t *testing.T) {
	named := func(value string) step {
		return step{status: 503, header: map[string]string{"Retry-After": value}, body: busy.body}
	}
	for name, c := range map[string]struct {
		steps []step
		// least and most bound the time of the call.
		least, most time.Duration
	}{
		"seconds":     {[]step{named("7"), accept}, 7 * time.Second, 8 * time.Second},
		"a date":      {[]step{named("Sat, 01 Jan 2000 00:00:03 GMT"), accept}, 3 * time.Second, 4 * time.Second},
		"at once":     {[]step{named("0"), accept}, 0, time.Millisecond},
		"no pause":    {[]step{busy, busy, busy, accept}, 700 * time.Millisecond, 1400 * time.Millisecond},
		"lost answer": {[]step{lost, accept}, 100 * time.Millisecond, 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // begins at the start of the year 2000
				client, s := scripted(t, c.steps)
				began := time.Now()
				if err := ingest(t.Context(), client); err != nil || len(s.seen) != len(c.steps) {
					t.Fatalf("sent %d times, %v", len(s.seen), err)
				}
				if took := time.Since(began); took < c.least || took > c.most {
					t.Errorf("took %v, want %v to %v", took, c.least, c.most)
				}
			})
		})
	}
}

// The total time is bounded by the option and by the context. A pause beyond it is not begun.
func TestRepeats_TotalTime(t *testing.T) {
	long := step{status: 503, header: map[string]string{"Retry-After": "50"}, body: busy.body}
	all := make([]step, 100)
	for i := range all {
		all[i] = busy
	}
	for name, c := range map[string]struct {
		steps   []step
		options []annals.Option
		limit   time.Duration
		at      time.Duration // 0 for any time up to the limit
	}{
		"the option":             {all, []annals.Option{annals.WithTimeout(30 * time.Second)}, 30 * time.Second, 0},
		"the context":            {all, nil, 20 * time.Second, 0},
		"a pause beyond it":      {[]step{long}, []annals.Option{annals.WithTimeout(30 * time.Second)}, 0, 0},
		"an attempt that hangs":  {[]step{{hang: true}}, []annals.Option{annals.WithTimeout(30 * time.Second)}, 30 * time.Second, 30 * time.Second},
		"attempts that hang":     {[]step{{hang: true}, {hang: true}, accept}, []annals.Option{annals.WithAttemptTimeout(time.Second)}, 3 * time.Second, 0},
		"the number of attempts": {[]step{busy, busy, busy}, []annals.Option{annals.WithMaxAttempts(3)}, time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if name == "the context" {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.limit)
					defer cancel()
				}
				client, s := scripted(t, c.steps, c.options...)
				began := time.Now()
				err := ingest(ctx, client)
				if took := time.Since(began); took > c.limit || c.at > 0 && took != c.at {
					t.Errorf("took %v", took)
				}
				if accepted := c.steps[len(s.seen)-1].status == 202; accepted != (err == nil) {
					t.Errorf("sent %d times, %v", len(s.seen), err)
				}
				var refused *annals.APIError
				if errors.As(err, &refused) != (c.steps[0].status == 503) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

func TestRepeats_ContextEndsInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, cancel)
		client, _ := scripted(t, []step{{status: 503, header: map[string]string{"Retry-After": "50"}}})
		began := time.Now()
		err := ingest(ctx, client)
		var refused *annals.APIError
		if !errors.Is(err, context.Canceled) || !errors.As(err, &refused) || time.Since(began) != 5*time.Second {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}

func TestRepeats_ConnectWait(t *testing.T) {
	for wait, sent := range map[time.Duration]int{0: 1, time.Second: 3} {
		synctest.Test(t, func(t *testing.T) {
			client, s := scripted(t, slices.Repeat([]step{refused}, 10), annals.WithConnectWait(wait))
			began := time.Now()
			var failed *annals.ConnectionError
			if err := ingest(t.Context(), client); !errors.As(err, &failed) {
				t.Errorf("got %v", err)
			}
			if time.Since(began) > wait || len(s.seen) < sent {
				t.Errorf("within %v: sent %d times in %v", wait, len(s.seen), time.Since(began))
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // a service that answers is waited for again when it is away later
		later := step{status: 503, header: map[string]string{"Retry-After": "5"}}
		client, s := scripted(t, []step{refused, later, refused, accept}, annals.WithConnectWait(time.Second))
		if err := ingest(t.Context(), client); err != nil {
			t.Errorf("sent %d times: %v", len(s.seen), err)
		}
	})
}

// A key is made before the first attempt, the same for all attempts of a call.
func TestIngest_IdempotencyKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, s := scripted(t, []step{lost, busy, accept, accept, accept, lost, accept})
		send := func(p annals.DataPoint) {
			if _, err := client.Ingest(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		send(annals.DataPoint{Content: "tea"})
		send(annals.DataPoint{Content: "tea"})
		send(annals.DataPoint{Content: "tea", IdempotencyKey: "mine"})
		if _, err := client.IngestBatch(t.Context(), annals.Batch{Items: []annals.DataPoint{{Content: "tea"}}}); err != nil {
			t.Fatal(err)
		}
		b := s.bodies
		if b[0] != b[1] || b[1] != b[2] || b[2] == b[3] || b[5] != b[6] || len(b[0]) < 50 || len(b[5]) < 50 {
			t.Errorf("sent %q", b)
		}
		if want := `{"content":"tea","idempotencyKey":"mine"}`; b[4] != want {
			t.Errorf("sent %s", b[4])
		}
	})
}

// Without a key, an ingest is sent again after a refusal for load only.
func TestIngest_WithoutIdempotencyKey(t *testing.T) {
	for name, c := range map[string]struct {
		point annals.DataPoint
		first step
		sent  int
	}{
		"refused for load": {annals.DataPoint{Content: "tea"}, busy, 2},
		"no answer":        {annals.DataPoint{Content: "tea"}, lost, 1},
		"a key of its own": {annals.DataPoint{Content: "tea", IdempotencyKey: "mine"}, lost, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			client, s := scripted(t, []step{c.first, accept}, annals.WithoutIdempotencyKeys())
			_, err := client.Ingest(t.Context(), c.point)
			if len(s.seen) != c.sent || (err == nil) != (c.sent == 2) {
				t.Errorf("%s: sent %d times, %v", name, len(s.seen), err)
			}
			if hasKey := strings.Contains(s.bodies[0], "idempotencyKey"); hasKey != (c.point.IdempotencyKey != "") {
				t.Errorf("%s: sent %s", name, s.bodies[0])
			}
		})
	}
}

// A 404 counts as done if an earlier attempt may have deleted what it names, and only then.
func TestDelete_NotFound(t *testing.T) {
	committed := step{status: 503, body: `{"code":"service-unavailable","data":{"committed":true}}`}
	for name, c := range map[string]struct {
		steps []step
		done  bool
	}{
		"first attempt":            {[]step{gone}, false},
		"after a lost answer":      {[]step{lost, gone}, true},
		"after 502":                {[]step{{status: 502}, gone}, true},
		"after a lost and a busy":  {[]step{{status: 504}, busy, gone}, true},
		"after a committed change": {[]step{committed, gone}, true},
		"after no connection":      {[]step{refused, gone}, false},
		"after a busy server":      {[]step{busy, gone}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			client, _ := scripted(t, append(c.steps, c.steps...))
			if err := client.DeleteIdentity(t.Context(), "ana"); (err == nil) != c.done {
				t.Errorf("%s: %v", name, err)
			}
			receipt, err := client.DeleteDataPoint(t.Context(), "a")
			if (err == nil) != c.done || err == nil && (receipt.OperationID != "" || !slices.Equal(receipt.IDs, []string{"a"})) {
				t.Errorf("%s: %+v, %v", name, receipt, err)
			}
		})
	}
}
