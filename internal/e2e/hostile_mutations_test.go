package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/auth"
)

// mutated is a call with one or two things wrong.
func (w *hostileWorker) mutated(c hostileCall) hostileCall {
	c.header, c.body = c.header.Clone(), slices.Clone(c.body)
	for range 1 + w.rng.IntN(2) {
		switch n := w.rng.IntN(10); {
		case n < 6 && len(c.body) > 0:
			c.body = w.brokenBody(c.body)
		case n < 7:
			c = w.brokenTarget(c)
		case n < 8:
			c.method, c.plain = choose(w, "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "PROPFIND",
				"X"), false
		default:
			w.brokenHeader(c.header)
		}
	}
	return c
}

// brokenBody is a body with something changed, in its text or in one of its values.
func (w *hostileWorker) brokenBody(body []byte) []byte {
	at := w.rng.IntN(len(body))
	switch w.rng.IntN(14) {
	case 0: // broken off
		return body[:at]
	case 1: // another byte
		body[at] = byte(w.rng.IntN(256))
		return body
	case 2: // something between
		return slices.Concat(body[:at], []byte(w.odd()), body[at:])
	case 3: // a name twice
		return bytes.Replace(body, []byte("{"), []byte(`{"content":"a","content":1,"id":[],"query":null,"items":{},`), 1)
	case 4: // more after the value
		return append(body, choose(w, "{}", "]", "\x00", ",", strings.Repeat(" ", 100_000))...)
	case 5: // deep
		deep := choose(w, 100, 9_999, 10_001, 200_000)
		return []byte(strings.Repeat("[", deep) + strings.Repeat("]", choose(w, 0, deep)))
	case 6: // deep within
		deep := choose(w, 100, 5_000, 9_990, 20_000)
		return bytes.Replace(body, []byte(":"),
			[]byte(`:`+strings.Repeat(`{"a":`, deep)+"1"+strings.Repeat("}", deep)+`,"b":`), 1)
	case 7: // wide
		return []byte(`{"content":"a","metadata":{` + strings.Repeat(`"a":1,`, choose(w, 1_000, 50_000)) + `"b":2}}`)
	case 8: // a mark of the order of bytes
		return append([]byte("\ufeff"), body...)
	case 9: // UTF-16
		var wide []byte
		for _, b := range body[:min(len(body), 10_000)] {
			wide = append(wide, 0, b)
		}
		return wide
	case 10: // half of a surrogate pair
		return bytes.Replace(body, []byte(`":"`),
			[]byte(`":"`+choose(w, `\ud800`, `\udc00\ud800`, `\u0000`, `\ud83d\ude00`, `\uffff`)), 1+w.rng.IntN(3))
	default: // a value of another type
		return w.otherValue(body)
	}
}

// otherValue replaces one value after a colon by another.
func (w *hostileWorker) otherValue(body []byte) []byte {
	colons := []int{}
	for i, b := range body {
		if b == ':' {
			colons = append(colons, i)
		}
	}
	value := choose(w, "null", "true", "0", "-1", "1e999", "1.5", "9223372036854775808", `""`, `" "`, "[]", "{}", `["a"]`,
		`{"a":1}`, `"\u0000"`, `"`+strings.Repeat("x", 2001)+`"`, "["+strings.Repeat("1,", 2000)+"1]",
		strings.Repeat("9", 5000))
	if len(colons) == 0 {
		return []byte(value)
	}
	at := colons[w.rng.IntN(len(colons))] + 1
	end := at
	for depth := 0; end < len(body); end++ {
		b := body[end]
		if depth == 0 && (b == ',' || b == '}' || b == ']') {
			break
		}
		switch b {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
	}
	return slices.Concat(body[:at], []byte(value), body[end:])
}

func (w *hostileWorker) brokenTarget(c hostileCall) hostileCall {
	c.plain = false
	switch w.rng.IntN(10) {
	case 0:
		c.target += "/"
	case 1:
		c.target += choose(w, "%zz", "%", "%2", "%00", "%ff", "%2F..%2F..", ";a=b", "//", "/../../metrics")
	case 2:
		c.target = strings.Replace(c.target, "/", "//", 1+w.rng.IntN(3))
	case 3:
		c.target = strings.ToUpper(c.target)
	case 4:
		c.target += "?" + strings.Repeat("a=b&", choose(w, 10, 10_000))
	case 5:
		c.target += choose(w, "?%", "?a=%zz", "?;", "?project=&project=a", "?limit=1&limit=2", "?=", "?\xff=1")
	case 6:
		c.target = auth.Prefix + choose(w, "", "/", "/nothing", "/ingest/../recall", "/.well-known",
			"/"+strings.Repeat("a/", 500))
	case 7:
		c.target = choose(w, "/", "/metrics/", "/readyz?a", "/healthz", "/debug/pprof/",
			"/.well-known/oauth-protected-resource/api/v1", "/api/v2/recall", "*")
	case 8:
		c.target += strings.Repeat("a", choose(w, 3_000, 60_000))
	default:
		// Each letter as its escape is the same path.
		var b strings.Builder
		for _, r := range []byte(c.target) {
			if r >= 'a' && r <= 'z' && w.one(3) {
				fmt.Fprintf(&b, "%%%02x", r)
				continue
			}
			b.WriteByte(r)
		}
		c.target = b.String()
	}
	return c
}

func (w *hostileWorker) brokenHeader(h http.Header) {
	switch w.rng.IntN(9) {
	case 0:
		h.Set("Content-Type", choose(w, "text/plain", "application/json; charset=utf-16", "application/JSON",
			"multipart/form-data", ";", "application/x-www-form-urlencoded", strings.Repeat("a/", 1000)))
	case 1:
		h.Set("Content-Encoding", choose(w, "gzip", "identity", "br, gzip", "x"))
	case 2:
		h.Set("Authorization", choose(w, "", "Bearer", "Bearer ", "bearer "+w.caller.key, "Basic YTpi",
			"Bearer "+w.caller.key+" x", "Bearer a.b.c", w.caller.key, "Bearer "+strings.Repeat("a", 20_000)))
	case 3:
		h.Set("Expect", choose(w, "100-continue", "200-ok", ""))
	case 4:
		h.Set("Origin", choose(w, "https://evil.example", "null", ""))
	case 5:
		h.Set("X-Service-Project", choose(w, w.callers...).slug)
	case 6:
		h.Set(
			choose(w, "X-Forwarded-For", "Range", "If-None-Match", "Accept", "Connection", "Upgrade", "Cookie", "Host",
				"X-HTTP-Method-Override", "X-Request-Id"),
			choose(w, "*", "bytes=0-1", "upgrade", "h2c", "DELETE", "127.0.0.1", uuid.NewString()),
		)
	case 7:
		h.Set("X-Long", strings.Repeat("a", choose(w, 10_000, 70_000)))
	default:
		for n := range 200 {
			h.Set(fmt.Sprintf("X-%d", n), "a")
		}
	}
}

// unknown is a call with a key that nothing has.
func (w *hostileWorker) unknown(c hostileCall) hostileCall {
	c.header = c.header.Clone()
	kind := choose(w, "svc_sk_", "svc_mk_")
	c.header.Set("Authorization", "Bearer "+kind+strings.ReplaceAll(uuid.NewString()+uuid.NewString(), "-", "")[:40])
	return c
}

// big is a call that is right and large.
func (w *hostileWorker) big() hostileCall {
	large := strings.Repeat(w.content()+" ", 1+w.rng.IntN(20_000))
	switch w.rng.IntN(9) {
	case 0, 1:
		items := make([]any, choose(w, 999, 1000, 1001))
		for i := range items {
			items[i] = map[string]any{"id": fmt.Sprintf("many-%d", i), "content": w.content()}
		}
		return w.to(http.MethodPost, "/ingest/batch", "", map[string]any{"items": items})
	case 2:
		return w.to(http.MethodPost, "/ingest", "", map[string]any{"id": "large", "content": large[:min(len(large), 1<<20)]})
	case 3:
		return w.to(http.MethodPost, "/ingest", "", map[string]any{
			"id":       "metadata",
			"content":  w.content(),
			"metadata": strings.Repeat(w.caller.marker, choose(w, 1000, 70_000, 80_000)),
		})
	case 4:
		traits := map[string]string{}
		for n := range choose(w, 999, 1000, 1001) {
			traits[fmt.Sprintf("k%d", n)] = strings.Repeat("v", choose(w, 1, 500, 540))
		}
		return w.to(http.MethodPut, "/identities/:identity", "/identities/large", map[string]any{"traits": traits})
	case 5:
		rows := make([]any, choose(w, 999, 1000, 1001))
		for i := range rows {
			rows[i] = map[string]any{
				"identity": fmt.Sprintf("row-%d", i),
				"traits":   map[string]string{"team": choose(w, "red", "blue")},
			}
		}
		return w.to(http.MethodPost, "/identities/bulk", "", rows)
	case 6:
		ids := make([]string, choose(w, 999, 1000, 1001))
		for i := range ids {
			ids[i] = fmt.Sprintf("many-%d", i)
		}
		return w.to(http.MethodPost, "/data-points/delete", "", map[string]any{"ids": ids})
	case 7:
		return w.to(http.MethodPost, "/recall", "",
			map[string]any{"query": large[:min(len(large), choose(w, 1000, 100_000, 2<<20))], "identity": "walk", "limit": 200})
	default:
		members := make([]string, choose(w, 1000, 5000))
		for i := range members {
			members[i] = fmt.Sprintf("row-%d", i%1000)
		}
		return w.to(http.MethodPut, "/audiences/:slug", "/audiences/"+w.audience(),
			map[string]any{"kind": "fixed", "identities": members})
	}
}
