package e2e

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/annals-project/annals/internal/bench/hostile"
)

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
