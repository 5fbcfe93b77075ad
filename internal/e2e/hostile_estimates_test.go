package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/annals-project/annals/internal/runtest"
)

// newEstimator makes the project that stays empty. From then on no event is about it.
func (w *hostileWalk) newEstimator() {
	w.t.Helper()
	made, _ := w.newTenant(w.management, "hostile estimates")
	w.estimator = &hostileCaller{tenant: made, marker: "zmestimator"}
	w.newTenant(w.management, walkBegins)
}

// item is a data point for an estimate. Its names are those of any caller, or odd ones.
func (w *hostileWorker) item() map[string]any {
	item := map[string]any{}
	for _, kind := range []string{"source", "identity", "audience"} {
		field, name := kind, choose(w, w.callers...).pools.some(w.rng, kind)
		if kind == "source" {
			field = "id"
		}
		if w.one(20) {
			name = w.odd()
		}
		if name != "" {
			item[field] = name
		}
	}
	return item
}

// estimate is a step of who makes only estimates.
func (w *hostileWorker) estimate() {
	body, _ := w.estimates.next()
	c := w.to(http.MethodPost, estimateRoute, "", body)
	broken := func(c hostileCall) hostileCall { // still a call of the route
		c.body = w.brokenBody(slices.Clone(c.body))
		return c
	}
	switch w.rng.IntN(6) {
	case 0:
		w.send(broken(c))
	case 1:
		w.abort(c)
	case 2:
		w.burst(c, broken)
	default:
		w.send(c)
	}
}

// estimatesLeftNothing estimates every hostile file once more. Then the project of the estimates still holds nothing:
// no event is about it, no call of it is logged, nothing is charged, and nothing is recalled.
func (w *hostileWalk) estimatesLeftNothing() {
	w.t.Helper()
	key, worker := w.estimator.key, w.worker(w.estimator, hostileWorkers, 2)
	for _, points := range []string{"summary", "full", "none"} {
		text := worker.encode(worker.estimates.all(points))
		answer := w.must(key, http.MethodPost, estimateRoute, string(text))
		if files, _ := answer["files"].([]any); len(files) != len(worker.estimates.files) || answer["dataPoints"] == 0.0 {
			w.t.Errorf("%d files with %v data points", len(files), answer["dataPoints"])
		}
	}
	w.untouched([]string{"estimates"}, func(string) string { return w.estimator.slug })
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
	query, err := json.Marshal(map[string]any{"query": "tea " + w.estimator.marker, "identity": "walk", "limit": 200})
	runtest.Must(w.t, err)
	if page := w.must(key, http.MethodPost, "/recall", string(query)); fmt.Sprint(page["results"]) != "[]" {
		w.t.Errorf("who made only estimates recalls %v", page["results"])
	}
}
