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
	"sync"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/hostiletest"
)

// hostileWorker makes calls as one caller.
type hostileWorker struct {
	*hostileWalk
	caller *hostiletest.Caller
	draw   *hostiletest.Drawer
}

// step makes one call, or many of the same at once.
func (w *hostileWorker) step() {
	d := w.draw
	switch n := d.IntN(100); {
	case n < 40:
		w.send(d.Call())
	case n < 70:
		w.send(d.Mutated(d.Call()))
	case n < 76:
		w.burst(d.Call(), d.Mutated)
	case n < 84:
		w.abort(d.Call())
	case n < 92:
		w.raw()
	case n < 95:
		w.send(d.Large())
	case n < 97:
		w.tidy()
	default:
		w.send(d.Unknown(d.Call()))
	}
}

// estimate is a step of who makes only estimates.
func (w *hostileWorker) estimate() {
	body, _ := w.draw.Estimates.Next()
	c := w.draw.To(hostiletest.Request{Method: http.MethodPost, Path: estimateRoute, Body: body})
	broken := func(c hostiletest.Call) hostiletest.Call { // still a call of the route
		c.Body = w.draw.BrokenBody(slices.Clone(c.Body))
		return c
	}
	switch w.draw.IntN(6) {
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

// burst makes a call many times at once, some of them changed.
func (w *hostileWorker) burst(c hostiletest.Call, change func(hostiletest.Call) hostiletest.Call) {
	var group sync.WaitGroup
	for range 2 + w.draw.IntN(14) {
		each := c
		if w.draw.One(4) {
			each = change(c)
		}
		group.Go(func() { w.send(each) })
	}
	group.Wait()
}

// tidy deletes what is old, so that an hour of calls does not fill the store.
func (w *hostileWorker) tidy() {
	if ids := w.caller.Drop("source", 10); len(ids) > 0 {
		w.send(w.draw.To(hostiletest.Deletion(ids)))
	}
	for _, id := range w.caller.Drop("identity", 10) {
		w.send(w.draw.To(hostiletest.Request{Method: http.MethodDelete, Path: "/identities/" + url.PathEscape(id)}))
	}
}

// send makes a call and holds its answer against what is true of every answer.
func (w *hostileWorker) send(c hostiletest.Call) {
	req := w.request(w.t.Context(), c, bytes.NewReader(c.Body))
	res, err := w.http.Do(req)
	w.calls.Add(1)
	if err != nil {
		if w.alive() && !mayBeCut(c, err) {
			w.fail("no answer to %v: %v", c, err)
		}
		return
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		if w.alive() && !refusedByServer(res) && !mayBeCut(c, err) {
			w.fail("the answer to %v broke off: %v", c, err)
		}
		return
	}
	w.judge(c, req, res, body)
}

// mayBeCut is whether an error is that of a long body, or of a head that is longer than what the server reads at
// once: the call may be refused before all of it is there, which cuts the connection.
func mayBeCut(c hostiletest.Call, err error) bool {
	const readAtOnce = 4 << 10
	head := len(c.Target) + len(fmt.Sprint(c.Header))
	return (head > readAtOnce || head+len(c.Body) > 30_000) && !errors.Is(err, context.DeadlineExceeded)
}

func (w *hostileWorker) request(ctx context.Context, c hostiletest.Call, body io.Reader) *http.Request {
	req := (&http.Request{
		Method: c.Method, URL: &url.URL{Scheme: "http", Host: w.addr, Opaque: "//" + w.addr + c.Target}, Host: w.addr, Header: c.Header.Clone(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if c.Target == "*" {
		req.URL.Opaque = "*"
	}
	if len(c.Body) > 0 {
		req.Body, req.ContentLength = io.NopCloser(body), int64(len(c.Body))
	}
	return req
}

// judge holds an answer against what is true of every answer, and keeps the names that it gives.
func (w *hostileWorker) judge(c hostiletest.Call, req *http.Request, res *http.Response, body []byte) {
	var answer map[string]any
	_ = json.Unmarshal(body, &answer) // an answer that is no object has no code
	code, _ := answer["code"].(string)
	w.note(fmt.Sprintf("%s %s %d %s", c.Route.Method, c.Route.Path, res.StatusCode, code))
	wrong := wrongAnswer(req, res, body)
	if other := w.leaked(c, res, body); other != "" {
		wrong = append(wrong, fmt.Sprintf("it holds %s, which another caller stored: %.400q", other, around(body, other)))
	}
	if found := hostiletest.StrangeCanary(string(c.Body), res.Header, string(body)); found != "" {
		wrong = append(wrong, fmt.Sprintf("it holds the text of an estimate, %s: %.400q", found, around(body, found)))
	}
	if c.Plain && !refusedByServer(res) {
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
		w.caller.Add("request", id)
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
func (w *hostileWorker) leaked(c hostiletest.Call, res *http.Response, body []byte) string {
	for _, other := range w.callers {
		if other == w.caller || c.Management && other.Organization == w.caller.Organization {
			continue
		}
		if bytes.Contains(body, []byte(other.Marker)) || strings.Contains(fmt.Sprint(res.Header), other.Marker) {
			return other.Marker
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
func (w *hostileWorker) learn(c hostiletest.Call, answer map[string]any) {
	for field, kind := range map[string]string{"ingestionId": "send", "sourceId": "source", "endCursor": "cursor"} {
		if name, ok := answer[field].(string); ok && name != "" {
			w.caller.Add(kind, name)
		}
	}
	switch c.Route.Method + c.Route.Path {
	case "GET/api/v1/ingest/:ingestionId/explain":
		items, _ := answer["items"].([]any)
		for _, item := range items[:min(len(items), 3)] {
			if node, ok := item.(map[string]any)["sourceId"].(string); ok {
				w.caller.Add("node", node)
			}
		}
	case "POST/api/v1/projects":
		if slug, ok := answer["slug"].(string); ok {
			w.caller.Add("project", slug)
		}
	case "POST/api/v1/projects/:slug/keys":
		if id, ok := answer["id"].(string); ok {
			w.caller.Add("key", id)
		}
	}
}

// The walk sees what is wrong.
func TestHostileWorker_WrongAnswers(t *testing.T) {
	const good = `{"code":"c","status":%d,"debugMessage":"m","data":{}}`
	own, next := &hostiletest.Caller{Marker: "zmown"}, &hostiletest.Caller{Marker: "zmnext"}
	far := &hostiletest.Caller{Marker: "zmfar", Organization: 1}
	w := &hostileWorker{hostileWalk: &hostileWalk{callers: []*hostiletest.Caller{own, next, far}}, caller: own}
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
			leaked := w.leaked(hostiletest.Call{Management: c.management}, res, []byte(c.body))
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
func (w *hostileWorker) abort(c hostiletest.Call) {
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	pause := time.NewTicker(time.Duration(1+w.draw.IntN(5)) * time.Millisecond)
	defer pause.Stop()
	body := &slowBody{text: c.Body, piece: 1 + len(c.Body)/8, pause: pause}
	switch w.draw.IntN(4) {
	case 0:
		body.cut = 1 + w.draw.IntN(6)
	case 1:
		timer := time.AfterFunc(time.Duration(w.draw.IntN(8000))*time.Microsecond, cancel)
		defer timer.Stop()
	}
	req := w.request(ctx, c, body)
	res, err := w.http.Do(req)
	w.calls.Add(1)
	if err != nil {
		return
	}
	defer func() { _ = res.Body.Close() }()
	if w.draw.One(2) {
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
	text := w.draw.Raw(w.addr)
	if _, err := io.WriteString(conn, text); err != nil {
		return // it was refused before its end
	}
	if w.draw.One(2) {
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
	if found := hostiletest.StrangeCanary(text, nil, string(answer)); found != "" {
		w.fail("an answer holds the text of an estimate, %s: %.500q to %.300q", found, answer, text)
	}
	for _, other := range w.callers {
		if other != w.caller && bytes.Contains(answer, []byte(other.Marker)) {
			w.fail("an answer holds what another caller stored: %.500q to %.300q", answer, text)
		}
	}
}
