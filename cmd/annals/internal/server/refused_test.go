package server

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/readapi"
)

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
	if got := r.ask(http.MethodPost, api+"/ingest", apitest.UnknownKey,
		refusedBodies[api+"/ingest"]); got.status != http.StatusUnauthorized {
		r.t.Errorf("an unknown key while %s: %d %s", why, got.status, got.body)
	}
	if got := r.ask(http.MethodGet, "/readyz", "", ""); got.status != http.StatusOK ||
		!strings.Contains(got.body, `"writesRefused":["`) || !strings.Contains(got.body, why) {
		r.t.Errorf("readyz while %s: %d %s", why, got.status, got.body)
	}
	c, err := client.New(r.urls.API, r.own)
	if err != nil {
		r.t.Fatal(err)
	}
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
	if got := r.ask(http.MethodGet, "/readyz", "", ""); got.status != http.StatusOK ||
		strings.Contains(got.body, "writesRefused") {
		t.Errorf("readyz at the end: %d %s", got.status, got.body)
	}
	for _, e := range h.events() {
		if strings.Contains(string(e.Data), "never") {
			t.Errorf("a refused call wrote %s", e.Type)
		}
	}
}
