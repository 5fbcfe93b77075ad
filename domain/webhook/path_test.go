package webhook_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/runtest"
)

func TestParsePath(t *testing.T) {
	for _, path := range []string{
		"$", "$.a", "$._", "$.a1.B_2", "$[0]", "$[0][12]", "$['a']", "$['']", "$['a b.c[0]']", `$['it\'s']`, `$['\\']`,
		"$.a['b'][3].c", "$['é']", "$" + strings.Repeat("[0]", 166),
	} {
		p, err := webhook.ParsePath(path)
		if err != nil || p.String() != path {
			t.Errorf("%s: %q, %v", path, p, err)
		}
	}
	for path, want := range map[string]string{
		"":                               "begins with $",
		"a.b":                            "begins with $",
		" $":                             "begins with $",
		"$ ":                             "unexpected",
		"$a":                             "unexpected",
		"$.":                             "a name after a full stop",
		"$.1a":                           "a name after a full stop",
		"$.a-b":                          "unexpected",
		"$.é":                            "a name after a full stop",
		"$..a":                           `".." is not supported`,
		"$.*":                            "wildcards",
		"$[*]":                           "wildcards",
		"$[?(@.a)]":                      "filter expressions",
		"$[(@.length-1)]":                "filter expressions",
		"$[1:2]":                         "slices",
		"$[1,2]":                         "unions",
		"$['a','b']":                     "unions",
		"$[-1]":                          "negative",
		`$["a"]`:                         "single quotes",
		"$[a]":                           "brackets hold",
		"$[]":                            "brackets hold",
		"$[":                             "brackets hold",
		"$[1":                            "not closed",
		"$['a'":                          "not closed",
		"$['a":                           "the quote is not closed",
		`$['\n']`:                        "a backslash",
		`$['a\`:                          "a backslash",
		"$.a.b..c":                       "at character 6",
		"$" + strings.Repeat("[0]", 167): "502 characters",
	} {
		if p, err := webhook.ParsePath(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want %q", path, p, err, want)
		}
	}
}

func TestParseFilter(t *testing.T) {
	for expression, want := range map[string]webhook.Filter{
		"$.type is invoice.paid":            {Path: "$.type", Operator: webhook.Is, Values: []string{"invoice.paid"}},
		"  $.type  is a b  ":                {Path: "$.type", Operator: webhook.Is, Values: []string{"a b"}},
		"$['a is b'] is c":                  {Path: "$['a is b']", Operator: webhook.Is, Values: []string{"c"}},
		"$.type is-any-of a  b":             {Path: "$.type", Operator: webhook.IsAnyOf, Values: []string{"a", "b"}},
		`$.type is-any-of "a b" c "\u00e9"`: {Path: "$.type", Operator: webhook.IsAnyOf, Values: []string{"a b", "c", "é"}},
		"$.tags contains x":                 {Path: "$.tags", Operator: webhook.Contains, Values: []string{"x"}},
		"$.a.b exists":                      {Path: "$.a.b", Operator: webhook.Exists},
	} {
		f, err := webhook.ParseFilter(expression)
		if diff := cmp.Diff(want, f); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", expression, err, diff)
		}
	}
	for text, want := range map[string]webhook.Filter{
		"$.type is invoice.paid": {Path: "$.type", Operator: webhook.Is, Values: []string{"invoice.paid"}},
		"$.type is any of a, b":  {Path: "$.type", Operator: webhook.IsAnyOf, Values: []string{"a", "b"}},
		"$.tags contains x":      {Path: "$.tags", Operator: webhook.Contains, Values: []string{"x"}},
		"$.a.b exists":           {Path: "$.a.b", Operator: webhook.Exists},
	} {
		if want.String() != text {
			t.Errorf("%q, want %q", want, text)
		}
	}
	for _, expression := range []string{
		"", "$.a", "$.a ", "type is a", "$.a is", "$.a contains", "$.a is-any-of", "$.a exists b", "$.a equals b", "$.a Is b",
		"$.a is-any-of \"b", "$.a is-any-of \"b\"c", "$.a is-any-of" + strings.Repeat(" a", limit.WebhookFilterValues+1), "$.a-is b",
	} {
		if f, err := webhook.ParseFilter(expression); err == nil {
			t.Errorf("%q is %+v", expression, f)
		}
	}
}

func FuzzParsePath(f *testing.F) {
	for _, path := range []string{"$", "$.a[0]['b']", `$['it\'s']`, "$..a", "$[1:2]", "$[-1]"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		p, err := webhook.ParsePath(path)
		if err != nil {
			return
		}
		if p.String() != path || utf8.RuneCountInString(path) > limit.WebhookPath || path[0] != '$' {
			t.Errorf("%q is taken as %q", path, p)
		}
	})
}

func FuzzParseFilter(f *testing.F) {
	for _, expression := range []string{"$.a is b", "$.a is-any-of a \"b c\"", "$.a contains x", "$['x'] exists"} {
		f.Add(expression)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		got, err := webhook.ParseFilter(expression)
		if err != nil {
			return
		}
		s := webhook.Settings{Name: "a", ContentPath: "$", Filters: []webhook.Filter{got}}
		if _, err := s.Compile(); err != nil && utf8.ValidString(expression) && len(expression) < limit.WebhookFilterBytes {
			t.Errorf("%q is taken, but not in settings: %v", expression, err)
		}
	})
}

// FuzzMap holds what a path finds against the standard decoder, one level at a time.
func FuzzMap(f *testing.F) {
	for _, body := range []string{
		`{"a":1.50,"b":["x",{"c":null}]}`, `{"a":{"a":"b"},"a":"\ud800"}`, `["a"]`, `"a"`, "text", "{\"\xff\":1}", `{"\u0061":2}`,
	} {
		f.Add([]byte(body), "a", 1)
	}
	f.Fuzz(func(t *testing.T, body []byte, name string, index int) {
		if strings.ContainsAny(name, `'\`) || utf8.RuneCountInString(name) > 200 || !utf8.ValidString(name) || index < 0 {
			return
		}
		number, err := json.Marshal(index)
		runtest.Must(t, err)
		for _, path := range []string{"$", "$['" + name + "']", "$[" + string(number) + "]", "$['" + name + "'][" + string(number) + "]"} {
			m := compile(t, webhook.Settings{ContentPath: path, OccurredAtPath: path, IDPath: path})
			got := m.Map(body)
			if want := contentOf(body, path, name, index); got.Content != want && strings.TrimSpace(want) != "" {
				t.Errorf("%s of %q is %q, want %q", path, body, got.Content, want)
			}
			if len(got.Content) > 3*len(body) || !utf8.ValidString(got.Content) ||
				utf8.RuneCountInString(got.ID) > limit.WebhookID {
				t.Errorf("%s of %q is %+v", path, body, got)
			}
		}
	})
}

func contentOf(body []byte, path, name string, index int) string {
	valid := func(text []byte) string { return strings.ToValidUTF8(string(text), "\ufffd") }
	if !json.Valid(body) || path == "$" {
		return valid(body)
	}
	raw := json.RawMessage(body)
	if strings.Contains(path, "'") {
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil {
			return ""
		}
		raw = members[name]
	}
	if strings.HasSuffix(path, "]") && !strings.HasSuffix(path, "']") {
		var elements []json.RawMessage
		if json.Unmarshal(raw, &elements) != nil || index >= len(elements) {
			return ""
		}
		raw = elements[index]
	}
	var text string
	switch {
	case raw == nil || string(raw) == "null":
		return ""
	case json.Unmarshal(raw, &text) == nil:
		return text
	default:
		return valid(raw)
	}
}
