package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/auth"
)

// send makes a call and holds its answer against what is true of every answer.
func (w *hostileWorker) send(c hostileCall) {
	req := w.request(w.t.Context(), c, bytes.NewReader(c.body))
	res, err := w.http.Do(req)
	w.calls.Add(1)
	if err != nil {
		if w.alive() && !c.mayBeCut(err) {
			w.fail("no answer to %v: %v", c, err)
		}
		return
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		if w.alive() && !refusedByServer(res) && !c.mayBeCut(err) {
			w.fail("the answer to %v broke off: %v", c, err)
		}
		return
	}
	w.judge(c, req, res, body)
}

// mayBeCut is whether an error is that of a long body, or of a head that is longer than what the server reads at
// once: the call may be refused before all of it is there, which cuts the connection.
func (c hostileCall) mayBeCut(err error) bool {
	const readAtOnce = 4 << 10
	head := len(c.target) + len(fmt.Sprint(c.header))
	return (head > readAtOnce || head+len(c.body) > 30_000) && !errors.Is(err, context.DeadlineExceeded)
}

func (w *hostileWorker) request(ctx context.Context, c hostileCall, body io.Reader) *http.Request {
	req := (&http.Request{
		Method: c.method, URL: &url.URL{Scheme: "http", Host: w.addr, Opaque: "//" + w.addr + c.target}, Host: w.addr, Header: c.header.Clone(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if c.target == "*" {
		req.URL.Opaque = "*"
	}
	if len(c.body) > 0 {
		req.Body, req.ContentLength = io.NopCloser(body), int64(len(c.body))
	}
	return req
}

// judge holds an answer against what is true of every answer, and keeps the names that it gives.
func (w *hostileWorker) judge(c hostileCall, req *http.Request, res *http.Response, body []byte) {
	var answer map[string]any
	_ = json.Unmarshal(body, &answer) // an answer that is no object has no code
	code, _ := answer["code"].(string)
	w.note(fmt.Sprintf("%s %s %d %s", c.route.Method, c.route.Path, res.StatusCode, code))
	wrong := wrongAnswer(req, res, body)
	if other := w.leaked(c, res, body); other != "" {
		wrong = append(wrong, fmt.Sprintf("it holds %s, which another caller stored: %.400q", other, around(body, other)))
	}
	if found := strangeCanary(string(c.body), res.Header, string(body)); found != "" {
		wrong = append(wrong, fmt.Sprintf("it holds the text of an estimate, %s: %.400q", found, around(body, found)))
	}
	if c.plain && !refusedByServer(res) {
		if err := w.contract.Check(req, res.StatusCode, res.Header, body); err != nil {
			wrong = append(wrong, fmt.Sprintf("the OpenAPI document does not know it: %v", err))
		}
	}
	if len(wrong) > 0 {
		w.fail("%s: %d %v %.500q to %v", strings.Join(wrong, "; "), res.StatusCode, res.Header, body, c)
	}
	if res.StatusCode < 300 {
		w.learn(c, answer)
	}
	if id := res.Header.Get("X-Request-Id"); id != "" {
		w.caller.pools.add("request", id)
	}
}

// wrongAnswer is what no answer may be: a failure of the service, or an error without its envelope.
func wrongAnswer(req *http.Request, res *http.Response, body []byte) (wrong []string) {
	if refusedByServer(res) {
		return nil
	}
	if res.StatusCode >= 500 && (res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "") {
		wrong = append(wrong, "it is a 5xx, and no 503 that names its wait")
	}
	overLimit := res.StatusCode == http.StatusTooManyRequests && len(body) == 0
	if res.StatusCode < 400 || req.Method == http.MethodHead || overLimit {
		return wrong
	}
	var envelope struct {
		Code, DebugMessage *string
		Status             int
		Data               map[string]any
	}
	if err := json.Unmarshal(body, &envelope); err != nil || envelope.Code == nil || *envelope.Code == "" ||
		envelope.DebugMessage == nil ||
		envelope.Status != res.StatusCode ||
		envelope.Data == nil ||
		res.Header.Get("X-Request-Id") == "" {
		wrong = append(wrong, "it is an error without its envelope")
	}
	for _, inner := range []string{"SQLSTATE", "goroutine ", "datapoints."} {
		if strings.Contains(string(body), inner) {
			wrong = append(wrong, "it shows "+inner)
		}
	}
	return wrong
}

// refusedByServer is whether net/http refused the request before any handler saw it, with neither
// an id nor an envelope.
func refusedByServer(res *http.Response) bool {
	switch res.StatusCode {
	case http.StatusBadRequest,
		http.StatusExpectationFailed,
		http.StatusRequestHeaderFieldsTooLarge,
		http.StatusNotImplemented,
		http.StatusHTTPVersionNotSupported:
		return res.Header.Get("X-Request-Id") == ""
	default:
		return false
	}
}

func (w *hostileWorker) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[what]++
}

// leaked is the marker of another caller that an answer holds. A management key may read what the
// projects of its organization hold.
func (w *hostileWorker) leaked(c hostileCall, res *http.Response, body []byte) string {
	for _, other := range w.callers {
		if other == w.caller || c.management && other.organization == w.caller.organization {
			continue
		}
		if bytes.Contains(body, []byte(other.marker)) || strings.Contains(fmt.Sprint(res.Header), other.marker) {
			return other.marker
		}
	}
	return ""
}

// around is the part of a body before and after a text.
func around(body []byte, text string) []byte {
	const margin = 200
	at := bytes.Index(body, []byte(text))
	return body[max(0, at-margin):min(len(body), max(0, at)+margin)]
}

// learn keeps the names that an answer gives.
func (w *hostileWorker) learn(c hostileCall, answer map[string]any) {
	for field, kind := range map[string]string{"ingestionId": "send", "sourceId": "source", "endCursor": "cursor"} {
		if name, ok := answer[field].(string); ok && name != "" {
			w.caller.pools.add(kind, name)
		}
	}
	switch c.route.Method + c.route.Path {
	case "GET/api/v1/ingest/:ingestionId/explain":
		items, _ := answer["items"].([]any)
		for _, item := range items[:min(len(items), 3)] {
			if node, ok := item.(map[string]any)["sourceId"].(string); ok {
				w.caller.pools.add("node", node)
			}
		}
	case "POST/api/v1/projects":
		if slug, ok := answer["slug"].(string); ok {
			w.caller.pools.add("project", slug)
		}
	case "POST/api/v1/projects/:slug/keys":
		if id, ok := answer["id"].(string); ok {
			w.caller.pools.add("key", id)
		}
	}
}

// The walk sees what is wrong.
func TestHostileWorker_WrongAnswers(t *testing.T) {
	const good = `{"code":"c","status":%d,"debugMessage":"m","data":{}}`
	own, next, far := &hostileCaller{marker: "zmown"}, &hostileCaller{marker: "zmnext"}, &hostileCaller{
		marker:       "zmfar",
		organization: 1,
	}
	w := &hostileWorker{hostileWalk: &hostileWalk{callers: []*hostileCaller{own, next, far}}, caller: own}
	for name, c := range map[string]struct {
		method     string
		status     int
		retryAfter string
		noID       bool
		body       string
		management bool
		wrong      bool
	}{
		"success":                     {status: 200, body: `{"results":[]}`},
		"refusal":                     {status: 404, body: fmt.Sprintf(good, 404)},
		"busy":                        {status: 503, retryAfter: "2", body: fmt.Sprintf(good, 503)},
		"busy without a wait":         {status: 503, body: fmt.Sprintf(good, 503), wrong: true},
		"late":                        {status: 504, retryAfter: "2", body: fmt.Sprintf(good, 504), wrong: true},
		"failure":                     {status: 500, retryAfter: "2", body: fmt.Sprintf(good, 500), wrong: true},
		"over the limit":              {status: 429},
		"no body":                     {status: 404, wrong: true},
		"text":                        {status: 404, body: "not found", wrong: true},
		"another status":              {status: 404, body: fmt.Sprintf(good, 400), wrong: true},
		"no data":                     {status: 404, body: `{"code":"c","status":404,"debugMessage":"m"}`, wrong: true},
		"words of the database":       {status: 400, body: `{"code":"c","status":400,"debugMessage":"SQLSTATE","data":{}}`, wrong: true},
		"no id":                       {status: 404, noID: true, body: fmt.Sprintf(good, 404), wrong: true},
		"head":                        {method: http.MethodHead, status: 404},
		"not read as HTTP":            {status: 400, noID: true, body: "400 Bad Request"},
		"own text":                    {status: 200, body: `"zmown"`},
		"text of a project":           {status: 200, body: `"zmnext"`, wrong: true},
		"text of a project, managing": {status: 200, body: `"zmnext"`, management: true},
		"text of another, managing":   {status: 200, body: `"zmfar"`, management: true, wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			res := &http.Response{StatusCode: c.status, Header: http.Header{}}
			if c.retryAfter != "" {
				res.Header.Set("Retry-After", c.retryAfter)
			}
			if !c.noID {
				res.Header.Set("X-Request-Id", "id")
			}
			wrong := wrongAnswer(&http.Request{Method: c.method}, res, []byte(c.body))
			leaked := w.leaked(hostileCall{management: c.management}, res, []byte(c.body))
			if got := len(wrong) > 0 || leaked != ""; got != c.wrong {
				t.Errorf("wrong is %t: %v %q", got, wrong, leaked)
			}
		})
	}
}

// slowBody is a body that comes in pieces, and ends early where cut is set.
type slowBody struct {
	text  []byte
	piece int
	pause *time.Ticker
	cut   int
}

var errCut = errors.New("the caller went away")

func (d *slowBody) Read(p []byte) (int, error) {
	if len(d.text) == 0 {
		return 0, io.EOF
	}
	if d.cut--; d.cut == 0 {
		return 0, errCut
	}
	<-d.pause.C
	n := copy(p, d.text[:min(d.piece, len(d.text))])
	d.text = d.text[n:]
	return n, nil
}

// abort makes a call and goes away: while it sends the body, before the answer, or while that
// arrives.
func (w *hostileWorker) abort(c hostileCall) {
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	pause := time.NewTicker(time.Duration(1+w.rng.IntN(5)) * time.Millisecond)
	defer pause.Stop()
	body := &slowBody{text: c.body, piece: 1 + len(c.body)/8, pause: pause}
	switch w.rng.IntN(4) {
	case 0:
		body.cut = 1 + w.rng.IntN(6)
	case 1:
		timer := time.AfterFunc(time.Duration(w.rng.IntN(8000))*time.Microsecond, cancel)
		defer timer.Stop()
	}
	req := w.request(ctx, c, body)
	res, err := w.http.Do(req)
	w.calls.Add(1)
	if err != nil {
		return
	}
	defer func() { _ = res.Body.Close() }()
	if w.one(2) {
		return // the rest of the answer is not read
	}
	if text, err := io.ReadAll(res.Body); err == nil {
		w.judge(c, req, res, text)
	}
}

// raw writes to a connection what is no request, or half of one, and looks at nothing but that an
// answer is an envelope.
func (w *hostileWorker) raw() {
	conn, err := (&net.Dialer{Timeout: hostileHang}).DialContext(w.t.Context(), "tcp", w.addr)
	w.calls.Add(1)
	if err != nil {
		if w.alive() {
			w.fail("connect: %v", err)
		}
		return
	}
	defer func() { _ = conn.Close() }()
	c := w.call()
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n",
		c.method, c.target, w.addr, w.caller.key)
	length := fmt.Sprintf("Content-Length: %d\r\n\r\n", len(c.body))
	text := choose(w, "\r\n\r\n", "GET", "GET / HTTP/9.9\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", head, head+length+string(c.body[:len(c.body)/2]),
		head+"Content-Length: -1\r\n\r\n", head+"Content-Length: 99999999999999999999\r\n\r\n",
		head+"Content-Length: 102760448\r\n\r\n{", head+"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
		head+"Transfer-Encoding: chunked\r\n\r\nzz\r\n", head+"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\na",
		head+"Transfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n", head+"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		head+"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n",
		head+"Expect: 100-continue\r\n"+length, head+length+string(c.body)+head+length+string(c.body),
		"GET /api/v1/usage HTTP/1.0\r\n\r\n", "GET /a b HTTP/1.1\r\n\r\n", head+"X: "+strings.Repeat("a", 1<<17)+"\r\n\r\n",
		head+"A\x00: b\r\n\r\n", strings.ReplaceAll(head+length, "\r\n", "\n")+string(c.body),
		"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", head+"Upgrade: h2c\r\nConnection: Upgrade\r\n\r\n")
	if _, err := io.WriteString(conn, text); err != nil {
		return // it was refused before its end
	}
	if w.one(2) {
		return // gone at once
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
	_ = conn.SetReadDeadline(time.Now().Add(hostileHang))
	answer, err := io.ReadAll(io.LimitReader(conn, 64<<20))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.fail("a connection hangs after %.300q", text)
	}
	w.note(fmt.Sprintf("raw %.12s", answer))
	if status, _, _ := strings.Cut(strings.TrimPrefix(string(answer), "HTTP/1.1 "), " "); strings.HasPrefix(status, "5") &&
		status != "503" &&
		status != "501" &&
		status != "505" {
		w.fail("an answer that no call may get: %.500q to %.300q", answer, text)
	}
	if found := strangeCanary(text, nil, string(answer)); found != "" {
		w.fail("an answer holds the text of an estimate, %s: %.500q to %.300q", found, answer, text)
	}
	for _, other := range w.callers {
		if other != w.caller && bytes.Contains(answer, []byte(other.marker)) {
			w.fail("an answer holds what another caller stored: %.500q to %.300q", answer, text)
		}
	}
}

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
