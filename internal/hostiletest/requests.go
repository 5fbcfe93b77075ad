package hostiletest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/estimate"
)

// Request is a call below /api/v1, without its key.
type Request struct {
	Method, Path string
	// Body is nil, bytes, a Stream, or what is encoded as JSON.
	Body any
}

// Stream opens a body that is too large to hold.
type Stream func() io.Reader

// Reader opens the body.
func (r Request) Reader() (io.Reader, error) {
	switch body := r.Body.(type) {
	case nil:
		return http.NoBody, nil
	case Stream:
		return body(), nil
	case []byte:
		return bytes.NewReader(body), nil
	default:
		text, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode body: %w", err)
		}
		return bytes.NewReader(text), nil
	}
}

// Point is a data point of a send, "" where a field is left out.
type Point struct {
	ID       string `json:"id,omitempty"`
	Content  string `json:"content"`
	Audience string `json:"audience,omitempty"`
	Identity string `json:"identity,omitempty"`
	Metadata any    `json:"metadata,omitempty"`
}

// Send sends a data point.
func Send(p Point) Request { return Request{http.MethodPost, "/ingest", p} }

// Batch sends several.
func Batch(items []Point) Request {
	return Request{http.MethodPost, "/ingest/batch", map[string]any{"items": items}}
}

// Numbered are the names from one number to another.
func Numbered(prefix string, from, to int) []string {
	names := make([]string, 0, to-from)
	for n := from; n < to; n++ {
		names = append(names, fmt.Sprintf("%s-%d", prefix, n))
	}
	return names
}

// Deletion deletes data points.
func Deletion(ids []string) Request {
	return Request{http.MethodPost, "/data-points/delete", map[string]any{"ids": ids}}
}

// Recall asks for many results; maxTokens 0 leaves their budget out.
func Recall(query, identity string, maxTokens int) Request {
	body := map[string]any{"query": query, "identity": identity, "limit": 200}
	if maxTokens > 0 {
		body["maxTokens"] = maxTokens
	}
	return Request{http.MethodPost, "/recall", body}
}

// Traits sets so many traits of an identity, with values of so many characters.
func Traits(identity string, count, length int) Request {
	body := map[string]any{"traits": traits(count, strings.Repeat("v", length))}
	return Request{http.MethodPut, "/identities/" + identity, body}
}

func traits(count int, value string) map[string]string {
	all := make(map[string]string, count)
	for n := range count {
		all[fmt.Sprintf("trait-%d", n)] = value
	}
	return all
}

// Identities writes the identities from one number to another, with so many traits each.
func Identities(from, to, count int) Request {
	var rows []any
	for n, name := range Numbered("person", from, to) {
		value := fmt.Sprint(strings.Repeat("v", 40), (from+n)%997)
		rows = append(rows, map[string]any{"identity": name, "traits": traits(count, value)})
	}
	return Request{http.MethodPost, "/identities/bulk", rows}
}

// Members puts a fixed audience.
func Members(slug string, identities ...string) Request {
	return Request{http.MethodPut, "/audiences/" + slug, map[string]any{"kind": "fixed", "identities": identities}}
}

// Rule puts an audience by a rule with so many conditions of the most values, each of about length characters.
func Rule(slug string, conditions, length int) Request {
	all := make([]any, conditions)
	for c := range all {
		values := make([]string, 50)
		for v := range values {
			values[v] = fmt.Sprint(strings.Repeat("v", length), slug, v)
		}
		all[c] = map[string]any{"trait": fmt.Sprintf("trait-%d", c), "operator": "is_one_of", "values": values}
	}
	return Request{http.MethodPut, "/audiences/" + slug, map[string]any{
		"kind": "rule", "rule": map[string]any{"match": "any", "conditions": all},
	}}
}

// Metadata is metadata of about size bytes that takes far more once it is decoded. The kinds differ by n.
func Metadata(n, size int) json.RawMessage {
	element := []string{"1,", "[],", "{},"}[n%3]
	return json.RawMessage(`{"a":[` + strings.Repeat(element, size/len(element)) + `0]}`)
}

func filled(head, piece, tail string, size int) Stream {
	return func() io.Reader {
		return io.MultiReader(strings.NewReader(head), strings.NewReader(strings.Repeat(piece, size/len(piece))),
			strings.NewReader(tail))
	}
}

// Bodies are calls whose bodies are deep, wide, or become large. Those that a route takes have at most 1 MiB, the
// others size bytes, and batches six times as many.
func Bodies(size int) []Request {
	const mib = 1 << 20
	post := func(path string, body Stream) Request { return Request{http.MethodPost, path, body} }
	put := func(path string, body Stream) Request { return Request{http.MethodPut, path, body} }
	deep := `{"content":"a","metadata":` + strings.Repeat("[", 9990)
	return []Request{
		post("/ingest", filled("", "[", "", size)),
		post("/ingest", filled(`{"content":"a","metadata":`, `{"a":`, "", size)),
		post("/ingest", filled(`{"content":"a","metadata":[`, `0,`, "0]}", min(size, mib-100))),
		post("/ingest", filled(deep, " ", strings.Repeat("]", 9990)+"}", min(size, mib/2))),
		post("/ingest/batch", filled(`{"items":[{}`, `,{}`, "]}", 6*size)),
		post("/ingest/batch", filled(`{"items":[{"content":"a"}`, `,{"content":"a"}`, "]}", 6*size)),
		post("/data-points/delete", filled(`{"ids":["a"`, `,"a"`, "]}", size)),
		put("/identities/wide", filled(`{"traits":{"a":"a"`, `,"a":"a"`, "}}", size)),
		post("/identities/bulk", filled(`[{}`, `,{}`, "]", size)),
		put("/audiences/wide", filled(`{"kind":"fixed","identities":["a"`, `,"b"`, "]}", size)),
		put("/audiences/wide", filled(`{"kind":"rule","rule":{"match":"all","conditions":[{}`, `,{}`, "]}}", size)),
		post("/recall", filled(`{"identity":"a","query":"`, "ok, it ", `"}`, min(size, mib-100))),
	}
}

// Events are events of about size bytes for a webhook: with escaped names that lead nowhere, deep, and wide.
func Events(size int) [][]byte {
	field := `"` + strings.Repeat(`\u0061`, 64) + `":0,`
	return [][]byte{
		[]byte("{" + strings.Repeat(field, max(size/len(field)-1, 0)) + `"a":0}`),
		[]byte(strings.Repeat(`{"a":`, size/6)),
		[]byte("[" + strings.Repeat("[],", size/3-1) + "0]"),
	}
}

// Reads are reads of the trace of a node that caused or has much.
func Reads(node string) (all []Request) {
	for _, path := range []string{
		"/trace/timeline/" + node + "?limit=400", "/trace/lineage/" + node + "?limit=400", "/trace/nodes/" + node,
		"/trace/roots?query=company&first=50",
	} {
		all = append(all, Request{http.MethodGet, path, nil})
	}
	return all
}

// Estimate estimates files; points names what of them is answered.
func Estimate(files []estimate.File, points string) Request {
	entries := make([]any, len(files))
	for n, f := range files {
		file := map[string]any{"path": f.Path, "content": f.Content}
		if f.Kind != "" {
			file["kind"] = f.Kind
		}
		entries[n] = file
	}
	return Request{http.MethodPost, "/ingest/estimate", map[string]any{"files": entries, "points": points}}
}

// Unended are the beginnings of requests that never end: of a head, of the longest body, of a short one, and of
// nothing. head has no empty line at its end.
func Unended(head string) []string {
	return []string{
		head + "X-Slow: ", head + "Content-Length: 102760448\r\n\r\n", head + "Content-Length: 262144\r\n\r\n", "",
	}
}

// Head begins a request to a host.
func Head(method, target, host, key string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n",
		method, target, host, key)
}

// UnknownKey is a key that nothing has.
func UnknownKey(management bool) string {
	kind := "svc_sk_"
	if management {
		kind = "svc_mk_"
	}
	return kind + strings.ReplaceAll(uuid.NewString()+uuid.NewString(), "-", "")[:40]
}
