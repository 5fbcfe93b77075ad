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
	return choose(
		w,
		"\x00",
		"a\x00b",
		"\xff\xfe",
		"\xed\xa0\x80",
		"\u202e\u2066",
		" ",
		"..",
		"../..",
		"%",
		"%2F",
		"a/b",
		"a?b#c",
		"\r\n",
		"'",
		"\"",
		"\\",
		"🙂",
		"\ufeff",
		strings.Repeat("\u0301", 50),
		hostile.Text(w.rng),
		strings.Repeat("x", choose(w, 40, 41, 64, 65, 199, 200, 201, 255, 256, 1000, 1001, 2000, 2001)),
	)
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
