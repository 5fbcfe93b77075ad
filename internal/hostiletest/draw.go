package hostiletest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/auth"
)

// Call is one request as it goes out.
type Call struct {
	Route  auth.Route
	Method string
	// Target is the path and query.
	Target string
	Header http.Header
	Body   []byte
	// Plain is set if path and method are those of the route, so that the OpenAPI document covers the answer.
	Plain bool
	// Management is set if the caller is the organization.
	Management bool
}

func (c Call) String() string {
	return fmt.Sprintf("%s %.300s %v, %d bytes: %.600q", c.Method, c.Target, c.Header, len(c.Body), c.Body)
}

// Drawer draws calls of one caller from random numbers. It is for one goroutine.
type Drawer struct {
	rng     *rand.Rand
	caller  *Caller
	callers []*Caller
	// Estimates are the bodies of estimates.
	Estimates *Estimates
	// prefix begins the names that this drawer makes up.
	prefix string
	serial int
	// strange is set if the next call is wrong on purpose.
	strange bool
}

// NewDrawer returns a drawer whose calls follow from a seed and a number that no other drawer has. It uses names of all
// callers.
func NewDrawer(seed, number uint64, caller *Caller, callers []*Caller) *Drawer {
	rng := rand.New(rand.NewPCG(seed, number)) //nolint:gosec // it repeats by its seed
	d := &Drawer{rng: rng, caller: caller, callers: callers, prefix: fmt.Sprintf("%x", number)}
	d.Estimates = NewEstimates(seed, rng, "tea "+caller.Marker+" %s", d.item)
	return d
}

// item is a data point for an estimate. Its names are those of any caller, or odd ones.
func (d *Drawer) item() map[string]any {
	item := map[string]any{}
	for _, kind := range []string{"source", "identity", "audience"} {
		field, name := kind, choose(d, d.callers...).Some(d.rng, kind)
		if kind == "source" {
			field = "id"
		}
		if d.One(20) {
			name = d.odd()
		}
		if name != "" {
			item[field] = name
		}
	}
	return item
}

// IntN is a random number below n.
func (d *Drawer) IntN(n int) int { return d.rng.IntN(n) }

// To is a request of the caller as it goes out.
func (d *Drawer) To(r Request) Call {
	path, _, _ := strings.Cut(r.Path, "?")
	c := Call{
		Route: routeOf(r.Method, auth.Prefix+path), Method: r.Method, Target: auth.Prefix + r.Path, Header: http.Header{},
		Plain: true,
	}
	c.Header.Set("Authorization", "Bearer "+d.caller.Key)
	if r.Body == nil {
		return c
	}
	c.Header.Set("Content-Type", "application/json")
	body, err := r.Reader()
	if err == nil {
		c.Body, err = io.ReadAll(body)
	}
	if err != nil {
		panic(err) // what a drawer makes can be encoded
	}
	return c
}

// routeOf is the route of a path.
func routeOf(method, path string) auth.Route {
	parts := strings.Split(path, "/")
	at := slices.IndexFunc(auth.Routes(), func(r auth.Route) bool {
		return r.Method == method && slices.EqualFunc(strings.Split(r.Path, "/"), parts, func(want, is string) bool {
			return want == is || strings.HasPrefix(want, ":")
		})
	})
	if at < 0 {
		return auth.Route{Method: method, Path: path}
	}
	return auth.Routes()[at]
}

// One is true once in so many times.
func (d *Drawer) One(of int) bool { return d.rng.IntN(of) == 0 }

func choose[V any](d *Drawer, list ...V) V { return among(d.rng, list...) }

// Call is a call that is mostly right. Every other is strange.
func (d *Drawer) Call() Call {
	d.strange = d.One(2)
	routes := auth.Routes()
	r := routes[d.rng.IntN(len(routes))]
	if d.One(2) { // the routes that store, search or explain something are called more often
		r = routes[choose(d, 0, 0, 0, 1, 4, 6, 6, 7, 9, 9, 10, 12, 25, 26, 27, 28, 30, 31)]
	}
	path := strings.TrimPrefix(r.Path, auth.Prefix)
	c := d.To(Request{r.Method, d.filled(path), d.bodyOf(r.Method + " " + path)})
	c.Route = r
	if !r.Takes(auth.ProjectKey) || r.Takes(auth.ManagementKey) && d.One(8) {
		c.Management = true
		c.Header.Set("Authorization", "Bearer "+d.caller.Management)
	}
	c.Target += d.query(path, c.Management)
	return c
}

// filled is a template with a name for each parameter.
func (d *Drawer) filled(template string) string {
	parts := strings.Split(template, "/")
	for i, part := range parts {
		if !strings.HasPrefix(part, ":") {
			continue
		}
		kind := map[string]string{
			":ingestionId": choose(d, "send", "send", "request"), ":sourceId": "source", ":identity": "identity",
			":slug": "audience", ":keyId": "key",
			":requestId": "request", ":id": "node", ":rootId": "node", ":webhookId": "webhook",
			":organization": "organization", ":level": "level",
		}[part]
		if part == ":token" { // not that of another caller: who has it may store there
			parts[i] = url.PathEscape(choose(d, d.caller.Token, d.caller.Token, d.caller.Token, d.odd()))
			continue
		}
		if strings.HasPrefix(template, "/projects") && part == ":slug" {
			kind = "project"
		}
		parts[i] = url.PathEscape(d.name(kind))
	}
	return strings.Join(parts, "/")
}

// name is an own name, one of another caller, or one that nothing has.
func (d *Drawer) name(kind string) string {
	var name string
	switch n := d.rng.IntN(10); {
	case n < 7 || !d.strange && n < 9:
		name = d.caller.Some(d.rng, kind)
	case n < 9:
		name = choose(d, d.callers...).Some(d.rng, kind)
	}
	if name == "" {
		name = choose(d, uuid.NewString(), "a", "default", "project", "00000000-0000-0000-0000-000000000000", d.odd(),
			strings.Repeat("ü", 1+d.rng.IntN(1100)))
	}
	return name
}

// odd is a text that is hard to hold.
func (d *Drawer) odd() string {
	return choose(d, "\x00", "a\x00b", "\xff\xfe", "\xed\xa0\x80", "\u202e\u2066", " ", "..", "../..", "%", "%2F", "a/b",
		"a?b#c",
		"\r\n", "'", "\"", "\\", "🙂", "\ufeff", strings.Repeat("\u0301", 50), Text(d.rng),
		strings.Repeat("x", choose(d, 40, 41, 64, 65, 199, 200, 201, 255, 256, 1000, 1001, 2000, 2001)))
}

func (d *Drawer) query(path string, management bool) string {
	q := url.Values{}
	add := func(name string, values ...string) {
		if d.One(2) {
			q.Add(name, choose(d, append(values, d.odd())...))
		}
	}
	if management && strings.HasPrefix(path, "/identities") && !(d.strange && d.One(4)) {
		q.Set("project", d.caller.Slug)
	} else if d.strange && d.One(10) {
		q.Set("project", d.someProject(management))
	}
	switch path {
	case "/identities":
		add("limit", "1", "1000", "1001", "-1", "0", "99999999999999999999", "1e3")
		add("after", d.caller.Some(d.rng, "cursor"), choose(d, d.callers...).Some(d.rng, "cursor"))
		add("traitKey", "team", "k")
		add("traitValue", "red")
	case "/requests", "/requests/histogram", "/trace/roots", "/trace/lineage/:rootId", "/trace/timeline/:rootId":
		d.debuggingQuery(q)
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// debuggingQuery adds what the debugging reads take: right, from another caller, wrong, or very often.
func (d *Drawer) debuggingQuery(q url.Values) {
	pool := func(kind string) string { return choose(d, d.caller, choose(d, d.callers...)).Some(d.rng, kind) }
	values := map[string][]string{
		"from": {d.instant()}, "to": {d.instant()}, "first": {"1", "50", "100", "101", "-1", "99999999999999999999"},
		"after": {pool("cursor"), pool("cursor")}, "afterMemories": {pool("cursor")}, "afterSources": {pool("cursor")},
		"status": {"200", "202", "-1", "9999"}, "statusClass": {"2xx", "4xx", "3xx", "%xx"}, "keyName": {"k", "%", "_", "*"},
		"endpoint": {"POST /api/v1/ingest", "POST /api/v1/recall", "GET %"}, "ingestionId": {pool("send"), pool("request")},
		"search":    {pool("source"), pool("request"), "%", "_", "(a+)+$", `\`, "zm", "' or 1=1 --"},
		"revealAll": {"true", "false", "2"}, "limit": {"1", "400", "401", "0", "-9223372036854775808"},
		"reveal": {pool("node") + ":inputs", pool("node") + ":outputs", pool("node") + ":sides"},
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !d.One(4) {
			continue
		}
		times := 1
		if d.strange && d.One(6) {
			times = choose(d, 2, 100, 101, 2_000, 10_000)
		}
		for range times {
			q.Add(name, choose(d, append(values[name], d.odd())...))
		}
	}
}

// someProject is the project of any caller. Not that of another one in the same organization for a
// management key: it may write identities there, and then a marker is rightly where it is not expected.
func (d *Drawer) someProject(management bool) string {
	c := choose(d, d.callers...)
	if management && c.Organization == d.caller.Organization {
		c = d.caller
	}
	return c.Slug
}

func (d *Drawer) instant() string {
	if !d.strange {
		return fmt.Sprintf("20%02d-03-04T05:06:07.123456Z", d.rng.IntN(26))
	}
	return choose(d, "2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z",
		"2026-02-30T00:00:00Z", "-1", "1969-12-31T23:59:59+14:00", "2026-01-01", "2016-12-31T23:59:60Z",
		"10000-01-01T00:00:00Z", fmt.Sprintf("20%02d-03-04T05:06:07.123456789Z", d.rng.IntN(100)))
}

// content is a text with the caller's marker.
func (d *Drawer) content() string { return Text(d.rng) + " " + d.caller.Marker }

func (d *Drawer) fresh(kind string) string {
	d.serial++
	name := fmt.Sprintf("%s-%s-%d", kind, d.prefix, d.serial)
	if d.strange && d.One(4) {
		name += d.odd()
	}
	d.caller.Add(kind, name)
	return name
}

// known is a name of the pool, or a new one.
func (d *Drawer) known(kind string, newOneOf int) string {
	if name := d.caller.Some(d.rng, kind); name != "" && !d.One(newOneOf) {
		return name
	}
	return d.fresh(kind)
}

// audience is one of few slugs, so that they are removed and put again all the time.
func (d *Drawer) audience() string {
	slug := choose(d, "aa", "bb", "cc", "dd", "ee")
	d.caller.Add("audience", slug)
	return slug
}

func (d *Drawer) point(key bool) map[string]any {
	p := map[string]any{"content": d.content()}
	may := func(name string, oneOf int, value func() any) {
		if d.One(oneOf) {
			p[name] = value()
		}
	}
	if !d.One(8) {
		p["id"] = d.known("source", 3)
	}
	may("label", 3, func() any { return d.content() })
	may("timestamp", 3, func() any { return d.instant() })
	may("metadata", 3, func() any { return d.value(2) })
	may("audience", 3, func() any {
		if slug := d.caller.Some(d.rng, "audience"); slug != "" && !d.strange {
			return slug
		}
		return choose(d, d.audience(), "project", "gone")
	})
	may("identity", 3, func() any { return d.known("identity", 5) })
	if key {
		may("idempotencyKey", 6, func() any { return d.known("idempotency", 3) })
	}
	return p
}

// value is JSON of any shape, with the caller's marker in its texts.
func (d *Drawer) value(depth int) any {
	switch n := d.rng.IntN(9); {
	case n == 0:
		return nil
	case n == 1:
		return choose(d, json.RawMessage("1e400"), json.RawMessage("-0"), json.RawMessage("9007199254740993"),
			json.RawMessage("0.1e-9999"), json.RawMessage(strings.Repeat("9", 400)))
	case n == 2:
		return d.One(2)
	case n < 6 || depth == 0:
		return d.content()
	case n == 6:
		return []any{d.value(depth - 1), d.value(depth - 1)}
	default:
		return map[string]any{d.odd(): d.value(depth - 1), "a": d.value(depth - 1)}
	}
}

func (d *Drawer) traits(null bool) map[string]any {
	traits := map[string]any{}
	for range d.rng.IntN(5) {
		key, value := choose(d, "team", "k", "role"), choose(d, "red", d.caller.Marker)
		if d.strange {
			key, value = choose(d, key, d.odd()), choose(d, value, value+d.odd())
		}
		traits[key] = value
	}
	if null && d.One(2) {
		traits["team"] = nil
	}
	return traits
}

func (d *Drawer) rule() map[string]any {
	if !d.strange {
		values := make([]string, 1+d.rng.IntN(50))
		for v := range values {
			values[v] = choose(d, "red", "blue", d.caller.Marker, strings.Repeat("v", 1+d.rng.IntN(2000)))
		}
		return map[string]any{
			"match":      choose(d, "all", "any"),
			"conditions": []any{map[string]any{"trait": choose(d, "team", "k"), "operator": "is_one_of", "values": values}},
		}
	}
	conditions := make([]any, d.rng.IntN(22))
	for i := range conditions {
		values := make([]string, choose(d, 0, 1, 1, 2, 50, 51))
		for v := range values {
			values[v] = choose(d, "red", d.caller.Marker, strings.Repeat("v", choose(d, 1, 2000, 2001)))
		}
		conditions[i] = map[string]any{
			"trait":    choose(d, "team", "k", d.odd()),
			"operator": choose(d, "is", "is_not", "is_one_of", "is_not_one_of", "exists", "does_not_exist", "like"),
			"values":   values,
		}
	}
	return map[string]any{"match": choose(d, "all", "any", "none"), "conditions": conditions}
}

// bodyOf is a body that is mostly right; nil is none.
func (d *Drawer) bodyOf(route string) any {
	switch route {
	case "POST /ingest":
		return d.point(true)
	case "POST /ingest/batch":
		items := make([]any, choose(d, 0, 1, 2, 5, 12))
		for i := range items {
			p := d.point(false)
			if !d.strange {
				p["id"] = d.fresh("source")
			}
			items[i] = p
		}
		body := map[string]any{"items": items}
		if d.One(4) {
			body["idempotencyKey"] = d.known("idempotency", 3)
		}
		return body
	case "POST /data-points/delete":
		ids := make([]string, choose(d, 0, 1, 1, 2, 3))
		for i := range ids {
			ids[i] = d.name("source")
		}
		return map[string]any{"ids": ids}
	case "POST /recall":
		return d.recall()
	case "PUT /identities/:identity":
		return map[string]any{"traits": d.traits(false)}
	case "PATCH /identities/:identity":
		return map[string]any{"traits": d.traits(true)}
	case "POST /identities/bulk":
		rows := make([]any, d.rng.IntN(12))
		for i := range rows {
			rows[i] = map[string]any{"identity": d.known("identity", 4), "traits": d.traits(false)}
		}
		return rows
	case "PUT /audiences/:slug":
		if d.One(2) {
			return map[string]any{"kind": "rule", "name": d.content(), "rule": d.rule()}
		}
		return map[string]any{
			"kind":       choose(d, "fixed", "fixed", "fixed", "default", ""),
			"identities": []string{d.known("identity", 8), d.known("identity", 8)},
		}
	case "POST /projects":
		d.serial++
		if d.serial > 3 { // projects stay, so there are few
			return map[string]any{"name": choose(d, "", "a", "--", strings.Repeat("p", 256), "\x00")}
		}
		return map[string]any{"name": fmt.Sprintf("hostile %s %d", d.prefix, d.serial)}
	case "POST /projects/:slug/keys":
		return map[string]any{"name": choose(d, "k", d.odd())}
	case "POST /ingest/estimate":
		if d.One(4) {
			return map[string]any{"files": []any{map[string]any{"path": d.odd(), "content": d.content()}}, "timeZone": d.odd()}
		}
		body, _ := d.Estimates.Next()
		return body
	case "POST /webhooks/:webhookId/:token":
		if d.One(2) {
			return map[string]any{"content": d.content(), "id": choose[any](d, d.known("source", 8), d.odd(), 1.5, nil)}
		}
		return d.value(2)
	default:
		if d.One(10) {
			return d.value(2)
		}
		return nil
	}
}

func (d *Drawer) recall() map[string]any {
	q := map[string]any{
		"query":    choose(d, Text(d.rng), d.caller.Marker, "tea"),
		"identity": d.known("identity", 12),
	}
	if !d.strange {
		q["limit"] = 1 + d.rng.IntN(200)
		if d.One(3) {
			q["maxTokens"] = choose(d, 1, 10, 8000, 1<<30)
		}
		return q
	}
	may := func(name string, value any) {
		if d.One(3) {
			q[name] = value
		}
	}
	may("limit", choose(d, 1, 200, 201, 0, -1))
	if d.One(2) {
		may("maxTokens", choose(d, 0, 1, 8000, 32000, 1<<31, 1<<53, -1))
	} else {
		may("level", choose(d, "low", "medium", "high", "extra-high", "none"))
	}
	may("queryTimestamp", d.instant())
	may("occurredFrom", d.instant())
	may("occurredTo", d.instant())
	may("sort", choose(d, "relevance", "chronological", "random"))
	return q
}
