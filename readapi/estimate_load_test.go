package readapi_test

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/hostilefiles"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/readapi"
)

func serveEstimatesWithin(t *testing.T, f *roomFake, answers *allowance.Allowance, wait time.Duration) *apitest.Client {
	t.Helper()
	e := httpx.New(httpx.Config{
		Log: slog.New(slog.DiscardHandler), Keys: apitest.Keys{}, URLs: apitest.URLs, Answers: answers,
	})
	readapi.RegisterEstimate(e, f, wait)
	return apitest.Start(t, readapi.OpenAPI, e)
}

// Small estimates take slots by the size of their body, too, and refuse no long one.
func TestEstimate_SlotsOfSmallOnes(t *testing.T) {
	f := &roomFake{held: make(chan struct{}), entered: make(chan struct{}, 32)}
	api := serveEstimatesWithin(t, f, nil, time.Millisecond)
	tiny := object{"files": []any{file("a.txt", "tea")}, "points": "none"}
	whole := object{"files": []any{file("a.txt", strings.Repeat("tea ", 1<<18-100))}, "points": "none"}
	long := object{"files": []any{file("a.txt", strings.Repeat("tea ", 1<<18))}, "points": "none"}
	const all = 16 // of one organization: 4 MiB each of 64 MiB
	done := make(chan apitest.Response, 32)
	start := func(body object) {
		go func() { done <- askEstimate(t, api, body) }()
		<-f.entered
	}
	for range all {
		start(tiny)
	}
	askEstimate(t, api, tiny).Want(t, 503, `"code":"service-unavailable"`, "estimates")
	start(long)
	for range all + 1 {
		f.held <- struct{}{}
		(<-done).Want(t, 200)
	}
	start(whole)
	askEstimate(t, api, tiny).Want(t, 503, `"code":"service-unavailable"`, "estimates")
	f.held <- struct{}{}
	(<-done).Want(t, 200)
}

// What an answer shows is reserved from the organization's share of answers before it is made.
func TestEstimate_ReservesItsAnswer(t *testing.T) {
	answers := allowance.New(allowance.Config{Total: 100, Share: 100, Wait: time.Millisecond, Waiters: 4, Refusal: "full"})
	other := answers.Open(allowance.Owner{Organization: uuid.New()})
	if err := other.Reserve(t.Context(), 90); err != nil {
		t.Fatal(err)
	}
	api := serveEstimatesWithin(t, &roomFake{}, answers, time.Minute)
	body := object{"files": []any{file("a.txt", "tea")}, "points": "full"}
	askEstimate(t, api, body).Want(t, 503, `"code":"service-unavailable"`, "full")
	body["points"] = "none"
	askEstimate(t, api, body).Want(t, 200, `"dataPoints":1,`)
	other.Release()
	body["points"] = "full"
	askEstimate(t, api, body).Want(t, 200, `"content":"tea"`)
	if n := answers.InUse(); n != 0 {
		t.Errorf("%d bytes are still reserved", n)
	}
}

// A client that does not read its answer holds no slot.
func TestEstimate_SlowReader(t *testing.T) {
	api := serveEstimatesWithin(t, &roomFake{}, nil, 2*time.Minute)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api.URL()+estimatePath,
		strings.NewReader(`{"points":"full","files":[{"path":"a.txt","content":"`+strings.Repeat("tea ", 3<<20)+`"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+apitest.ProjectKey)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := io.ReadFull(res.Body, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	long := object{"files": []any{file("a.txt", strings.Repeat("tea ", 1<<19))}, "points": "none"}
	askEstimate(t, api, long).Want(t, 200, `"credits":null`)
}

// A short body does not become an answer of gigabytes: the path that comes with each row counts.
func TestEstimate_LongPathInEachRow(t *testing.T) {
	api := serveEstimates(t, &roomFake{})
	path := strings.Repeat("\U00010348", limit.EstimatePath-30) + ".csv"
	body := object{"files": []any{file(path, "n\n"+strings.Repeat("x\n", 40_000))}, "points": "full"}
	askEstimate(t, api, body).Want(t, 413, `"code":"content-too-large"`, `"limitBytes":536870912`)
}

// Hostile files of every kind are estimated or skipped, one by one and together, the same each time.
func TestEstimate_HostileFiles(t *testing.T) {
	api := serveEstimates(t, &roomFake{})
	var all []any
	for _, f := range hostilefiles.Make(6, 2000) {
		all = append(all, object{"path": f.Path, "content": f.Content, "kind": string(f.Kind)}, file(f.Path, f.Content))
	}
	for _, points := range []string{"none", "summary", "full"} {
		body := object{"files": all, "points": points}
		first := askEstimate(t, api, body)
		first.Want(t, 200, `"skipped":null`, `"skipped":"`)
		if again := askEstimate(t, api, body); again.Body != first.Body {
			t.Errorf("points %s: a second call differs", points)
		}
	}
}
