package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/internal/webtest"
	"github.com/annals-project/annals/projections/runner"
)

// harness is a service in this process, whose parts a test can reach.
type harness struct {
	*Server
	t   testing.TB
	dir string
	// place is the organization of the test on the shared service, nil on a service of its own.
	place *place
	// postgres is the database, by default one of the tests' server.
	postgres string
	stop     func()
	// sends are the ids of all sends, by the key that may poll them.
	sends map[string][]string
	// recalled counts the answered recalls by key. acme is the management key of another organization.
	recalled tally
	acme     string
	// traced are the ids of the nodes that were once listed, by key, and window the window of their timelines.
	traced map[string][]string
	window string
	// arrange changes the service before it runs. It may be nil.
	arrange func(*Server)
	// set changes the configuration. It may be nil.
	set func(*Config)
	// ahead is how far the clock of the service is ahead of that of the machine, in nanoseconds.
	ahead atomic.Int64
}

// newHarness is a service on a data folder that does not exist yet.
func newHarness(t testing.TB) *harness {
	return &harness{t: t, dir: filepath.Join(t.TempDir(), "data"), sends: map[string][]string{}}
}

// unraced leaves a test out of make race, which runs with -short: it makes one call after the other, and the calls that
// others make at once run under the race detector.
func unraced(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("make test runs it")
	}
}

// credentials are the keys of the test, by name: on a service of its own those that it wrote into its data folder.
func (h *harness) credentials() map[string]string {
	h.t.Helper()
	if h.place != nil {
		return h.place.keys
	}
	values, err := datafolder.ReadCredentials(h.dir)
	runtest.Must(h.t, err)
	return values
}

// keys are the keys of the first project and of the first organization.
func (h *harness) keys() (project, management string) {
	h.t.Helper()
	values := h.credentials()
	return values[datafolder.ProjectKeyName], values[datafolder.ManagementKeyName]
}

// tally counts by key, for any goroutine.
type tally struct {
	mu sync.Mutex
	by map[string]int64
}

func (c *tally) add(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[string]int64{}
	}
	c.by[key]++
}

func (c *tally) of(key string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[key]
}

// config is the configuration of the service.
func (h *harness) config() Config {
	if h.postgres == "" {
		h.postgres = pgtest.URL(h.t)
	}
	cfg := Config{
		Data: datafolder.Folder{Dir: h.dir}, APIAddr: "127.0.0.1:0", ConsoleAddr: "127.0.0.1:0",
		EventStore: Embedded, Postgres: h.postgres, Derive: true, PlanTerms: metering.DefaultPlanTerms(),
		Logger: runtest.Warnings(h.t),
		Clock:  func() time.Time { return time.Now().Add(time.Duration(h.ahead.Load())) },
		SignIn: SignIn{HashMemory: 64},
		Audit:  AuditConfig{Every: time.Hour}, // a test that is about checkpoints signs them itself
	}
	if h.set != nil {
		h.set(&cfg)
	}
	return cfg
}

// start starts the service on its data folder.
func (h *harness) start() {
	h.t.Helper()
	ready, done := make(chan struct{}), make(chan error, 1)
	cfg := h.config()
	cfg.Ready = func(auth.URLs) { close(ready) }
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.t.Context()))
	var err error
	h.Server, err = New(ctx, cfg)
	runtest.Must(h.t, err)
	if h.arrange != nil {
		h.arrange(h.Server)
	}
	go func() { done <- h.Run(ctx) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			h.t.Errorf("run: %v", err)
		}
		if err := h.Close(); err != nil {
			h.t.Errorf("close: %v", err)
		}
	})
	h.t.Cleanup(func() { h.stop() })
	select {
	case <-ready:
	case <-time.After(runtest.Timeout):
		h.t.Fatalf("the service is not ready after %s", runtest.Timeout)
	}
}

// call makes a request and returns its status and body. Any goroutine may call it.
func (h *harness) call(key, method, path string, body any, headers ...string) (int, []byte) {
	h.t.Helper()
	got := h.fetchAPI(key, method, path, body, headers...)
	return got.status, []byte(got.body)
}

// fetchAPI makes a request to the API, and returns the answer whatever it is.
func (h *harness) fetchAPI(key, method, path string, body any, headers ...string) answer {
	h.t.Helper()
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			h.t.Error(err)
		}
	}
	got := h.fetch(method, h.urls.API+path, key, string(text), headers...)
	if path == api+"/recall" && got.status == http.StatusOK {
		h.recalled.add(key)
	}
	return got
}

// must makes a request that has to succeed, and decodes the answer into out.
func (h *harness) must(key, method, path string, body, out any, headers ...string) {
	h.t.Helper()
	status, answer := h.call(key, method, path, body, headers...)
	if status/100 != 2 {
		h.t.Errorf("%s %s: %d %s", method, path, status, answer)
		return
	}
	if out != nil {
		if err := json.Unmarshal(answer, out); err != nil {
			h.t.Error(err)
		}
	}
}

// answer is an answer as it came, with the request that it answers.
type answer struct {
	request *http.Request
	status  int
	header  http.Header
	body    string
}

// want checks an answer, as of a page.
func (a answer) want(t testing.TB, status int, has ...string) page {
	t.Helper()
	return page{webtest.Answer{Status: a.status, Body: a.body}}.want(t, status, has...)
}

// fetch makes a request, with a key if there is one, and returns the answer whatever it is. A body is JSON unless a
// header has another type. Any goroutine may call it.
func (h *harness) fetch(method, url, key, body string, headers ...string) answer {
	h.t.Helper()
	req, err := http.NewRequestWithContext(context.WithoutCancel(h.t.Context()), method, url, strings.NewReader(body))
	if err != nil {
		h.t.Error(err)
		return answer{}
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Errorf("%s %s: %v", method, url, err)
		return answer{request: req}
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Errorf("%s %s: %v", method, url, err)
	}
	return answer{req, res.StatusCode, res.Header, string(text)}
}

// eraseNow erases what is deleted, as an operator does.
func (h *harness) eraseNow() {
	h.t.Helper()
	_, err := operatorapi.EraseNow.Call(h.t.Context(), operatorapi.Dial(h.dir), operatorapi.None{})
	runtest.Must(h.t, err)
}

// rebuilds rebuilds every projection of the running service.
func (h *harness) rebuilds() {
	h.t.Helper()
	for _, name := range h.read.runtime.Names() {
		err := operatorapi.Dial(h.dir).Rebuild(
			h.t.Context(), name, runner.RebuildOptions{}, func(runner.RebuildProgress) {},
		)
		if err != nil {
			h.t.Errorf("rebuild %s: %v", name, err)
		}
	}
}

// sendTeaAndRecall sends one text and recalls it, with the key of the first project.
func (h *harness) sendTeaAndRecall() {
	h.t.Helper()
	key, _ := h.keys()
	h.send(key, "/ingest", "completed", point{"id": "a", "content": "Ana likes tea."})
	h.must(key, http.MethodPost, api+"/recall", point{"query": "tea", "identity": "ana"}, nil)
}

const api = "/api/v1"

type point map[string]any

// send makes a send and waits until its status is end.
func (h *harness) send(key, path, end string, body any, headers ...string) string {
	h.t.Helper()
	var receipt struct{ IngestionID string }
	h.must(key, http.MethodPost, api+path, body, &receipt, headers...)
	if h.t.Failed() {
		h.t.FailNow()
	}
	h.sends[key] = append(h.sends[key], receipt.IngestionID)
	h.await(key, receipt.IngestionID, end)
	return receipt.IngestionID
}

func (h *harness) await(key, id, end string) {
	h.t.Helper()
	runtest.Await(h.t, "send "+id+" is "+end, func() bool {
		var status struct{ Status string }
		h.must(key, http.MethodGet, api+"/ingest/"+id, nil, &status)
		return status.Status == end
	})
}

// events returns every event of the log, on the shared service those of the test.
func (h *harness) events() []eventstore.Recorded {
	h.t.Helper()
	if h.place == nil {
		return eventstoretest.All(h.t, h.storage.store, 0)
	}
	mine := h.belongs()
	return slices.DeleteFunc(eventstoretest.All(h.t, h.storage.store, h.place.before),
		func(e eventstore.Recorded) bool { return !mine(e) })
}

func (h *harness) count(typ string) (n int) {
	h.t.Helper()
	for _, e := range h.events() {
		if e.Type == typ {
			n++
		}
	}
	return n
}

// underLoad calls do while callers recall, poll, and at each third turn send. None of their requests may fail.
func (h *harness) underLoad(key string, do func()) {
	h.t.Helper()
	var callers sync.WaitGroup
	var ended atomic.Bool
	var mu sync.Mutex
	for caller := range 3 {
		callers.Go(func() {
			var receipt struct{ IngestionID string }
			for n := 0; !ended.Load(); n++ {
				if n%3 == 0 {
					id := fmt.Sprintf("load-%d-%d", caller, n)
					h.must(key, http.MethodPost, api+"/ingest", point{"id": id, "content": "Load " + id + " likes plums."}, &receipt)
					mu.Lock()
					h.sends[key] = append(h.sends[key], receipt.IngestionID)
					mu.Unlock()
				}
				h.must(key, http.MethodPost, api+"/recall", point{"query": "Who likes plums?", "identity": "Ana"}, nil)
				h.must(key, http.MethodGet, api+"/ingest/"+receipt.IngestionID, nil, nil)
			}
		})
	}
	do()
	ended.Store(true)
	callers.Wait()
	for _, id := range h.sends[key][len(h.sends[key])-min(3, len(h.sends[key])):] {
		h.await(key, id, "completed")
	}
	runtest.Await(h.t, "all sends have ended", func() bool {
		var s struct {
			Readiness struct{ Raw, Comprehension int }
		}
		h.must(key, http.MethodGet, api+"/ingest/"+h.sends[key][0], nil, &s)
		return s.Readiness.Raw == 0 && s.Readiness.Comprehension == 0
	})
	h.t.Logf("%d sends during it", len(h.sends[key]))
}

// operate makes a request of an operator to the running service and returns its answer.
func operate[In, Out any](h *harness, operation operatorapi.OrganizationCommand[In, Out], in In) Out {
	h.t.Helper()
	out, err := operation.Call(h.t.Context(), operatorapi.Dial(h.dir), in)
	runtest.Must(h.t, err)
	return out
}

// target names an organization of the test, "" its own.
func (h *harness) target(organization string) operatorapi.Target {
	if organization == "" && h.place != nil {
		organization = "Annals"
	}
	return operatorapi.Target{Organization: h.name(organization), By: "operator test"}
}

func (h *harness) createAcme() tenants.Organization {
	h.t.Helper()
	return operate(h, operatorapi.CreateOrganization,
		operatorapi.NewOrganization{
			NewOrganization: tenancy.NewOrganization{Name: h.name("Acme"), Plan: "payg", OwnerEmail: h.mail("ana")},
			By:              "operator test",
		})
}

func (h *harness) setPlan(organization, plan string) {
	h.t.Helper()
	operate(h, operatorapi.SetPlan, operatorapi.PlanRequest{Target: h.target(organization), Plan: metering.Plan(plan)})
}

func (h *harness) grant(organization string, tenths int64) {
	h.t.Helper()
	operate(h, operatorapi.GrantCredits, operatorapi.CreditsRequest{Target: h.target(organization), Tenths: tenths})
}

func (h *harness) setSpendCap(organization string, tenths *int64) {
	h.t.Helper()
	operate(h, operatorapi.SetSpendCap, operatorapi.SpendCapRequest{Target: h.target(organization), Tenths: tenths})
}

func (h *harness) rotateKey(organization string) tenants.Organization {
	h.t.Helper()
	return operate(h, operatorapi.RotateManagementKey, h.target(organization))
}

func (h *harness) setArchived(organization, slug string, archived bool) {
	h.t.Helper()
	operate(h, operatorapi.SetArchived,
		operatorapi.ArchiveRequest{Target: h.target(organization), Slug: slug, Archived: archived})
}

// setCaps sets the caps that are not nil.
func (h *harness) setCaps(organization, slug string, ingestion, creditTenths *int64) {
	h.t.Helper()
	operate(h, operatorapi.SetCaps, operatorapi.CapsRequest{
		Target: h.target(organization), Slug: slug, Caps: tenancy.Caps{
			SetIngestion: ingestion != nil, Ingestion: ingestion,
			SetCredit: creditTenths != nil, CreditTenths: creditTenths,
		},
	})
}

var (
	errSilent  = errors.New("no answer")
	errRefused = errors.New("wrong password")
)

func TestAwaitServer(t *testing.T) {
	isRefusal := func(err error) bool { return errors.Is(err, errRefused) }
	for name, test := range map[string]struct {
		answers []error
		want    error
	}{
		"answers at once":  {[]error{nil}, nil},
		"starts meanwhile": {[]error{errSilent, nil}, nil},
		"refuses":          {[]error{errRefused}, errRefused},
		"starts to refuse": {[]error{errSilent, errRefused}, errRefused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tries := 0
			err := awaitServer(t.Context(), slog.New(slog.DiscardHandler), "it", func() error {
				tries++
				return test.answers[tries-1]
			}, isRefusal)
			if !errors.Is(err, test.want) || tries != len(test.answers) {
				t.Errorf("%d tries, %v; want %d, %v", tries, err, len(test.answers), test.want)
			}
		})
	}
}

func TestAwaitServer_ContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := awaitServer(ctx, slog.New(slog.DiscardHandler), "it", func() error { cancel(); return errSilent },
		func(error) bool { return false })
	if !errors.Is(err, errSilent) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want both why it was tried again and why it ended", err)
	}
}
