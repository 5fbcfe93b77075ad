package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/bench/hostile"
)

// hostileWorker makes calls as one caller.
type hostileWorker struct {
	*hostileWalk
	caller *hostileCaller
	rng    *rand.Rand
	number int
	serial int
	// estimates are the bodies of estimates.
	estimates *estimates
	// strange is set if the call of this step is wrong on purpose.
	strange bool
}

// hostileCall is one request.
type hostileCall struct {
	route  auth.Route
	method string
	// target is the path and query as they go out.
	target string
	header http.Header
	body   []byte
	// plain is set if path and method are those of the route, so that the OpenAPI document covers
	// the answer.
	plain bool
	// management is set if the caller is the organization.
	management bool
}

func (c hostileCall) String() string {
	return fmt.Sprintf("%s %.300s %v, %d bytes: %.600q", c.method, c.target, c.header, len(c.body), c.body)
}

func (w *hostileWorker) one(of int) bool { return w.rng.IntN(of) == 0 }

func choose[V any](w *hostileWorker, list ...V) V { return among(w.rng, list...) }

// step makes one call, or many of the same at once.
func (w *hostileWorker) step() {
	w.strange = w.one(2)
	switch n := w.rng.IntN(100); {
	case n < 40:
		w.send(w.call())
	case n < 70:
		w.send(w.mutated(w.call()))
	case n < 76:
		w.burst(w.call(), w.mutated)
	case n < 84:
		w.abort(w.call())
	case n < 92:
		w.raw()
	case n < 95:
		w.send(w.big())
	case n < 97:
		w.tidy()
	default:
		w.send(w.unknown(w.call()))
	}
}

// burst makes a call many times at once, some of them changed.
func (w *hostileWorker) burst(c hostileCall, change func(hostileCall) hostileCall) {
	var group sync.WaitGroup
	for range 2 + w.rng.IntN(14) {
		each := c
		if w.one(4) {
			each = change(c)
		}
		group.Go(func() { w.send(each) })
	}
	group.Wait()
}

// tidy deletes what is old, so that an hour of calls does not fill the store.
func (w *hostileWorker) tidy() {
	ids := w.caller.pools.drop("source", 10)
	if len(ids) > 0 {
		w.send(w.to(http.MethodPost, "/data-points/delete", "", map[string]any{"ids": ids}))
	}
	for _, id := range w.caller.pools.drop("identity", 10) {
		w.send(w.to(http.MethodDelete, "/identities/:identity", "/identities/"+url.PathEscape(id), nil))
	}
}

// to is a call of a route of the contract; target "" is its path as it is.
func (w *hostileWorker) to(method, template, target string, body any) hostileCall {
	if target == "" {
		target = template
	}
	c := hostileCall{
		route:  auth.Route{Method: method, Path: auth.Prefix + template},
		method: method,
		target: auth.Prefix + target,
		header: http.Header{},
		plain:  true,
	}
	c.header.Set("Authorization", "Bearer "+w.caller.key)
	if body != nil {
		c.body = w.encode(body)
		c.header.Set("Content-Type", "application/json")
	}
	return c
}

func (w *hostileWorker) encode(body any) []byte {
	text, err := json.Marshal(body)
	if err != nil {
		w.fail("encode %#v: %v", body, err)
	}
	return text
}

// call is a call that is mostly right.
func (w *hostileWorker) call() hostileCall {
	routes := auth.Routes()
	r := routes[w.rng.IntN(len(routes))]
	if w.one(2) { // the routes that store, search or explain something are called more often
		r = routes[choose(w, 0, 0, 0, 1, 4, 6, 6, 7, 9, 9, 10, 12, 25, 26, 27, 28, 30, 31)]
	}
	path := strings.TrimPrefix(r.Path, auth.Prefix)
	c := w.to(r.Method, path, w.filled(path), w.bodyOf(r.Method+" "+path))
	c.route = r
	if !r.Takes(auth.ProjectKey) || r.Takes(auth.ManagementKey) && w.one(8) {
		c.management = true
		c.header.Set("Authorization", "Bearer "+w.caller.management)
	}
	c.target += w.query(path, c.management)
	return c
}

// filled is a template with a name for each parameter.
func (w *hostileWorker) filled(template string) string {
	parts := strings.Split(template, "/")
	for i, part := range parts {
		if !strings.HasPrefix(part, ":") {
			continue
		}
		kind := map[string]string{
			":ingestionId": choose(w, "send", "send", "request"), ":sourceId": "source", ":identity": "identity", ":slug": "audience", ":keyId": "key",
			":requestId": "request", ":id": "node", ":rootId": "node", ":webhookId": "webhook",
			":organization": "organization", ":level": "level",
		}[part]
		if part == ":token" { // not that of another caller: who has it may store there
			parts[i] = url.PathEscape(choose(w, w.caller.token, w.caller.token, w.caller.token, w.odd()))
			continue
		}
		if strings.HasPrefix(template, "/projects") && part == ":slug" {
			kind = "project"
		}
		parts[i] = url.PathEscape(w.name(kind))
	}
	return strings.Join(parts, "/")
}

// name is an own name, one of another caller, or one that nothing has.
func (w *hostileWorker) name(kind string) string {
	var name string
	switch n := w.rng.IntN(10); {
	case n < 7 || !w.strange && n < 9:
		name = w.caller.pools.some(w.rng, kind)
	case n < 9:
		name = choose(w, w.callers...).pools.some(w.rng, kind)
	}
	if name == "" {
		name = choose(w, uuid.NewString(), "a", "default", "project", "00000000-0000-0000-0000-000000000000", w.odd(),
			strings.Repeat("ü", 1+w.rng.IntN(1100)))
	}
	return name
}

// odd is a text that is hard to hold.
func (w *hostileWorker) odd() string {
	return choose(w, "\x00", "a\x00b", "\xff\xfe", "\xed\xa0\x80", "\u202e\u2066", " ", "..", "../..", "%", "%2F", "a/b", "a?b#c",
		"\r\n", "'", "\"", "\\", "🙂", "\ufeff", strings.Repeat("\u0301", 50), hostile.Text(w.rng),
		strings.Repeat("x", choose(w, 40, 41, 64, 65, 199, 200, 201, 255, 256, 1000, 1001, 2000, 2001)))
}

func (w *hostileWorker) query(path string, management bool) string {
	q := url.Values{}
	add := func(name string, values ...string) {
		if w.one(2) {
			q.Add(name, choose(w, append(values, w.odd())...))
		}
	}
	if management && strings.HasPrefix(path, "/identities") && !(w.strange && w.one(4)) {
		q.Set("project", w.caller.slug)
	} else if w.strange && w.one(10) {
		q.Set("project", w.someProject(management))
	}
	switch path {
	case "/identities":
		add("limit", "1", "1000", "1001", "-1", "0", "99999999999999999999", "1e3")
		add("after", w.caller.pools.some(w.rng, "cursor"), choose(w, w.callers...).pools.some(w.rng, "cursor"))
		add("traitKey", "team", "k")
		add("traitValue", "red")
	case "/requests", "/requests/histogram", "/trace/roots", "/trace/lineage/:rootId", "/trace/timeline/:rootId":
		w.debuggingQuery(q)
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// debuggingQuery adds what the debugging reads take: right, from another caller, wrong, or very often.
func (w *hostileWorker) debuggingQuery(q url.Values) {
	pool := func(kind string) string { return choose(w, w.caller, choose(w, w.callers...)).pools.some(w.rng, kind) }
	values := map[string][]string{
		"from": {w.instant()}, "to": {w.instant()}, "first": {"1", "50", "100", "101", "-1", "99999999999999999999"},
		"after": {pool("cursor"), pool("cursor")}, "afterMemories": {pool("cursor")}, "afterSources": {pool("cursor")},
		"status": {"200", "202", "-1", "9999"}, "statusClass": {"2xx", "4xx", "3xx", "%xx"}, "keyName": {"k", "%", "_", "*"},
		"endpoint": {"POST /api/v1/ingest", "POST /api/v1/recall", "GET %"}, "ingestionId": {pool("send"), pool("request")},
		"search":    {pool("source"), pool("request"), "%", "_", "(a+)+$", `\`, "zm", "' or 1=1 --"},
		"revealAll": {"true", "false", "2"}, "limit": {"1", "400", "401", "0", "-9223372036854775808"},
		"reveal": {pool("node") + ":inputs", pool("node") + ":outputs", pool("node") + ":sides"},
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !w.one(4) {
			continue
		}
		times := 1
		if w.strange && w.one(6) {
			times = choose(w, 2, 100, 101, 2_000, 10_000)
		}
		for range times {
			q.Add(name, choose(w, append(values[name], w.odd())...))
		}
	}
}

// someProject is the project of any caller. Not that of another one in the same organization for a
// management key: it may write identities there, and then a marker is rightly where it is not expected.
func (w *hostileWorker) someProject(management bool) string {
	c := choose(w, w.callers...)
	if management && c.organization == w.caller.organization {
		c = w.caller
	}
	return c.slug
}

func (w *hostileWorker) instant() string {
	if !w.strange {
		return fmt.Sprintf("20%02d-03-04T05:06:07.123456Z", w.rng.IntN(26))
	}
	return choose(w, "2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z",
		"2026-02-30T00:00:00Z", "-1", "1969-12-31T23:59:59+14:00", "2026-01-01", "2016-12-31T23:59:60Z",
		"10000-01-01T00:00:00Z", fmt.Sprintf("20%02d-03-04T05:06:07.123456789Z", w.rng.IntN(100)))
}

// content is a text with the caller's marker.
func (w *hostileWorker) content() string { return hostile.Text(w.rng) + " " + w.caller.marker }

func (w *hostileWorker) fresh(kind string) string {
	w.serial++
	name := fmt.Sprintf("%s-%d-%d-%d", kind, w.calls.Load(), w.number, w.serial)
	if w.strange && w.one(4) {
		name += w.odd()
	}
	w.caller.pools.add(kind, name)
	return name
}

// known is a name of the pool, or a new one.
func (w *hostileWorker) known(kind string, newOneOf int) string {
	if name := w.caller.pools.some(w.rng, kind); name != "" && !w.one(newOneOf) {
		return name
	}
	return w.fresh(kind)
}

// audience is one of few slugs, so that they are removed and put again all the time.
func (w *hostileWorker) audience() string {
	slug := choose(w, "aa", "bb", "cc", "dd", "ee")
	w.caller.pools.add("audience", slug)
	return slug
}

func (w *hostileWorker) point(key bool) map[string]any {
	p := map[string]any{"content": w.content()}
	may := func(name string, oneOf int, value func() any) {
		if w.one(oneOf) {
			p[name] = value()
		}
	}
	if !w.one(8) {
		p["id"] = w.known("source", 3)
	}
	may("label", 3, func() any { return w.content() })
	may("timestamp", 3, func() any { return w.instant() })
	may("metadata", 3, func() any { return w.value(2) })
	may("audience", 3, func() any {
		if slug := w.caller.pools.some(w.rng, "audience"); slug != "" && !w.strange {
			return slug
		}
		return choose(w, w.audience(), "project", "gone")
	})
	may("identity", 3, func() any { return w.known("identity", 5) })
	if key {
		may("idempotencyKey", 6, func() any { return w.known("idempotency", 3) })
	}
	return p
}

// value is JSON of any shape, with the caller's marker in its texts.
func (w *hostileWorker) value(depth int) any {
	switch n := w.rng.IntN(9); {
	case n == 0:
		return nil
	case n == 1:
		return choose(w, json.RawMessage("1e400"), json.RawMessage("-0"), json.RawMessage("9007199254740993"),
			json.RawMessage("0.1e-9999"), json.RawMessage(strings.Repeat("9", 400)))
	case n == 2:
		return w.one(2)
	case n < 6 || depth == 0:
		return w.content()
	case n == 6:
		return []any{w.value(depth - 1), w.value(depth - 1)}
	default:
		return map[string]any{w.odd(): w.value(depth - 1), "a": w.value(depth - 1)}
	}
}

func (w *hostileWorker) traits(null bool) map[string]any {
	traits := map[string]any{}
	for range w.rng.IntN(5) {
		key, value := choose(w, "team", "k", "role"), choose(w, "red", w.caller.marker)
		if w.strange {
			key, value = choose(w, key, w.odd()), choose(w, value, value+w.odd())
		}
		traits[key] = value
	}
	if null && w.one(2) {
		traits["team"] = nil
	}
	return traits
}

func (w *hostileWorker) rule() map[string]any {
	if !w.strange {
		values := make([]string, 1+w.rng.IntN(50))
		for v := range values {
			values[v] = choose(w, "red", "blue", w.caller.marker, strings.Repeat("v", 1+w.rng.IntN(2000)))
		}
		return map[string]any{
			"match":      choose(w, "all", "any"),
			"conditions": []any{map[string]any{"trait": choose(w, "team", "k"), "operator": "is_one_of", "values": values}},
		}
	}
	conditions := make([]any, w.rng.IntN(22))
	for i := range conditions {
		values := make([]string, choose(w, 0, 1, 1, 2, 50, 51))
		for v := range values {
			values[v] = choose(w, "red", w.caller.marker, strings.Repeat("v", choose(w, 1, 2000, 2001)))
		}
		conditions[i] = map[string]any{
			"trait":    choose(w, "team", "k", w.odd()),
			"operator": choose(w, "is", "is_not", "is_one_of", "is_not_one_of", "exists", "does_not_exist", "like"),
			"values":   values,
		}
	}
	return map[string]any{"match": choose(w, "all", "any", "none"), "conditions": conditions}
}

// bodyOf is a body that is mostly right; nil is none.
func (w *hostileWorker) bodyOf(route string) any {
	switch route {
	case "POST /ingest":
		return w.point(true)
	case "POST /ingest/batch":
		items := make([]any, choose(w, 0, 1, 2, 5, 12))
		for i := range items {
			p := w.point(false)
			if !w.strange {
				p["id"] = w.fresh("source")
			}
			items[i] = p
		}
		body := map[string]any{"items": items}
		if w.one(4) {
			body["idempotencyKey"] = w.known("idempotency", 3)
		}
		return body
	case "POST /data-points/delete":
		ids := make([]string, choose(w, 0, 1, 1, 2, 3))
		for i := range ids {
			ids[i] = w.name("source")
		}
		return map[string]any{"ids": ids}
	case "POST /recall":
		return w.recall()
	case "PUT /identities/:identity":
		return map[string]any{"traits": w.traits(false)}
	case "PATCH /identities/:identity":
		return map[string]any{"traits": w.traits(true)}
	case "POST /identities/bulk":
		rows := make([]any, w.rng.IntN(12))
		for i := range rows {
			rows[i] = map[string]any{"identity": w.known("identity", 4), "traits": w.traits(false)}
		}
		return rows
	case "PUT /audiences/:slug":
		if w.one(2) {
			return map[string]any{"kind": "rule", "name": w.content(), "rule": w.rule()}
		}
		return map[string]any{
			"kind":       choose(w, "fixed", "fixed", "fixed", "default", ""),
			"identities": []string{w.known("identity", 8), w.known("identity", 8)},
		}
	case "POST /projects":
		w.serial++
		if w.serial > 3 { // projects stay, so there are few
			return map[string]any{"name": choose(w, "", "a", "--", strings.Repeat("p", 256), "\x00")}
		}
		return map[string]any{"name": fmt.Sprintf("hostile %d %d", w.number, w.serial)}
	case "POST /projects/:slug/keys":
		return map[string]any{"name": choose(w, "k", w.odd())}
	case "POST /ingest/estimate":
		if w.one(4) {
			return map[string]any{"files": []any{map[string]any{"path": w.odd(), "content": w.content()}}, "timeZone": w.odd()}
		}
		body, _ := w.estimates.next()
		return body
	case "POST /webhooks/:webhookId/:token":
		if w.one(2) {
			return map[string]any{"content": w.content(), "id": choose[any](w, w.known("source", 8), w.odd(), 1.5, nil)}
		}
		return w.value(2)
	default:
		if w.one(10) {
			return w.value(2)
		}
		return nil
	}
}

func (w *hostileWorker) recall() map[string]any {
	q := map[string]any{
		"query":    choose(w, hostile.Text(w.rng), w.caller.marker, "tea"),
		"identity": w.known("identity", 12),
	}
	if !w.strange {
		q["limit"] = 1 + w.rng.IntN(200)
		if w.one(3) {
			q["maxTokens"] = choose(w, 1, 10, 8000, 1<<30)
		}
		return q
	}
	may := func(name string, value any) {
		if w.one(3) {
			q[name] = value
		}
	}
	may("limit", choose(w, 1, 200, 201, 0, -1))
	if w.one(2) {
		may("maxTokens", choose(w, 0, 1, 8000, 32000, 1<<31, 1<<53, -1))
	} else {
		may("level", choose(w, "low", "medium", "high", "extra-high", "none"))
	}
	may("queryTimestamp", w.instant())
	may("occurredFrom", w.instant())
	may("occurredTo", w.instant())
	may("sort", choose(w, "relevance", "chronological", "random"))
	return q
}
