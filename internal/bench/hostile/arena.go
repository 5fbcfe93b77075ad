package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/hostiletest"
)

// Tenant is a project with its key, and the management key of its organization.
type Tenant struct {
	Key, Management, Slug string
	// Webhook is the URL of a webhook with as many filters as are allowed, "" for none.
	Webhook string
}

// Arena is the environment of an attack.
type Arena struct {
	// Base is the address of the service, such as http://127.0.0.1:8080, and Console that of its console.
	Base, Console string
	Attacker      Tenant
	Sizes         Sizes
	// Answers counts the responses to the attacker.
	Answers *Answers
	http    *http.Client
	// projects are keys of further projects of the attacker, if the attack created some.
	projects []string
}

// callLimit is how long one call of an attacker may take. Slow readers have a separate limit.
const callLimit = 3 * time.Minute

// NewArena makes the arena of one attack.
func NewArena(base string, attacker Tenant, sizes Sizes) *Arena {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost, transport.DisableCompression = 128, true
	return &Arena{
		Base: base, Attacker: attacker, Sizes: sizes, Answers: &Answers{},
		http: &http.Client{Transport: transport, Timeout: callLimit},
	}
}

// Close closes the idle connections.
func (a *Arena) Close() { a.http.CloseIdleConnections() }

// Answers counts responses by status and code. The zero value is ready.
type Answers struct {
	mu sync.Mutex
	of map[string]int
}

func (a *Answers) add(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[string]int{}
	}
	a.of[what]++
}

// Select returns the responses whose name has a prefix, as text in the order of the names.
func (a *Answers) Select(prefix string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(a.of)) {
		if strings.HasPrefix(what, prefix) {
			parts = append(parts, fmt.Sprintf("%s x %d", what, a.of[what]))
		}
	}
	return strings.Join(parts, ", ")
}

// Wrong counts the responses that are a failure of the service: a 5xx, except a 503 with
// Retry-After.
func (a *Answers) Wrong() (count int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for what, n := range a.of {
		if strings.HasPrefix(what, "5") && (!strings.HasPrefix(what, "503 ") || strings.HasSuffix(what, noRetryAfter)) {
			count += n
		}
	}
	return count
}

const noRetryAfter = " without Retry-After"

// reply is a response of the service; status 0 is none.
type reply struct {
	status int
	body   []byte
	wait   time.Duration
}

// fetch makes one call, and counts its response.
func (a *Arena) fetch(ctx context.Context, key string, r hostiletest.Request) (reply, error) {
	body, err := r.Reader()
	if err != nil {
		return reply{}, err
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, a.Base+"/api/v1"+r.Path, body)
	if err != nil {
		return reply{}, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return a.send(req)
}

// post sends an event to a webhook, and ignores the response.
func (a *Arena) post(ctx context.Context, url string, body []byte) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		a.Answers.add("no call")
		return
	}
	_, _ = a.send(req) // what comes back is counted
}

// send makes a call, reads its response, and counts it.
func (a *Arena) send(req *http.Request) (reply, error) {
	res, err := a.http.Do(req)
	if err != nil {
		a.Answers.add("no answer")
		return reply{}, fmt.Errorf("%s: %w", req.Method, err)
	}
	defer func() { _ = res.Body.Close() }()
	const most = 1 << 20
	text, err := io.ReadAll(io.LimitReader(res.Body, most))
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
	}
	if err != nil {
		a.Answers.add("broken answer")
		return reply{}, fmt.Errorf("%s: read answer: %w", req.Method, err)
	}
	a.Answers.add(nameOf(res, text))
	seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
	return reply{res.StatusCode, text, time.Duration(seconds) * time.Second}, nil
}

// nameOf is the status of an answer, and the code of an error.
func nameOf(res *http.Response, body []byte) string {
	name := strconv.Itoa(res.StatusCode)
	if res.StatusCode < 400 {
		return name
	}
	var envelope struct {
		Code string `json:"code"`
	}
	if json.Unmarshal(body, &envelope) == nil {
		name += " " + envelope.Code
	}
	if res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") == "" {
		name += noRetryAfter
	}
	return name
}

// try makes one call of the attacker, and ignores the response.
func (a *Arena) try(ctx context.Context, request hostiletest.Request) reply {
	r, err := a.fetch(ctx, a.Attacker.Key, request)
	if err != nil {
		return reply{}
	}
	return r
}

// must makes a call of the attacker until it is neither refused for load nor left without a
// response.
func (a *Arena) must(ctx context.Context, request hostiletest.Request) (reply, error) {
	for {
		r, err := a.fetch(ctx, a.Attacker.Key, request)
		if err == nil && r.status < 300 {
			return r, nil
		}
		if err == nil && r.status != http.StatusServiceUnavailable && r.status != http.StatusTooManyRequests {
			return r, fmt.Errorf("%s %s: %d %.300s", request.Method, request.Path, r.status, r.body)
		}
		if waitErr := backoff.Pause(ctx, max(r.wait, 200*time.Millisecond), nil); waitErr != nil {
			return r, errors.Join(err, waitErr)
		}
	}
}

func post(path string, body any) hostiletest.Request {
	return hostiletest.Request{Method: http.MethodPost, Path: path, Body: body}
}

func get(path string) hostiletest.Request {
	return hostiletest.Request{Method: http.MethodGet, Path: path}
}

// sends makes sends of a point for each number, so many at a time.
func (a *Arena) sends(ctx context.Context, count, parallel int, point func(n int) hostiletest.Point) error {
	return each(ctx, count, parallel, func(ctx context.Context, n int) error {
		_, err := a.must(ctx, hostiletest.Send(point(n)))
		return err
	})
}

// each calls do count times, parallel at a time, and ends with the first error.
func each(ctx context.Context, count, parallel int, do func(ctx context.Context, n int) error) error {
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for n := range count {
		if working.Err() != nil {
			break
		}
		group.Go(func() error { return do(working, n) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// during calls do repeatedly, parallel at a time, until the time is over.
func during(ctx context.Context, lasts time.Duration, parallel int, do func(ctx context.Context, n int)) error {
	end := time.Now().Add(lasts)
	return each(ctx, parallel, parallel, func(ctx context.Context, n int) error {
		for time.Now().Before(end) && ctx.Err() == nil {
			do(ctx, n)
		}
		return ctx.Err()
	})
}

// awaitSettled waits until no send of the attacker is in progress.
func (a *Arena) awaitSettled(ctx context.Context) error {
	sent, err := a.must(ctx, hostiletest.Send(
		hostiletest.Point{ID: "last", Content: fmt.Sprintf("The last text, of %d.", time.Now().UnixNano())}))
	if err != nil {
		return err
	}
	var receipt struct {
		IngestionID string `json:"ingestionId"`
	}
	if err := json.Unmarshal(sent.body, &receipt); err != nil {
		return fmt.Errorf("read receipt: %w", err)
	}
	for {
		got, err := a.must(ctx, get("/ingest/"+receipt.IngestionID))
		if err != nil {
			return err
		}
		var status struct{ Settled, Blocked bool }
		if err := json.Unmarshal(got.body, &status); err != nil {
			return fmt.Errorf("read status: %w", err)
		}
		if status.Settled || status.Blocked {
			return nil
		}
		if err := backoff.Pause(ctx, 200*time.Millisecond, nil); err != nil {
			return err
		}
	}
}
