package projectiontest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// seeds are bodies at the limits of what can be stored.
func seeds() []string {
	deep := strings.Repeat(`{"a":[`, 200) + "1" + strings.Repeat("]}", 200)
	return []string{
		`{"content":"I like tea. My favourite editor is Helix.","id":"a","label":"Ana, session 3","metadata":{"team":"platform","n":1.50},"timestamp":"2025-06-03","identity":"Ana"}`,
		`{"content":"nul \u0000 in the middle, \ud800 and \udfff alone","label":"\ud83d\ude00","metadata":{"\u0000":"\u0000","\ud800":null}}`,
		`{"content":"x","metadata":1e999999}` + "\x1e" + `{"content":"x","metadata":-0.0}` + "\x1e" + `{"content":"x","metadata":123456789012345678901234567890.10}`,
		`{"content":"x","metadata":` + deep + `}`,
		`{"content":"the first day","id":"d","timestamp":"0001-01-01T00:00:00Z"}` + "\x1e" + `{"content":"the last day","id":"d","timestamp":"9999-12-31T23:59:59.999999Z"}`,
		`{"content":"long names","id":"` + strings.Repeat("\U0001F300", 1000) + `","label":"` + strings.Repeat(
			"é",
			1000,
		) + `","identity":"` + strings.Repeat("字", 200) + `","idempotencyKey":"` + strings.Repeat("k", 200) + `"}`,
		`{"items":[{"content":"one","id":"1"},{"content":"two","metadata":null},{"content":"... !!!","label":" "}],"idempotencyKey":"k"}` + "\x1e" + `{"items":[{"content":"one","id":"1","label":"L"}]}` + "\x1e" + `{"ids":["1"]}`,
		`{"content":"e\u0301 ﬁ İ ſ \u202e abc \ufeff \ufffe \u2028","id":" "}`,
		`{"content":"\u0001\u001f\u007f","id":"c"}`,
		`{"content":"next Tuesday I moved to Berlin on 31 February 99999","timestamp":"2025-W01-1T24:00"}`,
		`{"content":"` + strings.Repeat("a.", 20000) + `"}`,
		`{"content":"` + strings.Repeat(`\u0000`, 60000) + `","metadata":"` + strings.Repeat(`\u0001`, 50000) + `"}`,
	}
}

// FuzzEdge sends bodies, separated by a byte that JSON does not have, to their routes. Accepted
// input is stored and reads back, every projector and the index apply it, and recall shows it as it
// was sent.
func FuzzEdge(f *testing.F) {
	for _, seed := range seeds() {
		f.Add([]byte(seed))
	}
	b := build(f)
	f.Fuzz(func(t *testing.T, bodies []byte) {
		h := b.harness(t)
		for _, body := range bytes.SplitN(bodies, []byte{0x1e}, 6) {
			switch {
			case bytes.Contains(body, []byte(`"items"`)):
				h.call("/ingest/batch", body)
			case bytes.Contains(body, []byte(`"ids"`)):
				h.call("/data-points/delete", body)
			default:
				h.call("/ingest", body)
			}
		}
		h.live()
	})
}

// FuzzFields is FuzzEdge for bodies that are sound JSON whatever their fields say: each is sent
// alone, then with another label, then in a batch, and is deleted.
func FuzzFields(f *testing.F) {
	f.Add("I like tea. My favourite editor is Helix.", "a", "Ana, session 3", "Ana", `{"team":"platform","n":1.50}`,
		"2025-06-03", "k", false)
	f.Add("nul \x00 and \xff and \u2028", "\U0001F300", "\u202e", "\u200b", `{"a":{"a":1e999999}}`, "0001-01-01T00:00:00Z",
		"", true)
	f.Add(strings.Repeat("x", 5000)+" "+strings.Repeat("\u0301", 3000), "x", "", "", `123456789012345678901234567890.10`,
		"9999-12-31T23:59:59.999999Z", "", false)
	f.Add("next Tuesday I moved to Berlin on 31 February 99999; Bo goes by bb", " ", " ", " ", `"\u0000"`,
		"2025-W01-1T24:00", " ", false)
	f.Add("\xd8\x00\x00a\xdc\x00", "\xdf\xff", "", "a", `[[[[[[[[[[]]]]]]]]]]`, "", "", true)
	f.Add("x", "E", "", "", "\x8a", "", "no key: \x00", false)
	f.Add(strings.Repeat("My name is Dee. I work at Acme. ", 400), "long", "L", "Bo",
		`{"due":"2025-06-03","rules":["a b c"]}`, "2025-06-03T10:15:30-09:30", "", false)
	b := build(f)
	f.Fuzz(func(t *testing.T, content, id, label, identity, metadata, timestamp, key string, escaped bool) {
		fields := map[string]json.RawMessage{}
		for name, text := range map[string]string{"content": content, "id": id, "label": label, "identity": identity, "timestamp": timestamp} {
			if text != "" {
				fields[name] = quoted(text, escaped)
			}
		}
		switch {
		case json.Valid([]byte(metadata)):
			fields["metadata"] = json.RawMessage(metadata)
		case metadata != "":
			fields["metadata"] = quoted(metadata, true)
		}
		encode := func(v any) []byte {
			body, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			return body
		}
		h := b.harness(t)
		first := h.call("/ingest", encode(fields))
		if first.Code >= http.StatusBadRequest {
			return
		}
		fields["label"] = quoted("another "+label, escaped)
		h.call("/ingest", encode(fields))
		fields["metadata"] = quoted(metadata, escaped)
		items := map[string]any{
			"items": []any{fields, map[string]string{"content": "beside " + strings.ToValidUTF8(label, "")}},
		}
		if key != "" {
			items["idempotencyKey"] = quoted(key, escaped)
		}
		left := 0
		if res := h.call("/ingest/batch", encode(items)); res.Code < http.StatusBadRequest {
			left = 1
		}
		h.live()
		var receipt struct{ SourceID string }
		if err := json.Unmarshal(first.Body.Bytes(), &receipt); err != nil {
			t.Fatal(err)
		}
		if res := h.call("/data-points/delete", encode(map[string][]string{"ids": {receipt.SourceID}})); res.Code != http.StatusAccepted {
			t.Fatalf("%q was accepted and cannot be deleted: %s", receipt.SourceID, res.Body)
		}
		h.apply()
		standing := h.standing()
		h.recall(content+" "+label, standing)
		if len(standing) != left {
			t.Fatalf("%d data points exist, want %d", len(standing), left)
		}
	})
}

// quoted returns a text as a JSON string. With escaped, every two bytes are one escape, so that
// unpaired surrogates occur.
func quoted(text string, escaped bool) json.RawMessage {
	if !escaped {
		quoted, err := json.Marshal(text)
		if err != nil {
			panic(err)
		}
		return quoted
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i+1 < len(text); i += 2 {
		fmt.Fprintf(&b, `\u%02x%02x`, text[i], text[i+1])
	}
	b.WriteByte('"')
	return json.RawMessage(b.String())
}

// FuzzDirectory sends ids, traits and rules to the routes of identities and audiences. Accepted
// input reads back as it was sent, every projector applies it, and recall works for the identity.
func FuzzDirectory(f *testing.F) {
	f.Add("ana", "team", "platform", "Team", "is", "platform", false)
	f.Add("a/b?c#d%e", "\x00", "nul \x00", "\x00", "exists", "", false)
	f.Add("\xd8\x3d\xde\x00", "\xdf\xff\x00a", "\x00e\x03\x01", "\xd8\x00", "is_one_of", "\x00e\x03\x01", true)
	f.Add(strings.Repeat("字", 200), strings.Repeat("é", 200), strings.Repeat("\U0001F300", 2000), strings.Repeat("n", 200),
		"is_not_one_of", "\u2028", false)
	f.Add(strings.Repeat("x", 201), strings.Repeat("k", 201), strings.Repeat("v", 2001), strings.Repeat("n", 201),
		"is_not", "e\u0301 ﬁ İ ſ", false)
	f.Add("bulk", "", "", "", "does_not_exist", "", false)
	f.Add("..", "'; drop table identities; --", `\\"{}[],`, "\u202e", "is", "\ufeff", false)
	f.Add(" ", " ", " ", " ", "unheard-of", " ", false)
	b := build(f)
	f.Fuzz(func(t *testing.T, id, key, value, name, operator, operand string, escaped bool) {
		h := b.harness(t)
		encode := func(v any) []byte {
			body, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			return body
		}
		// A JSON object with one name, which may be any text.
		object := func(name string, value json.RawMessage) json.RawMessage {
			return json.RawMessage("{" + string(quoted(name, escaped)) + ":" + string(value) + "}")
		}
		traits := object(key, quoted(value, escaped))
		path := "/identities/" + url.PathEscape(id)
		if put := h.do(http.MethodPut, path, encode(map[string]any{"traits": traits})); put.Code == http.StatusOK {
			var sent, got struct {
				Traits map[string]string `json:"traits"`
			}
			if err := json.Unmarshal(encode(map[string]any{"traits": traits}), &sent); err != nil {
				t.Fatal(err)
			}
			read := h.do(http.MethodGet, path, nil)
			if err := json.Unmarshal(read.Body.Bytes(), &got); err != nil || read.Code != http.StatusOK {
				t.Fatalf("the stored text reads %d %s, %v", read.Code, read.Body, err)
			}
			for k, v := range sent.Traits {
				if got.Traits[k] != v || len(got.Traits) != len(sent.Traits) {
					t.Fatalf("the traits %q read %q", sent.Traits, got.Traits)
				}
			}
		}
		h.do(http.MethodPatch, path, encode(map[string]any{"traits": object(key, json.RawMessage("null"))}))
		h.do(http.MethodPatch, path, encode(map[string]any{"traits": object("other"+key, quoted(value, escaped))}))
		h.do(http.MethodPost, "/identities/bulk", encode([]any{
			map[string]any{
				"identity": quoted(id, escaped),
				"traits":   traits,
			}, map[string]any{"identity": quoted(id+" b", escaped), "traits": traits},
		}))
		h.do(http.MethodPut, "/audiences/fixed", encode(
			map[string]any{"kind": "fixed", "name": quoted(name, escaped), "identities": []any{quoted(id, escaped), "bo"}},
		))
		condition := map[string]any{"trait": quoted(key, escaped), "operator": operator}
		if !strings.Contains(operator, "exist") {
			condition["values"] = []any{quoted(operand, escaped)}
		}
		h.do(http.MethodPut, "/audiences/rule",
			encode(map[string]any{"kind": "rule", "rule": map[string]any{"match": "any", "conditions": []any{condition}}}))
		h.do(http.MethodPost, "/audiences/rule/recompute", nil)
		h.apply()
		h.do(http.MethodGet, "/audiences", nil)
		h.do(http.MethodGet, "/audiences/"+url.PathEscape(name), nil)
		h.do(http.MethodGet, "/identities?"+url.Values{"traitKey": {key}, "traitValue": {value}}.Encode(), nil)
		h.do(http.MethodGet, "/identities?"+url.Values{"after": {value}, "limit": {operand}}.Encode(), nil)
		h.do(http.MethodPost, "/recall", encode(map[string]any{"query": "x", "identity": quoted(id, escaped)}))
		if gone := h.do(http.MethodDelete, path, nil); gone.Code == http.StatusNoContent {
			if read := h.do(http.MethodGet, path, nil); read.Code != http.StatusNotFound {
				t.Fatalf("a deleted identity reads %d %s", read.Code, read.Body)
			}
		}
		h.do(http.MethodDelete, "/audiences/fixed", nil)
		h.apply()
	})
}
