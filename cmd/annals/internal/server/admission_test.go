package server

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/readapi"
)

// heldQueue is a queue of derivation in which single sends of one project wait for long, while there is one.
type heldQueue struct {
	derivationQueue
	of atomic.Pointer[uuid.UUID]
}

func (q *heldQueue) Waiting(context.Context, eventstore.Position, int) (datapoints.Waiting, error) {
	if q.of.Load() == nil {
		return datapoints.Waiting{}, nil
	}
	since := time.Now().Add(-2 * waitLimit)
	return datapoints.Waiting{Item: since, Backlogged: since}, nil
}

func (q *heldQueue) WaitingByProject(context.Context, eventstore.Position, int) (map[uuid.UUID]int, error) {
	if of := q.of.Load(); of != nil {
		return map[uuid.UUID]int{*of: 2 * minBacklog}, nil
	}
	return map[uuid.UUID]int{}, nil
}

// projectOf returns the id of the project of a key.
func (h *harness) projectOf(key string) uuid.UUID {
	h.t.Helper()
	var id uuid.UUID
	runtest.Must(h.t, h.storage.db.QueryRow(h.t.Context(), `select p.id from access.projects p
		join access.keys k on k.project_id = p.id where k.prefix = left($1, length(k.prefix))`, key).Scan(&id))
	return id
}

// waitForRoom lets writes wait so long that only one that never gets room is refused, however slow the machine is.
func waitForRoom(s *Server) { s.backpressure.room = admission.NewRoom(5 * time.Minute) }

// The single sends of a project that sends more than can be derived wait, and pass once there is room. Nothing else
// waits: not another project of its organization, not what derives nothing, and no deletion.
func TestAdmission_NeighbourOfABurst(t *testing.T) {
	t.Parallel()
	q, h := &heldQueue{}, newHarness(t)
	h.arrange = func(s *Server) {
		waitForRoom(s)
		q.derivationQueue, s.backpressure.queue = s.backpressure.queue, q
	}
	h.start()
	own, management := h.keys()
	neighbour := h.newProject(management, "Second")
	hook := h.createWebhook("", "default", webhook.Settings{ContentPath: "$.content"})
	h.send(own, "/ingest", "completed", point{"id": "tea", "content": "Ana likes tea."})
	project := h.projectOf(own)
	q.of.Store(&project)
	runtest.Await(t, "the backlog is noticed", func() bool { return h.backpressure.state().held(projectsWait)[project] })

	statuses := make(chan int, 3)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		statuses <- h.fetchAPI(own, http.MethodPost, api+"/ingest", point{"content": "Bo likes coffee."}).status
	})
	waiting.Go(func() { statuses <- h.event(hook.URL, strings.NewReader(`{"content":"Cy likes milk."}`)).status })
	runtest.Await(t, "both wait", func() bool { return h.backpressure.room.Waiting() == 2 })
	h.must(neighbour, http.MethodPost, api+"/ingest", point{"content": "Di likes water."}, nil)
	h.must(own, http.MethodPost, api+"/ingest/batch", point{"items": []point{{"content": "Ed likes juice."}}}, nil)
	h.must(management, http.MethodPost, api+"/projects", point{"name": "Third"}, nil)
	h.must(own, http.MethodPut, api+"/identities/ana", point{"traits": point{"team": "a"}}, nil)
	h.must(own, http.MethodPut, api+"/audiences/team-a", point{
		"name": "Team A", "kind": "fixed", "identities": []string{"ana"},
	}, nil)
	h.must(own, http.MethodDelete, api+"/data-points/tea", nil, nil)
	h.must(own, http.MethodPost, api+"/recall", point{"query": "tea", "identity": "ana"}, nil)
	if n := h.backpressure.room.Waiting(); n != 2 {
		t.Errorf("%d writes wait, want the two", n)
	}
	q.of.Store(nil)
	waiting.Wait()
	for range 2 {
		if status := <-statuses; status != http.StatusAccepted {
			t.Errorf("after the wait: status %d", status)
		}
	}
	h.imports(own, neighbour)
}

// imports checks that clients in a closed loop with batches are never refused. During their import, single sends of the
// same project and of another one, and what derives nothing, are never refused either. ANNALS_IMPORT_BATCHES sets how
// many batches of 1,000 each client sends.
func (h *harness) imports(own, neighbour string) {
	t := h.t
	t.Helper()
	const clients = 8
	batches, items := 2, 250
	if text := os.Getenv("ANNALS_IMPORT_BATCHES"); text != "" {
		n, err := strconv.Atoi(text)
		runtest.Must(t, err)
		batches, items = n, 1000
	}
	var importing, others sync.WaitGroup
	for client := range clients {
		importing.Go(func() {
			for batch := range batches {
				list := make([]point, items)
				for i := range list {
					list[i] = point{
						"id":      fmt.Sprintf("import-%d-%d-%d", client, batch, i),
						"content": fmt.Sprintf("Customer %d of region %d ordered %d crates of plums.", i, client, batch),
					}
				}
				h.must(own, http.MethodPost, api+"/ingest/batch", point{"items": list}, nil)
			}
		})
	}
	// stored makes a write. On a busy machine it may be visible late, which its answer has; it is not refused.
	stored := func(key, method, path string, body any) {
		status, answer := h.call(key, method, api+path, body)
		if status >= 300 && !strings.Contains(string(answer), `"committed":true`) {
			t.Errorf("%s %s: %d %s", method, path, status, answer)
		}
	}
	var done atomic.Bool
	for name, key := range map[string]string{"own": own, "neighbour": neighbour} {
		others.Go(func() {
			for n := 0; !done.Load(); n++ {
				word := fmt.Sprintf("%sword%d", name, n)
				h.must(key, http.MethodPost, api+"/ingest", point{"id": word, "content": "The code is " + word + "."}, nil)
				runtest.Await(t, word+" is recalled", func() bool {
					_, answer := h.call(key, http.MethodPost, api+"/recall", point{"query": word, "identity": "ana"})
					return strings.Contains(string(answer), `"sourceId":"`+word+`"`) || t.Failed()
				})
				stored(key, http.MethodPut, "/identities/ana", point{"traits": point{"n": strconv.Itoa(n)}})
				stored(key, http.MethodDelete, "/data-points/"+word, nil)
			}
		})
	}
	importing.Wait()
	done.Store(true)
	others.Wait()
	if h.backpressure.room.Waiting() != 0 {
		t.Error("a write waits after the end")
	}
}

// fakePressure is a fake of the conditions under which a service refuses writes.
type fakePressure struct {
	free    atomic.Uint64
	lagging atomic.Bool
	looks   atomic.Int64
}

// arrange replaces the disk and the log of a service with the fake.
func (s *fakePressure) arrange(p *Server) {
	s.free.Store(math.MaxUint64)
	head := p.backpressure.head
	p.backpressure.minFree = 1000
	p.backpressure.free = func() (uint64, error) { return s.free.Load(), nil }
	p.backpressure.head = func(ctx context.Context) (eventstore.Position, error) {
		if s.lagging.Load() {
			return math.MaxInt64, nil
		}
		return head(ctx)
	}
	p.backpressure.countAfter = func(_ context.Context, _ eventstore.Position, limit int) (int, error) {
		if s.lagging.Load() {
			return limit, nil
		}
		return 0, nil
	}
	// Each check is an hour after the one before.
	p.backpressure.now = func() time.Time { return time.Unix(s.looks.Add(1)*3600, 0) }
}

// refusal calls every route of the contract while writes are refused.
type refusal struct {
	*harness
	own, management string
	// baseline are the answers to reads while writes are taken.
	baseline map[string]string
	contract *apitest.Contract
	// names fills in the parameters of a path. unknown fills in what no deletion can find.
	names, unknown *strings.Replacer
}

const eventRoute = api + "/webhooks/:webhookId/:token"

var refusedBodies = map[string]string{
	api + "/recall":             `{"query":"tea","identity":"bo"}`,
	api + "/data-points/delete": `{"ids":["nothing of this kind"]}`,
	api + "/ingest":             `{"content":"never stored"}`,
	api + "/ingest/batch":       `{"items":[{"content":"never stored"}]}`,
	api + "/projects":           `{"name":"never made"}`,
	eventRoute:                  `{"content":"never stored"}`,
}

func newRefusal(h *harness) *refusal {
	h.t.Helper()
	r := &refusal{harness: h, contract: apitest.Load(h.t, readapi.OpenAPI)}
	r.own, r.management = h.keys()
	sent := h.send(r.own, "/ingest", "completed", point{"id": "tea", "content": "I like green tea.", "identity": "bo"})
	r.baseline = h.answers(r.management, r.own)
	hook := h.createWebhook("", "default", webhook.Settings{ContentPath: "$.content"})
	r.names = strings.NewReplacer(":ingestionId", sent, ":sourceId", "unknown", ":slug", "default", ":keyId", "unknown",
		":webhookId", hook.ID, ":token", path.Base(hook.URL))
	r.unknown = strings.NewReplacer(":ingestionId", uuid.NewString(), ":sourceId", "unknown", ":slug", "default",
		":keyId", "unknown")
	return r
}

// ask makes a call and holds its answer against the contract.
func (r *refusal) ask(method, target, key, body string) answer {
	r.t.Helper()
	got := r.fetch(method, r.urls.API+target, key, body)
	// The document does not describe a route that does not exist. Its error is an envelope too.
	if err := r.contract.Check(got.request, got.status, got.header, []byte(got.body)); err != nil &&
		!strings.Contains(err.Error(), "no such route") {
		r.t.Errorf("%s %s: %v", method, target, err)
	}
	return got
}

// callRoute asks a route with the key that it takes.
func (r *refusal) callRoute(route auth.Route) answer {
	r.t.Helper()
	key, body := "", ""
	if !route.Open {
		key = map[auth.Kind]string{auth.ProjectKey: r.own, auth.ManagementKey: r.management}[route.Keys[0]]
	}
	if route.Method != http.MethodGet {
		body = refusedBodies[route.Path]
	}
	target := r.names.Replace(route.Path)
	if route.Deletes() {
		target = r.unknown.Replace(route.Path)
	}
	return r.ask(route.Method, target, key, body)
}

// wantRefused checks that writes, and deletions too if it is said, are refused for a reason, and
// that everything else is served as before.
func (r *refusal) wantRefused(why string, deletions bool) {
	r.t.Helper()
	if diff := cmp.Diff(r.baseline, r.answers(r.management, r.own)); diff != "" {
		r.t.Errorf("reads answer otherwise while %s (-before +now):\n%s", why, diff)
	}
	writes, reads := 0, 0
	for _, route := range auth.Routes() {
		what := fmt.Sprintf("%s %s", route.Method, route.Path)
		got := r.callRoute(route)
		if route.Writes() && (!route.Deletes() || deletions) {
			writes++
			if got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, `"code":"service-unavailable"`) ||
				!strings.Contains(got.body, why) || got.header.Get("Retry-After") == "" {
				r.t.Errorf("%s while %s: %d, Retry-After %q, %s", what, why, got.status, got.header.Get("Retry-After"), got.body)
			}
			continue
		}
		reads++
		if got.status >= 500 {
			r.t.Errorf("%s while %s: %d %s", what, why, got.status, got.body)
		}
		switch what {
		case "GET " + api + "/ingest/:ingestionId", "GET " + api + "/projects", "POST " + api + "/recall":
			if got.status != http.StatusOK {
				r.t.Errorf("%s while %s: %d %s", what, why, got.status, got.body)
			}
		}
	}
	if writes < 5 || reads < 5 {
		r.t.Errorf("%d routes write and %d read", writes, reads)
	}
	r.wantStated(why)
}

// wantStated checks that readiness and the client name the reason, and that an unknown key is
// refused first, whatever the state of the service.
func (r *refusal) wantStated(why string) {
	r.t.Helper()
	r.ask(http.MethodPost, api+"/ingest", apitest.UnknownKey, refusedBodies[api+"/ingest"]).
		want(r.t, http.StatusUnauthorized)
	r.ask(http.MethodGet, "/readyz", "", "").want(r.t, http.StatusOK, `"writesRefused":["`, why)
	c, err := client.New(r.urls.API, r.own)
	runtest.Must(r.t, err)
	if is, err := c.Ready(r.t.Context()); err != nil || !is.Ready ||
		!strings.Contains(strings.Join(is.WritesRefused, "; "), why) {
		r.t.Errorf("status while %s: %+v, %v", why, is, err)
	}
}

// waitUntil waits until the service has noticed the state of the disk and of the projections.
func (r *refusal) waitUntil(nearlyFull, full, lagging bool) {
	r.t.Helper()
	runtest.Await(r.t, "the fakePressure is noticed", func() bool {
		found := r.backpressure.state()
		refused := found.refuse(admission.NoRoom) != nil
		return found.has(diskFull) == nearlyFull && refused == full && found.has(behind) == lagging
	})
}

// TestServer_RefusedWrites calls every route of the contract while writes are refused.
func TestServer_RefusedWrites(t *testing.T) {
	t.Parallel()
	s := &fakePressure{}
	h := newHarness(t)
	h.arrange = s.arrange
	h.start()
	r := newRefusal(h)

	s.free.Store(0)
	r.waitUntil(true, true, false)
	r.wantRefused("nearly full", true)
	s.free.Store(math.MaxUint64)
	s.lagging.Store(true)
	r.waitUntil(false, false, true)
	r.wantRefused("lags the log", false)

	s.lagging.Store(false)
	s.free.Store(999)
	r.waitUntil(true, false, false)
	r.wantRefused("nearly full", false)
	h.must(r.own, http.MethodDelete, api+"/data-points/tea", nil, nil)

	s.free.Store(math.MaxUint64)
	r.waitUntil(false, false, false)
	h.send(r.own, "/ingest", "completed", point{"id": "later", "content": "Writes are taken again."})
	r.ask(http.MethodGet, "/readyz", "", "").want(t, http.StatusOK).lacks(t, "writesRefused")
	for _, e := range h.events() {
		if strings.Contains(string(e.Data), "never") {
			t.Errorf("a refused call wrote %s", e.Type)
		}
	}
}

// TestRateLimits_EveryPlan calls until a call is refused, at an instant that does not pass.
func TestRateLimits_EveryPlan(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	through := func(every *int, plan metering.Plan) int {
		t.Helper()
		l := newRateLimits(every, metering.DefaultPlanTerms(), func() time.Time { return at })
		p := auth.Principal{Kind: auth.ProjectKey, OrganizationID: uuid.New(), Limits: metering.Caps{Plan: plan}}
		for n := range 3500 {
			if retry, ok := l.allow(p); !ok {
				if retry != time.Minute {
					t.Errorf("%s: retry after %s", plan, retry)
				}
				p.OrganizationID = uuid.New()
				if _, ok := l.allow(p); !ok {
					t.Errorf("%s: the calls of a neighbour count", plan)
				}
				return n
			}
		}
		return -1
	}
	for plan, want := range map[metering.Plan]int{
		metering.SelfHosted: -1, metering.PayAsYouGo: 120,
		metering.Flex: 600, metering.Enterprise: 3000,
	} {
		if got := through(nil, plan); got != want {
			t.Errorf("%s: %d calls come through, want %d", plan, got, want)
		}
		if got := through(new(7), plan); got != 7 {
			t.Errorf("%s, set to 7: %d calls come through", plan, got)
		}
		if got := through(new(0), plan); got != -1 {
			t.Errorf("%s, set to 0: %d calls come through", plan, got)
		}
	}
}

// TestServer_RateLimitOfOrganization calls with both keys of an organization: together they have
// the limit of one. Calls of agents count as well, and those of the operation's address do not.
func TestServer_RateLimitOfOrganization(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.set = func(s *Config) { s.RateLimit, s.OpsAddr, s.Profile = new(3), "127.0.0.1:0", true }
	h.start()
	h.servesOperation()
	own, management := h.keys()
	for n, c := range []struct {
		key, path string
		status    int
	}{
		{own, "/api/v1/recall", 405},
		{management, "/api/v1/projects", 200},
		{"svc_sk_unknown", "/api/v1/usage", 401},
		{own, "/api/v1/nothing", 404},
		{own, "/api/v1/nothing", 429},
		{management, "/api/v1/projects", 429},
		{own, "/api/v1/ingest/01890000-0000-7000-8000-00000000000a", 404},
	} {
		got := h.fetchAPI(c.key, http.MethodGet, c.path, nil)
		if got.status != c.status || got.status == http.StatusTooManyRequests && got.body != "" {
			t.Errorf("call %d of %s: %d %s, want %d", n+1, c.path, got.status, got.body, c.status)
		}
	}
	acme := h.newProject(h.createAcme().ManagementKey, "Tea") // two calls of the three
	a := h.operator(acme)
	a.must("get_usage", nil, nil)
	if _, refusal := a.use("get_usage", nil, nil); !strings.HasPrefix(refusal, "rate-limited: ") {
		t.Errorf("the call of an agent after three in a minute: %q", refusal)
	}
	h.wants(acme, http.MethodGet, api+"/usage", nil, http.StatusTooManyRequests, "")
}
