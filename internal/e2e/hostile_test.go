package e2e

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/hostiletest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/scrapetest"
	"github.com/annals-project/annals/internal/seedtest"
	"github.com/annals-project/annals/readapi"
)

// The size of a hostile walk. ANNALS_HOSTILE sets a duration instead.
const (
	hostileSteps   = 120
	hostileWorkers = 6
	// hostileWarm is the part of the steps, as one of so many, after which memory and goroutines are
	// measured first.
	hostileWarm = 4
	// hostileFailures ends a walk that is wrong all the time.
	hostileFailures = 25
	// hostileHang is how long a call may take before it counts as hung.
	hostileHang = 4 * time.Minute
)

// What may be left once all calls are over, compared with the warm service.
const (
	moreGoroutines = 60
	moreHeap       = 96 << 20
)

// No call of a key stops the service, gets anything of another tenant out of it, or leaves anything
// running in it.
func TestHostileCalls(t *testing.T) {
	t.Parallel()
	var lasts time.Duration
	if said := os.Getenv("ANNALS_HOSTILE"); said != "" {
		var err error
		lasts, err = time.ParseDuration(said)
		runtest.Must(t, err)
	}
	newHostileWalk(t, seedtest.Of(t)).walk(lasts)
}

// hostileWalk is a random walk of three keys of two organizations over every route, and of a fourth that makes nothing
// but estimates.
type hostileWalk struct {
	*tenancy
	seed     uint64
	http     *http.Client
	contract *apitest.Contract
	callers  []*hostiletest.Caller
	// clients read what the walk itself needs to know of the callers.
	clients []*client.Client
	// estimator is the key whose project stays empty.
	estimator *hostiletest.Caller
	// started is when the process began, by its own account.
	started float64

	calls    atomic.Int64
	failures atomic.Int64
	mu       sync.Mutex
	answers  map[string]int
}

// drained is what is left of a service that nobody calls.
type drained struct {
	goroutines, heap, resident float64
}

func newHostileWalk(t *testing.T, seed uint64) *hostileWalk {
	t.Helper()
	t.Logf("seed %d", seed)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost, transport.DisableCompression = 32, true
	t.Cleanup(transport.CloseIdleConnections)
	w := &hostileWalk{
		tenancy: &tenancy{service: newService(t, sharedPostgres(t))}, seed: seed, contract: apitest.Load(t, readapi.OpenAPI), answers: map[string]int{},
		http: &http.Client{
			Transport:     transport,
			Timeout:       hostileHang,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	w.start()
	w.management, w.other = w.credentials()["ANNALS_MANAGEMENT_KEY"], w.organization(otherOrganization)
	management := []string{w.management, w.other}
	w.tenancy.http = w.http
	for n, organization := range []int{0, 0, 1} {
		made, _ := w.newTenant(management[organization], fmt.Sprintf("hostile %d", n))
		marker := make([]byte, 6)
		rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(n)}).Read(marker) //nolint:errcheck // it never fails
		name := []string{ownOrganization, otherOrganization}[organization]
		c := &hostiletest.Caller{
			Key: made.key, Management: made.management, Slug: made.slug, Organization: organization,
			Marker: "zm" + hex.EncodeToString(marker),
		}
		var id string
		id, c.Token = w.newWebhook(name, made.slug)
		c.Add("webhook", id)
		c.Add("organization", w.organizationID(name))
		w.callers, w.clients = append(w.callers, c), append(w.clients, w.with(made.key))
	}
	w.newEstimator()
	w.started = w.metric("process_start_time_seconds")
	return w
}

func (w *hostileWalk) metric(series string) float64 {
	w.t.Helper()
	value, err := scrapetest.Metric(w.t.Context(), w.clients[0].BaseURL(), series)
	if err != nil {
		w.t.Fatalf("read metric %s: %v", series, err)
	}
	return value
}

// walk calls until the steps are made or, where lasts is set, until it is over.
func (w *hostileWalk) walk(lasts time.Duration) {
	warm, rest := hostileSteps/hostileWarm, hostileSteps-hostileSteps/hostileWarm
	warmFor := min(lasts/hostileWarm, 5*time.Minute)
	if lasts > 0 {
		const most = 1 << 40
		warm, rest = most, most
	}
	w.attack(0, warm, warmFor)
	before, warmCalls := w.drain(drained{}), w.calls.Load()
	w.attack(1, rest, lasts-warmFor)
	if w.calls.Load() == warmCalls {
		w.t.Errorf("seed %d: no call was made after the first %d", w.seed, warmCalls)
	}
	after := w.drain(before)
	w.t.Logf("%d calls; goroutines %.0f then %.0f, heap %.0f then %.0f MiB, resident %.0f then %.0f MiB", w.calls.Load(),
		before.goroutines, after.goroutines, before.heap/(1<<20), after.heap/(1<<20), before.resident/(1<<20),
		after.resident/(1<<20))
	for _, line := range slices.Sorted(maps.Keys(w.answers)) {
		w.t.Logf("%6d %s", w.answers[line], line)
	}
	if w.metric("process_start_time_seconds") != w.started {
		w.fail("the process was restarted")
	}
	// What was stored does not stop the next start either.
	w.stop()
	w.start()
	w.calm()
	w.estimatesLeftNothing()
	for line := range strings.Lines(w.log.String()) {
		if strings.Contains(line, "panic") {
			w.t.Errorf("the log of the service has a panic: %.2000s", line)
			break
		}
	}
}

func (w *hostileWalk) worker(caller *hostiletest.Caller, number int, part uint64) *hostileWorker {
	return &hostileWorker{
		hostileWalk: w, caller: caller,
		draw: hostiletest.NewDrawer(w.seed, part<<32|uint64(number), caller, w.callers), //nolint:gosec // a number of a worker is not negative
	}
}

// attack lets every worker make its share of the steps, for so long at most unless lasts is 0. part
// makes the sequences of the parts differ.
func (w *hostileWalk) attack(part uint64, steps int, lasts time.Duration) {
	until := time.Now().Add(lasts)
	var group sync.WaitGroup
	work := func(number int, caller *hostiletest.Caller, left *atomic.Int64, step func(*hostileWorker)) {
		worker := w.worker(caller, number, part)
		group.Go(func() {
			for left.Add(-1) >= 0 && w.failures.Load() < hostileFailures && w.alive() {
				if lasts > 0 && time.Now().After(until) {
					return
				}
				step(worker)
			}
		})
	}
	var left, estimates atomic.Int64
	left.Store(int64(steps))
	estimates.Store(int64(steps / hostileWorkers))
	for n := range hostileWorkers {
		work(n, w.callers[n%len(w.callers)], &left, (*hostileWorker).step)
	}
	work(hostileWorkers, w.estimator, &estimates, (*hostileWorker).estimate)
	group.Wait()
	if !w.alive() {
		w.t.Fatalf("seed %d: the service ended after %d calls", w.seed, w.calls.Load())
	}
}

// alive is whether the process runs.
func (w *hostileWalk) alive() bool {
	select {
	case err := <-w.done:
		w.done <- err
		return false
	default:
		return true
	}
}

// fail notes something wrong; the walk goes on, up to a bound.
func (w *hostileWalk) fail(format string, args ...any) {
	if w.failures.Add(1) <= hostileFailures {
		w.t.Errorf("seed %d: %s", w.seed, fmt.Sprintf(format, args...))
	}
}

// calm waits until no send of any caller is in progress.
func (w *hostileWalk) calm() {
	w.t.Helper()
	w.http.CloseIdleConnections()
	last := make([]string, len(w.callers))
	runtest.Await(w.t, "no send is in progress", func() bool { return w.settled(last) })
}

// drain waits until the service is calm and, where there is something to compare with, until what the calls took is
// given back.
func (w *hostileWalk) drain(before drained) (now drained) {
	w.t.Helper()
	w.calm()
	defer func() {
		if w.t.Failed() {
			w.t.Logf("seed %d: the service is left with %+v; warm it had %+v", w.seed, now, before)
		}
	}()
	runtest.Await(w.t, "what the calls took is given back", func() bool {
		now = w.measure()
		return before == drained{} || now.goroutines <= before.goroutines+moreGoroutines && now.heap <= 2*before.heap+moreHeap
	})
	return now
}

// settled is whether no send of any caller is in progress. last holds the send that each is asked
// by.
func (w *hostileWalk) settled(last []string) bool {
	w.t.Helper()
	for n, c := range w.clients {
		if last[n] == "" {
			text := client.DataPoint{ID: "last", Content: "The last text of " + w.callers[n].Marker + "."}
			receipt, err := c.Ingest(w.t.Context(), text)
			if err != nil {
				w.t.Fatalf("seed %d: a harmless send after the walk: %v", w.seed, err)
			}
			last[n] = receipt.IngestionID
		}
		status, err := c.GetIngestion(w.t.Context(), last[n])
		if err != nil {
			w.t.Fatalf("seed %d: a harmless poll after the walk: %v", w.seed, err)
		}
		if !status.Settled && !status.Blocked {
			return false
		}
	}
	return true
}

// measure reads what is in use, the heap right after a collection that harmless recalls bring
// about.
func (w *hostileWalk) measure() drained {
	w.t.Helper()
	var now drained
	const collections, most = 2, 5000
	until := w.metric("go_gc_duration_seconds_count") + collections
	for n := 0; n < most && w.metric("go_gc_duration_seconds_count") < until; n++ {
		for range 5 {
			harmless := client.RecallRequest{Query: "tea", Identity: "walk", Limit: 1}
			if _, err := w.clients[0].Recall(w.t.Context(), harmless); err != nil {
				w.t.Fatalf("seed %d: a harmless recall after the walk: %v", w.seed, err)
			}
		}
		if heap := w.metric("go_memstats_heap_alloc_bytes"); now.heap == 0 || heap < now.heap {
			now.heap = heap
		}
	}
	now.goroutines, now.resident = w.metric("go_goroutines"), w.metric("process_resident_memory_bytes")
	return now
}

// newEstimator makes the project that stays empty. From then on no event is about it.
func (w *hostileWalk) newEstimator() {
	w.t.Helper()
	made, _ := w.newTenant(w.management, "hostile estimates")
	w.estimator = &hostiletest.Caller{Key: made.key, Management: made.management, Slug: made.slug, Marker: "zmestimator"}
	w.newTenant(w.management, walkBegins)
}

// estimatesLeftNothing estimates every hostile file once more. Then the project of the estimates still holds nothing:
// no event is about it, no call of it is logged, nothing is charged, and nothing is recalled.
func (w *hostileWalk) estimatesLeftNothing() {
	w.t.Helper()
	key, worker := w.estimator.Key, w.worker(w.estimator, hostileWorkers, 2)
	for _, points := range []string{"summary", "full", "none"} {
		text, err := json.Marshal(worker.draw.Estimates.All(points))
		runtest.Must(w.t, err)
		answer := w.must(key, http.MethodPost, estimateRoute, string(text))
		if files, _ := answer["files"].([]any); len(files) != len(worker.draw.Estimates.Files) || answer["dataPoints"] == 0.0 {
			w.t.Errorf("%d files with %v data points", len(files), answer["dataPoints"])
		}
	}
	w.untouched([]string{"estimates"}, func(string) string { return w.estimator.Slug })
	for _, look := range []struct {
		path  string
		wants []string
	}{
		{"/requests", []string{`"requests":[]`}}, // first, since the others are in the log
		{"/identities", []string{`"identities":[]`}},
		{"/trace/roots", []string{`"sources":{"nodes":[]`, `"memories":{"nodes":[]`}},
		{"/audiences", []string{`"audiences":[{"slug":"project",`, `"memberCount":0,"memoryCount":0,`, `"rule":null}]}`}},
		{"/usage", []string{`"ingestions":0,"recalls":0,`}},
	} {
		_, body := w.call(key, http.MethodGet, look.path, "")
		for _, want := range look.wants {
			if !strings.Contains(body, want) {
				w.t.Errorf("%s of who made only estimates lacks %s: %.1000s", look.path, want, body)
			}
		}
	}
	query, err := json.Marshal(map[string]any{"query": "tea " + w.estimator.Marker, "identity": "walk", "limit": 200})
	runtest.Must(w.t, err)
	if page := w.must(key, http.MethodPost, "/recall", string(query)); fmt.Sprint(page["results"]) != "[]" {
		w.t.Errorf("who made only estimates recalls %v", page["results"])
	}
}
