package hostiletest

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/auth"
)

// Raw is what is no request to a host, or half of one.
func (d *Drawer) Raw(host string) string {
	c := d.Call()
	head := Head(c.Method, c.Target, host, d.caller.Key)
	length := fmt.Sprintf("Content-Length: %d\r\n\r\n", len(c.Body))
	return choose(d, append(Unended(head), "\r\n\r\n", "GET", "GET / HTTP/9.9\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", head, head+length+string(c.Body[:len(c.Body)/2]),
		head+"Content-Length: -1\r\n\r\n", head+"Content-Length: 99999999999999999999\r\n\r\n",
		head+"Content-Length: 102760448\r\n\r\n{", head+"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
		head+"Transfer-Encoding: chunked\r\n\r\nzz\r\n", head+"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\na",
		head+"Transfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n", head+"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		head+"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n",
		head+"Expect: 100-continue\r\n"+length, head+length+string(c.Body)+head+length+string(c.Body),
		"GET /api/v1/usage HTTP/1.0\r\n\r\n", "GET /a b HTTP/1.1\r\n\r\n", head+"X: "+strings.Repeat("a", 1<<17)+"\r\n\r\n",
		head+"A\x00: b\r\n\r\n", strings.ReplaceAll(head+length, "\r\n", "\n")+string(c.Body),
		"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", head+"Upgrade: h2c\r\nConnection: Upgrade\r\n\r\n")...)
}

// Mutated is a call with one or two things wrong.
func (d *Drawer) Mutated(c Call) Call {
	c.Header, c.Body = c.Header.Clone(), slices.Clone(c.Body)
	for range 1 + d.rng.IntN(2) {
		switch n := d.rng.IntN(10); {
		case n < 6 && len(c.Body) > 0:
			c.Body = d.BrokenBody(c.Body)
		case n < 7:
			c = d.brokenTarget(c)
		case n < 8:
			c.Method, c.Plain = choose(d, "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "PROPFIND",
				"X"), false
		default:
			d.brokenHeader(c.Header)
		}
	}
	return c
}

// BrokenBody is a body with something changed, in its text or in one of its values.
func (d *Drawer) BrokenBody(body []byte) []byte {
	at := d.rng.IntN(len(body))
	switch d.rng.IntN(14) {
	case 0: // broken off
		return body[:at]
	case 1: // another byte
		body[at] = byte(d.rng.IntN(256))
		return body
	case 2: // something between
		return slices.Concat(body[:at], []byte(d.odd()), body[at:])
	case 3: // a name twice
		return bytes.Replace(body, []byte("{"), []byte(`{"content":"a","content":1,"id":[],"query":null,"items":{},`), 1)
	case 4: // more after the value
		return append(body, choose(d, "{}", "]", "\x00", ",", strings.Repeat(" ", 100_000))...)
	case 5: // deep
		deep := choose(d, 100, 9_999, 10_001, 200_000)
		return []byte(strings.Repeat("[", deep) + strings.Repeat("]", choose(d, 0, deep)))
	case 6: // deep within
		deep := choose(d, 100, 5_000, 9_990, 20_000)
		return bytes.Replace(body, []byte(":"),
			[]byte(`:`+strings.Repeat(`{"a":`, deep)+"1"+strings.Repeat("}", deep)+`,"b":`), 1)
	case 7: // wide
		return []byte(`{"content":"a","metadata":{` + strings.Repeat(`"a":1,`, choose(d, 1_000, 50_000)) + `"b":2}}`)
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
			[]byte(`":"`+choose(d, `\ud800`, `\udc00\ud800`, `\u0000`, `\ud83d\ude00`, `\uffff`)), 1+d.rng.IntN(3))
	default: // a value of another type
		return d.otherValue(body)
	}
}

// otherValue replaces one value after a colon by another.
func (d *Drawer) otherValue(body []byte) []byte {
	colons := []int{}
	for i, b := range body {
		if b == ':' {
			colons = append(colons, i)
		}
	}
	value := choose(d, "null", "true", "0", "-1", "1e999", "1.5", "9223372036854775808", `""`, `" "`, "[]", "{}", `["a"]`,
		`{"a":1}`, `"\u0000"`, `"`+strings.Repeat("x", 2001)+`"`, "["+strings.Repeat("1,", 2000)+"1]",
		strings.Repeat("9", 5000))
	if len(colons) == 0 {
		return []byte(value)
	}
	at := colons[d.rng.IntN(len(colons))] + 1
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

func (d *Drawer) brokenTarget(c Call) Call {
	c.Plain = false
	switch d.rng.IntN(10) {
	case 0:
		c.Target += "/"
	case 1:
		c.Target += choose(d, "%zz", "%", "%2", "%00", "%ff", "%2F..%2F..", ";a=b", "//", "/../../metrics")
	case 2:
		c.Target = strings.Replace(c.Target, "/", "//", 1+d.rng.IntN(3))
	case 3:
		c.Target = strings.ToUpper(c.Target)
	case 4:
		c.Target += "?" + strings.Repeat("a=b&", choose(d, 10, 10_000))
	case 5:
		c.Target += choose(d, "?%", "?a=%zz", "?;", "?project=&project=a", "?limit=1&limit=2", "?=", "?\xff=1")
	case 6:
		c.Target = auth.Prefix + choose(d, "", "/", "/nothing", "/ingest/../recall", "/.well-known",
			"/"+strings.Repeat("a/", 500))
	case 7:
		c.Target = choose(d, "/", "/metrics/", "/readyz?a", "/healthz", "/debug/pprof/",
			"/.well-known/oauth-protected-resource/api/v1", "/api/v2/recall", "*")
	case 8:
		c.Target += strings.Repeat("a", choose(d, 3_000, 60_000))
	default:
		// Each letter as its escape is the same path.
		var b strings.Builder
		for _, r := range []byte(c.Target) {
			if r >= 'a' && r <= 'z' && d.One(3) {
				fmt.Fprintf(&b, "%%%02x", r)
				continue
			}
			b.WriteByte(r)
		}
		c.Target = b.String()
	}
	return c
}

func (d *Drawer) brokenHeader(h http.Header) {
	switch d.rng.IntN(9) {
	case 0:
		h.Set("Content-Type", choose(d, "text/plain", "application/json; charset=utf-16", "application/JSON",
			"multipart/form-data", ";", "application/x-www-form-urlencoded", strings.Repeat("a/", 1000)))
	case 1:
		h.Set("Content-Encoding", choose(d, "gzip", "identity", "br, gzip", "x"))
	case 2:
		h.Set("Authorization", choose(d, "", "Bearer", "Bearer ", "bearer "+d.caller.Key, "Basic YTpi",
			"Bearer "+d.caller.Key+" x", "Bearer a.b.c", d.caller.Key, "Bearer "+strings.Repeat("a", 20_000)))
	case 3:
		h.Set("Expect", choose(d, "100-continue", "200-ok", ""))
	case 4:
		h.Set("Origin", choose(d, "https://evil.example", "null", ""))
	case 5:
		h.Set("X-Service-Project", choose(d, d.callers...).Slug)
	case 6:
		h.Set(
			choose(d, "X-Forwarded-For", "Range", "If-None-Match", "Accept", "Connection", "Upgrade", "Cookie", "Host",
				"X-HTTP-Method-Override", "X-Request-Id"),
			choose(d, "*", "bytes=0-1", "upgrade", "h2c", "DELETE", "127.0.0.1", uuid.NewString()),
		)
	case 7:
		h.Set("X-Long", strings.Repeat("a", choose(d, 10_000, 70_000)))
	default:
		for n := range 200 {
			h.Set(fmt.Sprintf("X-%d", n), "a")
		}
	}
}

// Unknown is a call with a key that nothing has.
func (d *Drawer) Unknown(c Call) Call {
	c.Header = c.Header.Clone()
	c.Header.Set("Authorization", "Bearer "+UnknownKey(d.One(2)))
	return c
}

// Large is a call of about the most, or somewhat more, that its route takes.
func (d *Drawer) Large() Call {
	large := strings.Repeat(d.content()+" ", 1+d.rng.IntN(20_000))
	many := choose(d, 999, 1000, 1001)
	var r Request
	switch n := d.rng.IntN(14); n {
	case 0, 1:
		items := make([]Point, many)
		for i, id := range Numbered("many", 0, many) {
			items[i] = Point{ID: id, Content: d.content()}
		}
		r = Batch(items)
	case 2:
		r = Send(Point{ID: "large", Content: large[:min(len(large), 1<<20)]})
	case 3:
		r = Send(Point{
			ID: "metadata", Content: d.content(), Metadata: strings.Repeat(d.caller.Marker, choose(d, 1000, 70_000, 80_000)),
		})
	case 4:
		r = Send(Point{
			ID: "elements", Content: d.content(), Metadata: Metadata(d.rng.IntN(3), choose(d, 1000, 1<<20-64, 1<<20)),
		})
	case 5:
		r = Traits("large", many, choose(d, 1, 500, 540))
	case 6:
		r = Identities(0, many, choose(d, 1, 20))
	case 7:
		r = Deletion(Numbered("many", 0, many))
	case 8:
		r = Recall(large[:min(len(large), choose(d, 1000, 100_000, 2<<20))], "walk", choose(d, 0, 1))
	case 9:
		r = Members(d.audience(), slices.Repeat(Numbered("person", 0, 1000), choose(d, 1, 5))...)
	case 10:
		r = Rule(d.audience(), choose(d, 19, 20, 21), choose(d, 100, 480, 1900))
	case 11:
		r = choose(d, Reads(url.PathEscape(d.name("node")))...)
	case 12:
		r = Request{http.MethodPost, d.filled("/webhooks/:webhookId/:token"), choose(d, Events(choose(d, 1000, 1<<20))...)}
	default:
		r = choose(d, Bodies(choose(d, 1000, 100_000, 2<<20))...)
	}
	return d.To(r)
}
