package projectiontest_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

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
