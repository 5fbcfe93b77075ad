package readapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/hostiletest"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/account"
	"github.com/annals-project/annals/readapi"
)

// roomFake is the room of every project.
type roomFake struct {
	mu      sync.Mutex
	room    account.Room
	err     error
	project auth.Project
	calls   int
	// held, if set, is received from before each answer, and entered sent to before that.
	held, entered chan struct{}
}

func (f *roomFake) Room(ctx context.Context, p auth.Principal, at time.Time) (account.Room, error) {
	f.mu.Lock()
	f.calls++
	f.project = p.Project
	f.mu.Unlock()
	if at.IsZero() {
		return account.Room{}, errors.New("no time")
	}
	if f.held != nil {
		f.entered <- struct{}{}
		select {
		case <-f.held:
		case <-ctx.Done():
			return account.Room{}, ctx.Err()
		}
	}
	return f.room, f.err
}

func serveEstimates(t *testing.T, f *roomFake) *apitest.Client {
	t.Helper()
	e := httpx.New(httpx.Config{Log: slog.New(slog.DiscardHandler), Keys: apitest.Keys{}, URLs: apitest.URLs})
	readapi.Register(e, readapi.Deps{Rooms: f})
	return apitest.Start(t, readapi.OpenAPI, e)
}

const estimatePath = "/api/v1/ingest/estimate"

func askEstimate(t *testing.T, api *apitest.Client, body any) apitest.Response {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return api.Call(http.MethodPost, estimatePath, apitest.ProjectKey, string(text))
}

type object = map[string]any

func file(path, content string) object { return object{"path": path, "content": content} }

func TestEstimate_Files(t *testing.T) {
	f := &roomFake{room: account.Room{
		Metered: true, LeftTenths: ptr(int64(25)), CreditTenths: ptr(int64(25)), ResetsAt: november.ResetsAt,
	}}
	api := serveEstimates(t, f)
	body := object{"timeZone": "Europe/Rome", "files": []any{
		file("t.csv", "id,date,author,note\n1,2025-05-12 10:15,ana,tea\n2,2025-05-11,bo,"+strings.Repeat("é", 400)),
		file("empty.txt", " "),
		object{"path": "bad.txt", "content": "x", "kind": "email"},
	}}
	res := askEstimate(t, api, body)
	res.Want(t, 200,
		`{"files":[{"path":"t.csv","kind":"table","detectedBy":"extension","points":2,`,
		`,"credits":4,"skipped":null,"remarks":[]},{"path":"empty.txt","kind":null,"detectedBy":null,"points":0,"bytes":0,"credits":0,"skipped":"is empty`,
		`{"path":"bad.txt","kind":"email","detectedBy":"given","points":0,"bytes":0,"credits":0,"skipped":"cannot be read as email`,
		`"dataPoints":2,`, `"batches":[{"index":0,"from":"2025-05-10T22:00:00Z","to":"2025-05-12T08:15:00Z","points":2,`,
		`"points":[{"id":"t.csv#2","kind":"table","path":"t.csv","label":"t","timestamp":"2025-05-10T22:00:00Z","identity":"bo","audience":null,`,
		`"pointsOmitted":0,"balance":{"left":2.5,"resetsAt":"2026-12-01T00:00:00Z","projectCapLeft":null,"ingestionCapReached":false},`+
			`"fits":false,"fitsFirst":0,"metered":true,"timeZone":"Europe/Rome"}`)
	if f.project != apitest.Principal.Project {
		t.Errorf("asked for %+v", f.project)
	}
	for _, absent := range []string{`"content"`, `"metadata"`} {
		if strings.Contains(res.Body, absent) {
			t.Errorf("a summary has %s", absent)
		}
	}
	if again := askEstimate(t, api, body); again.Body != res.Body {
		t.Errorf("a second call differs:\n%s", cmp.Diff(res.Body, again.Body))
	}
	var got struct{ Points []struct{ Preview string } }
	if err := json.Unmarshal([]byte(res.Body), &got); err != nil {
		t.Fatal(err)
	}
	if n := len([]rune(got.Points[0].Preview)); n != limit.EstimatePreview {
		t.Errorf("the preview has %d characters", n)
	}
}

// Without metering no credits are shown; caps still bind.
func TestEstimate_Unmetered(t *testing.T) {
	f := &roomFake{room: account.Room{
		ProjectCapLeftTenths: ptr(int64(15)), CreditTenths: ptr(int64(15)), Points: ptr(int64(0)),
	}}
	api := serveEstimates(t, f)
	body := object{"files": []any{file("a.txt", "tea")}}
	askEstimate(t, api, body).Want(t, 200, `"points":1,"bytes":3,"credits":null,"skipped":null,"remarks":[{"code":"no-time","count":1,"first":"a.txt","text":"1 data point without a time, `+
		`which would get the time of the import; the first: a.txt"}]}],"dataPoints":1,"bytes":3,"credits":null,`,
		`"balance":{"left":null,"resetsAt":null,"projectCapLeft":1.5,"ingestionCapReached":true},"fits":false,"fitsFirst":0,"metered":false,"timeZone":"UTC"`)
	f.room.Points = nil
	askEstimate(t, api, body).Want(t, 200, `"ingestionCapReached":false},"fits":true,"fitsFirst":1,`)
	f.err = fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "late")
	askEstimate(t, api, body).Want(t, 503, `"code":"service-unavailable"`)
}

// Summary shows 1,000 data points, none shows none, full shows all, in full.
func TestEstimate_Points(t *testing.T) {
	api := serveEstimates(t, &roomFake{})
	table := "n\n" + strings.Repeat("x\n", limit.EstimateRows+1)
	for points, shown := range map[string]int{
		"": limit.EstimateRows, "summary": limit.EstimateRows, "none": 0, "full": limit.EstimateRows + 1,
	} {
		body := object{"files": []any{file("t.csv", table)}, "points": points}
		if points == "" {
			body["points"] = nil
		}
		res := askEstimate(t, api, body)
		var got struct {
			Points        []object
			PointsOmitted int
			Batches       []struct{ Points int }
		}
		if err := json.Unmarshal([]byte(res.Body), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Points) != shown || got.PointsOmitted != limit.EstimateRows+1-shown || len(got.Batches) != 3 {
			t.Errorf("%q: %d points, %d omitted, batches %v", points, len(got.Points), got.PointsOmitted, got.Batches)
		}
		if shown == 0 {
			continue
		}
		full := got.Points[0]["content"] == "n: x" && cmp.Equal(got.Points[0]["metadata"], object{"path": "t.csv"})
		if full != (points == "full") {
			t.Errorf("%q: %v", points, got.Points[0])
		}
	}
}

// Items are batched and priced as given.
func TestEstimate_Items(t *testing.T) {
	room := account.Room{Metered: true, LeftTenths: ptr(int64(100)), CreditTenths: ptr(int64(100))}
	api := serveEstimates(t, &roomFake{room: room})
	res := askEstimate(t, api, object{"points": "full", "timeZone": "Europe/Rome", "items": []any{
		object{"content": "Subject: tea\nFrom: ana", "metadata": nil},
		object{
			"content": "tea", "id": "a", "label": "l", "timestamp": "2025-05-12T10:15", "metadata": object{"b": 1}, "audience": "x y", "identity": "ana",
		},
		object{"content": "coffee", "id": "a"},
	}})
	res.Want(t, 200, `{"files":[],"dataPoints":3,`, `"credits":3,`,
		`"points":[{"id":"a","kind":null,"path":null,"label":"l","timestamp":"2025-05-12T10:15:00Z","identity":"ana","audience":"x y","bytes":3,"credits":1,"preview":"tea","content":"tea","metadata":{"b":1}},`+
			`{"id":"`+datapoint.Digest([]byte("Subject: tea\nFrom: ana"))+`","kind":null,"path":null,"label":null,"timestamp":null,"identity":null,"audience":null,"bytes":22,"credits":1,"preview":"Subject: tea\nFrom: ana","content":"Subject: tea\nFrom: ana","metadata":null},`+
			`{"id":"a",`, `"content":"coffee"}]`)
	var got struct{ Batches []struct{ Points int } }
	if err := json.Unmarshal([]byte(res.Body), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Batches) != 2 || got.Batches[0].Points != 2 {
		t.Errorf("a repeated id is in one batch: %v", got.Batches)
	}
}

// What is wrong is refused, and asks nothing.
func TestEstimate_Refused(t *testing.T) {
	f := &roomFake{}
	api := serveEstimates(t, f)
	many := make([]any, limit.EstimateFiles+1)
	for i := range many {
		many[i] = file(fmt.Sprint(i), "x")
	}
	ok := []any{file("a", "x")}
	for name, c := range map[string]struct {
		body object
		want string
	}{
		"neither":        {object{}, `"field":"files"`},
		"both":           {object{"files": ok, "items": []any{object{"content": "x"}}}, `"field":"items"`},
		"no file":        {object{"files": []any{}}, `has 0 elements: want 1 to 10000`},
		"no item":        {object{"items": []any{}}, `"field":"items"`},
		"too many files": {object{"files": many}, `has 10001 elements: want 1 to 10000`},
		"no array":       {object{"files": "x"}, `want an array`},
		"points":         {object{"files": ok, "points": "some"}, `"field":"points"`},
		"time zone":      {object{"files": ok, "timeZone": "Rome"}, `"field":"timeZone"`},
		"zone of here":   {object{"files": ok, "timeZone": "Local"}, `"field":"timeZone"`},
		"empty zone":     {object{"files": ok, "timeZone": ""}, `"field":"timeZone"`},
		"path as zone":   {object{"files": ok, "timeZone": "../../etc/passwd"}, `"field":"timeZone"`},
	} {
		askEstimate(t, api, c.body).Want(t, 400, `"code":"invalid-request"`, c.want)
		if f.calls > 0 {
			t.Errorf("%s: the room is read", name)
			f.calls = 0
		}
	}
	for name, c := range map[string]struct {
		body object
		want string
	}{
		"kind":          {object{"files": []any{file("a", "x"), object{"path": "a", "content": "x", "kind": "pdf"}}}, `"field":"files[1].kind"`},
		"no path":       {object{"files": []any{object{"content": "x"}}}, `"field":"files[0].path"`},
		"empty path":    {object{"files": []any{file("", "x")}}, `"field":"files[0].path"`},
		"long path":     {object{"files": []any{file(strings.Repeat("p", limit.EstimatePath+1), "x")}}, `"field":"files[0].path"`},
		"no content":    {object{"files": []any{object{"path": "a"}}}, `"field":"files[0].content"`},
		"bytes":         {object{"files": []any{object{"path": "a", "content": 7}}}, `"field":"files[0].content"`},
		"no object":     {object{"files": []any{"a"}}, `"field":"files[0]"`},
		"blank item":    {object{"items": []any{object{"content": " "}}}, `"field":"items[0].content"`},
		"time of item":  {object{"items": []any{object{"content": "x", "timestamp": "noon"}}}, `"field":"items[0].timestamp"`},
		"label of item": {object{"items": []any{object{"content": "x", "label": strings.Repeat("l", 1001)}}}, `"field":"items[0].label"`},
	} {
		t.Run(name, func(t *testing.T) { askEstimate(t, api, c.body).Want(t, 400, `"code":"invalid-request"`, c.want) })
	}
	askEstimate(t, api, object{"files": many[:limit.EstimateFiles], "points": "none"}).Want(t, 200, `"dataPoints":10000,`)
	askEstimate(t, api, object{"files": []any{file(strings.Repeat("p", limit.EstimatePath), "x")}}).Want(t, 200, `"dataPoints":1,`)
	askEstimate(t, api, object{"items": []any{object{"content": strings.Repeat("x", limit.ContentBytes+1)}}}).
		Want(t, 413, `"code":"content-too-large"`)
	askEstimate(t, api, object{"files": []any{file("a.txt", strings.Repeat("x", limit.EstimateFileBytes+1))}}).
		Want(t, 200, `"dataPoints":0,`, `want at most 16777216`)
}

// spaces is white space without an end.
type spaces struct{}

func (spaces) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// A body of 256 MiB is read; one of a byte more is refused before it is sent.
func TestEstimate_Body(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 400 MB")
	}
	api := serveEstimates(t, &roomFake{})
	// The client waits for the server to ask for the body, however long that takes.
	transport := &http.Transport{ExpectContinueTimeout: time.Minute}
	defer transport.CloseIdleConnections()
	const text = `{"files":[{"path":"a.txt","content":"tea"}]}`
	for size, status := range map[int64]int{limit.EstimateBody: 200, limit.EstimateBody + 1: 413} {
		body := io.MultiReader(strings.NewReader(text), io.LimitReader(spaces{}, size-int64(len(text))))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api.URL()+estimatePath, body)
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = size
		req.Header.Set("Authorization", "Bearer "+apitest.ProjectKey)
		req.Header.Set("Expect", "100-continue")
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != status {
			t.Errorf("%d bytes: %d %.300s", size, res.StatusCode, answer)
		}
	}
}

// An organization makes one long estimate at a time; a second one is refused if it waits too long. Short
// ones pass.
func TestEstimate_OneLongAtATime(t *testing.T) {
	f := &roomFake{held: make(chan struct{})}
	e := httpx.New(httpx.Config{Log: slog.New(slog.DiscardHandler), Keys: apitest.Keys{}, URLs: apitest.URLs})
	readapi.RegisterEstimate(e, f, time.Millisecond)
	api := apitest.Start(t, readapi.OpenAPI, e)
	long := object{"files": []any{file("a.txt", strings.Repeat("tea ", 1<<19))}, "points": "none"}
	done := make(chan apitest.Response, 1)
	for _, then := range []any{long, object{"files": []any{file("a.txt", "tea")}}} {
		f.entered = make(chan struct{}, 2)
		go func() { done <- askEstimate(t, api, long) }()
		<-f.entered
		askEstimate(t, api, long).Want(t, 503, `"code":"service-unavailable"`, "estimates")
		if short, _ := then.(object); len(short) == 1 {
			go func() { f.held <- struct{}{}; f.held <- struct{}{} }()
			askEstimate(t, api, short).Want(t, 200, `"dataPoints":1,`)
		} else {
			f.held <- struct{}{}
		}
		(<-done).Want(t, 200, `"credits":null`)
	}
}

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
	for _, f := range hostiletest.Files(6, 2000) {
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
