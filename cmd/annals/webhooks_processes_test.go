package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/tenants"
)

// webhookTest are the tests of webhooks on one deployment.
type webhookTest struct {
	*deployment
}

// annals runs a command on webhooks on the first process.
func (w *webhookTest) annals(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	return annals(t.Context(), nil, stdin, append([]string{"webhook"}, append(args, "--data-dir", w.processes[0].dir)...)...)
}

// object runs a command that prints one JSON object.
func (w *webhookTest) object(t *testing.T, into any, args ...string) {
	t.Helper()
	got := w.annals(t, "", append(args, "--json")...)
	if err := json.Unmarshal([]byte(got.stdout), into); got.code != exitOK || err != nil {
		t.Fatalf("annals webhook %v: %+v, %v", args, got, err)
	}
}

func (w *webhookTest) create(t *testing.T, args ...string) (made tenants.Webhook) {
	t.Helper()
	w.object(t, &made, append([]string{"create", "--project", "default", "--name", "Tickets"}, args...)...)
	return made
}

// eventAnswer is what a process answers to an event.
type eventAnswer struct {
	status                     int
	Code, Verdict, IngestionID string
}

// event sends an event to a process. The status is 0 if there is no answer.
func (s *served) event(hook tenants.Webhook, body string) (a eventAnswer) {
	at, err := url.Parse(hook.URL)
	if err != nil {
		s.d.t.Error(err)
		return a
	}
	res, err := http.Post("http://"+s.addr+at.Path, "", strings.NewReader(body))
	if err != nil {
		return a // the process is being killed
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil || len(text) > 0 && json.Unmarshal(text, &a) != nil {
		return eventAnswer{}
	}
	a.status = res.StatusCode
	return a
}

// commands checks that what a command changes holds on the other process from its next call on.
func (w *webhookTest) commands(t *testing.T) {
	two := w.processes[1]
	hook := w.create(t, "--content-path", "$.text", "--id-path", "$.id", "--filter", "$.kind is-any-of note task", "--filter", "$.text exists")
	const note, other = `{"kind":"note","id":7,"text":"The kiln is at 1,240 degrees."}`, `{"kind":"Note","text":"a"}`
	want := func(what, body string, status int, is string) {
		t.Helper()
		if a := two.event(hook, body); a.status != status || a.Verdict+a.Code != is {
			t.Errorf("%s: %+v, want %d %s", what, a, status, is)
		}
	}
	want("created", note, http.StatusAccepted, "ingested")
	want("filtered", other, http.StatusOK, "dropped")
	for range 3 {
		w.object(t, &hook, "pause", hook.ID)
		want("paused", note, http.StatusConflict, "webhook-paused")
		w.object(t, &hook, "resume", hook.ID)
		want("resumed", other, http.StatusOK, "dropped")
		before := hook
		w.object(t, &hook, "rotate-token", hook.ID)
		if a := two.event(before, note); a.status != http.StatusNotFound || a.Code != "not-found" || hook.URL == before.URL {
			t.Errorf("the URL from before the rotation: %+v", a)
		}
		want("rotated", other, http.StatusOK, "dropped")
	}
	w.object(t, &hook, "change", hook.ID, "--name", "Parcels", "--content-path", "$")
	want("changed", other, http.StatusAccepted, "ingested")

	var shown tenants.Webhook
	var list []tenants.Webhook
	w.object(t, &shown, "show", hook.ID)
	w.object(t, &list, "list", "--project", "default")
	if shown.URL != hook.URL || shown.Name != "Parcels" || len(shown.Filters) != 0 || len(list) != 1 || list[0].URL != "" {
		t.Errorf("shown %+v, listed %+v", shown, list)
	}
	file := filepath.Join(t.TempDir(), "event.json")
	if err := os.WriteFile(file, []byte(`{"text":"only tried"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := w.annals(t, "", "try", hook.ID, file); got.code != exitOK || !strings.Contains(got.stdout, "only tried") {
		t.Errorf("tried: %+v", got)
	}
	w.object(t, &shown, "delete", hook.ID, "--yes")
	want("deleted", note, http.StatusNotFound, "not-found")
	w.object(t, &list, "list", "--project", "default")
	if len(list) != 0 {
		t.Errorf("listed after the deletion: %+v", list)
	}
}

func (w *webhookTest) wrongUse(t *testing.T) {
	hook := w.create(t, "--content-path", "$.text")
	create := []string{"create", "--project", "default", "--name", "a", "--content-path"}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{append(create, "$.a", "--filter", "$.b is"), exitFailed, `filter 1: "is" has 0 values`},
		{append(create, "$.a", "--filter", "$.b exists", "--filter", "$.c like x"), exitFailed, "filter 2:"},
		{append(create, "$..a"), exitFailed, `content path: ".." is not supported`},
		{append(create, "$.a", "--id-path", "$[-1]"), exitFailed, "id path: an index counts from 0"},
		{append(create, "$.a", "--occurred-at-path", "at"), exitFailed, "occurred-at path: a path begins with $"},
		{append(create, "$.a", "--audience", "nobody-has-it"), exitFailed, "nobody-has-it"},
		{append(create, "$.a", "--project", "none-such"), exitFailed, "none-such"},
		{[]string{"create", "--project", "default", "--name", " ", "--content-path", "$"}, exitFailed, "name: want 1 to 64"},
		{[]string{"create", "--project", "default", "--name", "a"}, exitUsage, "content-path"},
		{[]string{"show", "whk_unknown"}, exitFailed, "there is no such webhook"},
		{[]string{"show", hook.ID, "--org", "nobody"}, exitFailed, "there is no such webhook"},
		{[]string{"try", hook.ID, filepath.Join(t.TempDir(), "none")}, exitFailed, "open the event"},
		{[]string{"delete", hook.ID}, exitUsage, "add --yes"},
	} {
		if got := w.annals(t, "", c.args...); got.code != c.code || !strings.Contains(got.stderr, c.says) || got.stdout != "" {
			t.Errorf("annals webhook %q: %+v, want exit code %d, %q", c.args, got, c.code, c.says)
		}
	}
	long := strings.Repeat("a", limit.WebhookBody+1)
	if got := w.annals(t, long, "try", hook.ID, "-"); got.code != exitFailed || !strings.Contains(got.stderr, "more than") {
		t.Errorf("a long event: exit code %d, %s", got.code, got.stderr)
	}
	if got := w.annals(t, long[1:], "try", hook.ID, "-", "--json"); got.code != exitOK {
		t.Errorf("an event of the greatest size: exit code %d, %s", got.code, got.stderr)
	}
}

// limit sends more events to both processes than they may take in a minute.
func (w *webhookTest) limit(t *testing.T) {
	hook := w.create(t, "--content-path", "$.text", "--filter", "$.never exists")
	const senders, within = 8, limit.WebhookEvents / 20
	type span struct{ sent, answered time.Time }
	var mu sync.Mutex
	var taken []span
	var refused, sent atomic.Int64
	var all sync.WaitGroup
	for n := range senders {
		all.Go(func() {
			// Both are refused for good: no process has slots left that the other does not get.
			for i := n; refused.Load() < 60 && sent.Add(1) < 4*limit.WebhookEvents; i++ {
				began := time.Now()
				switch a := w.processes[i%2].event(hook, `{}`); a.status {
				case http.StatusOK:
					mu.Lock()
					taken = append(taken, span{began, time.Now()})
					mu.Unlock()
				case http.StatusTooManyRequests:
					refused.Add(1)
				default:
					t.Errorf("event: %+v", a)
				}
			}
		})
	}
	all.Wait()
	most := 0
	for _, first := range taken {
		count := 0
		for _, each := range taken { // those that were surely counted in the minute after it
			if !each.sent.Before(first.sent) && each.answered.Sub(first.sent) <= time.Minute {
				count++
			}
		}
		most = max(most, count)
	}
	if most > limit.WebhookEvents+within {
		t.Errorf("%d events were taken in a minute, at most %d are allowed", most, limit.WebhookEvents)
	}
	if refused.Load() >= 60 && len(taken) < limit.WebhookEvents-within {
		t.Errorf("only %d events were taken before both processes refused", len(taken))
	}
	if refused.Load() == 0 {
		t.Logf("the machine is too slow for a refusal: %d events taken, %d at most in a minute", len(taken), most)
	}
}

// kill ends a process at once while it receives events. What was answered 202 is there.
func (w *webhookTest) kill(t *testing.T) {
	hooks := []tenants.Webhook{
		w.create(t, "--content-path", "$.text", "--id-path", "$.id"), w.create(t, "--content-path", "$.text", "--id-path", "$.id"),
	}
	one, two := w.processes[0], w.processes[1]
	var mu sync.Mutex
	var accepted []string
	var stop atomic.Bool
	var all sync.WaitGroup
	for n := range 6 {
		all.Go(func() {
			for i := 0; !stop.Load() && i < limit.WebhookEvents/3; i++ {
				// A few ids, so that events also replace data points and repeat them.
				body := fmt.Sprintf(`{"id":"kill %d","text":"Sensor %d measured %d degrees."}`, i%7, n, i/2)
				a := one.event(hooks[n%2], body)
				if a.status == http.StatusAccepted {
					mu.Lock()
					accepted = append(accepted, a.IngestionID)
					mu.Unlock()
				}
			}
		})
	}
	runtest.Await(t, "some events are answered", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(accepted) >= 40
	})
	one.kill()
	stop.Store(true)
	all.Wait()
	one.start()
	c := two.client()
	for _, id := range accepted {
		got, err := c.WaitSettled(t.Context(), id, nil)
		if err != nil || got.Status != "completed" {
			t.Errorf("send %s: %+v, %v", id, got, err)
		}
	}
	t.Logf("%d events were answered before the kill", len(accepted))
}
