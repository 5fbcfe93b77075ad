package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/tenants"
)

// deployment is an event store and a database that several processes of the program share, under one clock.
type deployment struct {
	t         *testing.T
	clock     string
	env       []string // of the processes, besides the common variables
	node      string
	database  string
	db        *pgxpool.Pool
	processes []*served
}

// served is one process of a deployment.
type served struct {
	d    *deployment
	dir  string
	addr string
	args []string // more than the common ones
	cmd  *exec.Cmd
	done chan error
	// frozen is true between a SIGSTOP and the SIGCONT after it.
	frozen bool
	said   *runtest.Output
}

const api = "/api/v1"

func newDeployment(t *testing.T, at time.Time, processes int) *deployment {
	t.Helper()
	dir := t.TempDir()
	d := &deployment{t: t, clock: filepath.Join(dir, "clock"), database: pgtest.URL(t)}
	writeClock(t, d.clock, at)
	var err error
	d.db, err = pg.OpenPool(t.Context(), d.database)
	runtest.Must(t, err)
	t.Cleanup(d.db.Close)
	d.node = startNode(t, "--data-dir", filepath.Join(dir, "node"), "--insecure", "--log-level", "error").address
	for n := range processes {
		s := &served{d: d, dir: filepath.Join(dir, "data"+string(rune('a'+n))), addr: runtest.FreeAddress(t)}
		t.Cleanup(func() {
			s.stop()
			if text := s.said; t.Failed() && text != nil {
				t.Logf("%s said:\n%s", s.dir, text.Tail(6<<10))
			}
		})
		d.processes = append(d.processes, s)
	}
	return d
}

// begin starts the process without waiting for it.
func (s *served) begin() {
	s.d.t.Helper()
	key := base64.StdEncoding.EncodeToString(make([]byte, datafolder.SecretBytes))
	s.cmd = exec.Command(os.Args[0], append([]string{
		"serve", "--data-dir", s.dir, "--api-addr", s.addr, "--console-addr", "127.0.0.1:0",
		"--eventstore", s.d.node, "--postgres", s.d.database, "--log-level", "warn", "--min-free-disk", "0",
	}, s.args...)...)
	s.cmd.Env = append(append(os.Environ(), clockFile+"="+s.d.clock, "ANNALS_HASH_KEY="+key, "ANNALS_SEAL_KEY="+key),
		s.d.env...)
	s.said = &runtest.Output{}
	s.cmd.Stdout, s.cmd.Stderr = s.said, s.said
	runtest.Must(s.d.t, s.cmd.Start())
	s.done = make(chan error, 1)
	go func(cmd *exec.Cmd, done chan error) { done <- cmd.Wait() }(s.cmd, s.done)
}

// start starts the process and waits until it is ready.
func (s *served) start() {
	s.d.t.Helper()
	s.begin()
	s.ready()
}

// ready waits until the process is ready.
func (s *served) ready() {
	s.d.t.Helper()
	runtest.Await(s.d.t, "the process is ready", func() bool {
		select {
		case err := <-s.done:
			s.done <- err
			s.d.t.Fatalf("the process ended: %v\n%s", err, s.said)
		default:
		}
		res, err := http.Get("http://" + s.addr + "/readyz")
		return err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusOK
	})
}

// running reports whether the process can answer.
func (s *served) running() bool { return s.cmd != nil && !s.frozen }

// kill ends the process as a crash does.
func (s *served) kill() {
	s.d.t.Helper()
	runtest.Must(s.d.t, s.cmd.Process.Kill())
	<-s.done
	s.cmd = nil
}

// stop asks the process to end, where it runs.
func (s *served) stop() {
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		s.d.t.Error(err)
	}
	if err := <-s.done; err != nil {
		s.d.t.Errorf("%s ended with %v", s.dir, err)
	}
	s.cmd = nil
}

// key is the project key of the first start.
func (s *served) key() string {
	s.d.t.Helper()
	values, err := datafolder.ReadCredentials(s.d.processes[0].dir)
	runtest.Must(s.d.t, err)
	return values[datafolder.ProjectKeyName]
}

// client calls the process with the project key of the first start, once.
func (s *served) client() *client.Client {
	s.d.t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	s.d.t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New("http://"+s.addr, s.key(),
		client.WithMaxAttempts(1), client.WithTransport(transport), client.WithAttemptTimeout(time.Minute))
	runtest.Must(s.d.t, err)
	return c
}

// ingest sends a text to the process.
func (s *served) ingest(id, content string) {
	s.d.t.Helper()
	runtest.Must(s.d.t, errorOf(s.client().Ingest(s.d.t.Context(), client.DataPoint{ID: id, Content: content})))
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

// operate runs an operator's command on the process.
func (s *served) operate(args ...string) {
	s.d.t.Helper()
	var out, failed bytes.Buffer
	noVariable := func(string) string { return "" }
	code := run(s.d.t.Context(), append(args, "--data-dir", s.dir), noVariable, strings.NewReader(""), &out, &failed)
	if code != exitOK {
		s.d.t.Fatalf("annals %s: exit code %d, %s", strings.Join(args, " "), code, failed.String())
	}
}

// Two processes share a database: their calls, webhooks and organizations.
func TestProcesses_Two(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, time.Now(), 2)
	for _, s := range d.processes {
		s.start()
	}
	d.logsCalls() // first, since it counts calls
	d.blanksElsewhere()
	w := &webhookTest{deployment: d}
	t.Run("webhooks by commands", w.commands)
	t.Run("webhooks, wrong use", w.wrongUse)
	t.Run("webhooks, kill", w.kill)
	d.managesOrganizations() // last, since it replaces keys
}

// call calls the API with a key, and returns the answer if all of it has arrived.
func (s *served) call(key, method, path, body string) (status int, header http.Header, answer string, err error) {
	req, err := http.NewRequestWithContext(s.d.t.Context(), method, "http://"+s.addr+api+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, "", err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, res.Header, string(text), err
}

// send calls the API with the project key of the first start, and returns the answer.
func (s *served) send(method, path, body string) (status int, header http.Header, answer string) {
	s.d.t.Helper()
	status, header, answer, err := s.call(s.key(), method, path, body)
	if err != nil {
		s.d.t.Errorf("%s %s: %v", method, path, err)
	}
	return status, header, answer
}

// sendMany makes so many sends at once and returns their request ids.
func (s *served) sendMany(run string, count int) []string {
	s.d.t.Helper()
	ids := make([]string, count)
	var all sync.WaitGroup
	for n := range ids {
		all.Go(func() {
			body := fmt.Sprintf(`{"id":"%s %d","content":"Note %d of %[1]s."}`, run, n, n)
			status, header, answer := s.send("POST", "/ingest", body)
			for strings.Contains(answer, "the key could not be looked up; send the request again") { // so slow a machine
				status, header, answer = s.send("POST", "/ingest", body)
			}
			if ids[n] = header.Get("X-Request-Id"); status/100 != 2 || ids[n] == "" {
				s.d.t.Errorf("send %d of %s: %d %s", n, run, status, answer)
			}
		})
	}
	all.Wait()
	return ids
}

// logged returns how many sends the request log holds, as this process reads it.
func (s *served) logged() (count int) {
	s.d.t.Helper()
	window := url.Values{
		"from": {time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)}, "endpoint": {"POST /api/v1/ingest"},
		"to": {time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)},
	}
	status, _, answer := s.send("GET", "/requests?"+window.Encode(), "")
	var page struct{ TotalCount int }
	if err := json.Unmarshal([]byte(answer), &page); err != nil || status != http.StatusOK {
		s.d.t.Fatalf("list the request log: %d %s", status, answer)
	}
	return page.TotalCount
}

// logsCalls checks that each of two processes reads the calls of the other. A process that ends writes what it has not
// written yet; one that is killed loses no call that could be read once, and doubles none.
func (d *deployment) logsCalls() {
	t := d.t
	t.Helper()
	first, second := d.processes[0], d.processes[1]
	ids := first.sendMany("first", 40)
	runtest.Await(t, "the second process reads the calls of the first", func() bool { return second.logged() == 40 })

	ids = append(ids, first.sendMany("before the end", 60)...)
	first.stop()
	if n := second.logged(); n != 100 {
		t.Errorf("after the first process ended, the log holds %d sends of 100", n)
	}

	first.start()
	ids = append(ids, second.sendMany("second", 40)...)
	runtest.Await(t, "the first process reads the calls of the second", func() bool { return first.logged() == 140 })
	late := second.sendMany("before the crash", 40)
	second.kill()
	second.start()
	for _, id := range ids {
		if status, _, answer := first.send("GET", "/requests/"+id, ""); status != http.StatusOK {
			t.Errorf("after a crash, call %s: %d %s", id, status, answer)
		}
	}
	if n := second.logged(); n < len(ids) || n > len(ids)+len(late) {
		t.Errorf("after a crash the log holds %d sends of %d to %d", n, len(ids), len(ids)+len(late))
	}
}

// blanksElsewhere checks that a deletion in one process blanks the body of a call that another process has not written
// yet.
func (d *deployment) blanksElsewhere() {
	t := d.t
	t.Helper()
	first, second := d.processes[0], d.processes[1]
	const word = "chrysoprase"
	status, header, answer := second.send("POST", "/ingest", `{"id":"stone","content":"The stone is called `+word+`."}`)
	if status/100 != 2 {
		t.Fatalf("send: %d %s", status, answer)
	}
	if status, _, answer := first.send("POST", "/data-points/delete", `{"ids":["stone"]}`); status/100 != 2 {
		t.Fatalf("delete: %d %s", status, answer)
	}
	var call struct {
		Payload        json.RawMessage `json:"payload"`
		PayloadExpired bool            `json:"payloadExpired"`
	}
	runtest.Await(t, "the call is logged", func() bool {
		status, _, answer = first.send("GET", "/requests/"+header.Get("X-Request-Id"), "")
		return status == http.StatusOK
	})
	runtest.Must(t, json.Unmarshal([]byte(answer), &call))
	if !call.PayloadExpired || strings.Contains(answer, word) {
		t.Errorf("after the deletion the call is %s", answer)
	}
}

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
	runtest.Must(t, os.WriteFile(file, []byte(`{"text":"only tried"}`), 0o600))
	w.annals(t, "", "try", hook.ID, file).wants(t, exitOK, "only tried")
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
	w.annals(t, long, "try", hook.ID, "-").wants(t, exitFailed, "more than")
	w.annals(t, long[1:], "try", hook.ID, "-", "--json").wants(t, exitOK)
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
