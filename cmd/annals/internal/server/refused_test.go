package server

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/client"
	"github.com/annals-project/annals/readapi"
)

// fakePressure is a fake of the conditions under which a service refuses writes.
type fakePressure struct {
	free   atomic.Uint64
	behind atomic.Bool
	looks  atomic.Int64
}

// arrange replaces the disk and the log of a service with the fake.
func (s *fakePressure) arrange(p *Server) {
	s.free.Store(math.MaxUint64)
	head := p.backpressure.head
	p.backpressure.minFree = 1000
	p.backpressure.free = func() (uint64, error) { return s.free.Load(), nil }
	p.backpressure.head = func(ctx context.Context) (eventstore.Position, error) {
		if s.behind.Load() {
			return math.MaxInt64, nil
		}
		return head(ctx)
	}
	p.backpressure.countAfter = func(_ context.Context, _ eventstore.Position, limit int) (int, error) {
		if s.behind.Load() {
			return limit, nil
		}
		return 0, nil
	}
	// Each check is an hour after the one before.
	p.backpressure.now = func() time.Time { return time.Unix(s.looks.Add(1)*3600, 0) }
}

// TestServer_RefusedWrites calls every route of the contract while writes are refused.
func TestServer_RefusedWrites(t *testing.T) {
	t.Parallel()
	s := &fakePressure{}
	h := &harness{t: t, dir: filepath.Join(t.TempDir(), "data"), sends: map[string][]string{}, arrange: s.arrange}
	h.start()
	keys, err := datafolder.ReadCredentials(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	own, management := keys[datafolder.ProjectKeyName], keys[datafolder.ManagementKeyName]
	sent := h.send(own, "/ingest", "completed", point{"id": "tea", "content": "I like green tea.", "identity": "bo"})
	calm := h.answers(management, own)
	contract := apitest.Load(t, readapi.OpenAPI)
	ask := func(method, path, key, body string) (int, http.Header, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, h.urls.API+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		answer, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		// The document does not describe a route that does not exist. Its error is an envelope too.
		if err := contract.Check(req, res.StatusCode, res.Header, answer); err != nil &&
			!strings.Contains(err.Error(), "no such route") {
			t.Errorf("%s %s: %v", method, path, err)
		}
		return res.StatusCode, res.Header, string(answer)
	}
	bodies := map[string]string{
		api + "/recall":             `{"query":"tea","identity":"bo"}`,
		api + "/data-points/delete": `{"ids":["nothing of this kind"]}`,
		api + "/ingest":             `{"content":"never stored"}`,
		api + "/ingest/batch":       `{"items":[{"content":"never stored"}]}`,
		api + "/projects":           `{"name":"never made"}`,
	}
	names := strings.NewReplacer(":ingestionId", sent, ":sourceId", "unknown", ":slug", "default", ":keyId", "unknown")
	unknown := strings.NewReplacer(":ingestionId", uuid.NewString(), ":sourceId", "unknown", ":slug", "default",
		":keyId", "unknown")
	refused := func(why string, deletions bool) {
		t.Helper()
		if diff := cmp.Diff(calm, h.answers(management, own)); diff != "" {
			t.Errorf("reads answer otherwise while %s (-calm +now):\n%s", why, diff)
		}
		writes, reads := 0, 0
		for _, r := range auth.Routes() {
			key, body := "", ""
			if !r.Open {
				key = map[auth.Kind]string{auth.ProjectKey: own, auth.ManagementKey: management}[r.Keys[0]]
			}
			if r.Method != http.MethodGet {
				body = bodies[r.Path]
			}
			path := names.Replace(r.Path)
			if r.Deletes() {
				path = unknown.Replace(r.Path)
			}
			what := fmt.Sprintf("%s %s", r.Method, r.Path)
			status, header, answer := ask(r.Method, path, key, body)
			if r.Writes() && (!r.Deletes() || deletions) {
				writes++
				if status != http.StatusServiceUnavailable || !strings.Contains(answer, `"code":"service-unavailable"`) || !strings.Contains(answer, why) || header.Get("Retry-After") == "" {
					t.Errorf("%s while %s: %d, Retry-After %q, %s", what, why, status, header.Get("Retry-After"), answer)
				}
				continue
			}
			reads++
			if status >= 500 {
				t.Errorf("%s while %s: %d %s", what, why, status, answer)
			}
			switch what {
			case "GET " + api + "/ingest/:ingestionId", "GET " + api + "/projects", "POST " + api + "/recall":
				if status != http.StatusOK {
					t.Errorf("%s while %s: %d %s", what, why, status, answer)
				}
			}
		}
		if writes < 5 || reads < 5 {
			t.Errorf("%d routes write and %d read", writes, reads)
		}
		// An unknown key is refused first, whatever the state of the service.
		if status, _, answer := ask(http.MethodPost, api+"/ingest", apitest.UnknownKey,
			bodies[api+"/ingest"]); status != http.StatusUnauthorized {
			t.Errorf("an unknown key while %s: %d %s", why, status, answer)
		}
		if status, _, answer := ask(http.MethodGet, "/readyz", "", ""); status != http.StatusOK || !strings.Contains(answer, `"writesRefused":["`) || !strings.Contains(answer, why) {
			t.Errorf("readyz while %s: %d %s", why, status, answer)
		}
		c, err := client.New(h.urls.API, own, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if is, err := c.Condition(t.Context()); err != nil || !is.Ready ||
			!strings.Contains(strings.Join(is.WritesRefused, "; "), why) {
			t.Errorf("status while %s: %+v, %v", why, is, err)
		}
	}
	until := func(nearlyFull, full, behind bool) {
		t.Helper()
		h.eventually("the fakePressure is noticed", func() bool {
			found := h.backpressure.state()
			return (found.nearlyFull != "") == nearlyFull && (found.full != "") == full && (found.lagging != "") == behind
		})
	}

	s.free.Store(0)
	until(true, true, false)
	refused("nearly full", true)
	s.free.Store(math.MaxUint64)
	s.behind.Store(true)
	until(false, false, true)
	refused("lags the log", true)

	s.behind.Store(false)
	s.free.Store(999)
	until(true, false, false)
	refused("nearly full", false)
	h.must(own, http.MethodDelete, api+"/data-points/tea", nil, nil)

	s.free.Store(math.MaxUint64)
	until(false, false, false)
	h.send(own, "/ingest", "completed", point{"id": "later", "content": "Writes are taken again."})
	if status, _, answer := ask(http.MethodGet, "/readyz", "", ""); status != http.StatusOK ||
		strings.Contains(answer, "writesRefused") {
		t.Errorf("readyz at the end: %d %s", status, answer)
	}
	for _, e := range h.events() {
		if strings.Contains(string(e.Data), "never") {
			t.Errorf("a refused call wrote %s", e.Type)
		}
	}
}
