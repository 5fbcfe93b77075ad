package webhook_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/runtest"
	_ "github.com/annals-project/annals/internal/seedtest"
)

// leadsTo follows a path of names and indices with the standard decoder, one level at a time. It returns nil for
// nothing and for null.
func leadsTo(body []byte, path []any) json.RawMessage {
	raw := json.RawMessage(body)
	for _, step := range path {
		switch step := step.(type) {
		case string:
			var members map[string]json.RawMessage
			if json.Unmarshal(raw, &members) != nil {
				return nil
			}
			raw = members[step]
		case int:
			var elements []json.RawMessage
			if json.Unmarshal(raw, &elements) != nil || step >= len(elements) {
				return nil
			}
			raw = elements[step]
		}
	}
	if raw = bytes.TrimSpace(raw); string(raw) == "null" {
		return nil
	}
	return raw
}

// isText decodes a string.
func isText(raw json.RawMessage) (text string, is bool) {
	return text, len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &text) == nil
}

func equals(raw json.RawMessage, text string) bool {
	if decoded, is := isText(raw); is {
		return decoded == text
	}
	return len(raw) > 0 && raw[0] != '{' && raw[0] != '[' && string(raw) != "null" && string(raw) == text
}

// passes is what a filter on a path other than $ should answer.
func passes(body []byte, path []any, f webhook.Filter) bool {
	raw := leadsTo(body, path)
	switch {
	case raw == nil:
		return false
	case f.Operator == webhook.Exists:
		return true
	case f.Operator != webhook.Contains:
		return slices.ContainsFunc(f.Values, func(v string) bool { return equals(raw, v) })
	}
	if text, is := isText(raw); is {
		return strings.Contains(text, f.Values[0])
	}
	var elements []json.RawMessage
	return json.Unmarshal(raw, &elements) == nil &&
		slices.ContainsFunc(elements, func(e json.RawMessage) bool { return equals(e, f.Values[0]) })
}

func pathText(path []any) string {
	text := "$"
	for _, step := range path {
		switch step := step.(type) {
		case string:
			text += "['" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(step) + "']"
		case int:
			text += "[" + strconv.Itoa(step) + "]"
		}
	}
	return text
}

// words are the names and texts of generated bodies: few, so that names repeat and filters match.
var words = []string{"a", "b", "", "é", "\U0001f4a1", "\ufffd", "a'\\", "\n\"", "1", "true", "aa", strings.Repeat("long", 30)}

// quoted writes a text as a JSON string, some characters as escapes.
func quoted(t *rapid.T, text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\ufffd' && rapid.Bool().Draw(t, "half a pair"):
			b.WriteString(`\ud83d`)
		case r == '\n':
			b.WriteString(`\n`)
		case r > 0xffff && rapid.Bool().Draw(t, "escaped"):
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04X`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		case r <= 0xffff && (r == '"' || r == '\\' || rapid.Bool().Draw(t, "escaped")):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}

func drawJSON(t *rapid.T, depth int) string {
	kinds := 7
	if depth == 0 {
		kinds = 5
	}
	space := rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(t, "space")
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return "null" + space
	case 1:
		return rapid.SampledFrom([]string{"true", "false"}).Draw(t, "boolean")
	case 2:
		return rapid.SampledFrom([]string{"1", "1.50", "-2e3"}).Draw(t, "number")
	case 3, 4:
		return quoted(t, rapid.SampledFrom(words).Draw(t, "text")) + space
	}
	var parts []string
	isObject := rapid.Bool().Draw(t, "object")
	for range rapid.IntRange(0, 4).Draw(t, "size") {
		part := drawJSON(t, depth-1)
		if isObject {
			part = quoted(t, rapid.SampledFrom(words).Draw(t, "name")) + space + ":" + part
		}
		parts = append(parts, part)
	}
	if isObject {
		return "{" + space + strings.Join(parts, ",") + "}"
	}
	return "[" + space + strings.Join(parts, space+",") + "]"
}

func drawPath(t *rapid.T) []any {
	steps := rapid.SliceOfN(rapid.OneOf(
		rapid.SampledFrom(words).AsAny(), rapid.IntRange(0, 3).AsAny(),
	), 1, 4)
	return steps.Draw(t, "path")
}

// TestMap_IsThatOfTheStandardDecoder compares all paths and filters of settings with what the standard decoder finds.
func TestMap_IsThatOfTheStandardDecoder(t *testing.T) {
	matched := 0
	rapid.Check(t, func(t *rapid.T) {
		body := []byte(drawJSON(t, 4))
		content := drawPath(t)
		s := webhook.Settings{ContentPath: pathText(content)}
		dropped, checked := "", webhook.Filter{}
		for range rapid.IntRange(0, limit.WebhookFilters).Draw(t, "filters") {
			path := drawPath(t)
			f := webhook.Filter{
				Path:     pathText(path),
				Operator: rapid.SampledFrom([]webhook.Operator{webhook.Is, webhook.IsAnyOf, webhook.Contains, webhook.Exists}).Draw(t, "operator"),
			}
			switch f.Operator {
			case webhook.Exists:
			case webhook.IsAnyOf:
				f.Values = rapid.SliceOfN(rapid.SampledFrom(words), 1, 3).Draw(t, "values")
			default:
				f.Values = []string{rapid.SampledFrom(words).Draw(t, "value")}
			}
			is := passes(body, path, f)
			if is {
				matched++
			} else if dropped != "" {
				continue // one that does not match is enough: the others shall decide
			}
			s.Filters = append(s.Filters, f)
			if !is {
				dropped, checked = f.String(), f
			}
		}
		got := compile(t, s).Map(body)
		raw := leadsTo(body, content)
		text, is := isText(raw)
		if !is {
			text = string(raw)
		}
		if dropped == "" && strings.TrimSpace(text) == "" {
			dropped = webhook.NoContent
		}
		if dropped != "" {
			text = ""
		}
		if got.DroppedBy != dropped || got.Content != text {
			t.Fatalf("%s: %q, %q, want %q (%+v), %q", body, got.DroppedBy, got.Content, dropped, checked, text)
		}
	})
	if matched == 0 {
		t.Error("no filter ever matched")
	}
}

// FuzzMap_Filters compares one filter with the standard decoder.
func FuzzMap_Filters(f *testing.F) {
	for _, body := range []string{
		`{"a":["\u0061",1.50,null,{"a":1}],"a":["b"]}`, `{"\u00e9":"\ud83d\udca1"}`, `[["a"],"\ud83d\ud83d"]`, `{"a":{"a":"\ud83d\udca1x"}}`,
		strings.Repeat(`{"a":`, 10_001), strings.Repeat("[", 500) + strings.Repeat("]", 500),
	} {
		f.Add([]byte(body), "a", "\U0001f4a1", uint8(0), uint8(2))
	}
	f.Fuzz(func(t *testing.T, body []byte, name, value string, index, operator uint8) {
		if !utf8.Valid(body) || !utf8.ValidString(name) || utf8.RuneCountInString(name) > 100 || !utf8.ValidString(value) ||
			len(value) > limit.WebhookFilterBytes || !json.Valid(body) {
			return
		}
		operators := []webhook.Operator{webhook.Is, webhook.Contains, webhook.Exists}
		for _, path := range [][]any{{name}, {int(index)}, {name, int(index)}, {int(index), name}} {
			filter := webhook.Filter{Path: pathText(path), Operator: operators[int(operator)%len(operators)]}
			if filter.Operator != webhook.Exists {
				filter.Values = []string{value}
			}
			got := compile(t, webhook.Settings{ContentPath: "$", Filters: []webhook.Filter{filter}}).Map(body)
			if want := passes(body, path, filter); (got.DroppedBy != filter.String()) != want {
				t.Errorf("%s of %q: dropped by %q, want a match: %v", filter, body, got.DroppedBy, want)
			}
		}
	})
}

// costly is a body in which every name or element could be a wanted one, with settings of as many filters as there may
// be. All of them match, so that none ends the work.
type costly struct {
	body     []byte
	settings webhook.Settings
}

// hostile are bodies of about a size.
func hostile(size int) map[string]costly {
	const escaped = `"\u0061\u0061\u0061\u0061\u0061\u0061\u0061\u0062"`
	var names, elements strings.Builder
	byName, byElement := webhook.Settings{ContentPath: "$.aaaaaa00"}, webhook.Settings{ContentPath: "$.list"}
	for i := range limit.WebhookFilters {
		wanted := fmt.Sprintf("aaaaaa%02d", i)
		fmt.Fprintf(&names, `%q:1,`, wanted)
		fmt.Fprintf(&elements, `%q,`, wanted)
		byName.Filters = append(byName.Filters, webhook.Filter{Path: "$." + wanted, Operator: webhook.Exists})
		byElement.Filters = append(byElement.Filters,
			webhook.Filter{Path: "$.list", Operator: webhook.Contains, Values: []string{wanted}})
	}
	object := func(part string) costly {
		return costly{[]byte("{" + strings.Repeat(part+",", size/len(part)) + names.String() + `"x":1}`), byName}
	}
	list := func(part string) costly {
		return costly{[]byte(`{"list":[` + strings.Repeat(part+",", size/len(part)) + elements.String() + "1]}"), byElement}
	}
	return map[string]costly{
		"escaped names":    object(escaped + ":0"),
		"equal names":      object(`"aaaaaa00":{"b":0}`),
		"escaped elements": list(escaped),
		"elements":         list(`"aaaaaaab"`),
		"numbers":          list("1"),
		"one long text": {[]byte(`{"list":"` + strings.Repeat(`\u0061`, size/6) + `"}`), webhook.Settings{
			ContentPath: "$.list", Filters: slices.Repeat([]webhook.Filter{{Path: "$.list", Operator: webhook.Contains, Values: []string{"a"}}}, limit.WebhookFilters),
		}},
	}
}

// What an event costs does not grow with the number of its names and elements.
func TestMap_AllocationsDoNotGrow(t *testing.T) {
	allocations := func(c costly) float64 {
		m := compile(t, c.settings)
		if got := m.Map(c.body); got.DroppedBy != "" {
			t.Fatalf("dropped by %q", got.DroppedBy)
		}
		return testing.AllocsPerRun(5, func() { m.Map(c.body) })
	}
	small := hostile(1 << 10)
	for name, large := range hostile(256 << 10) {
		if few, many := allocations(small[name]), allocations(large); many > few+2 {
			t.Errorf("%s: %.0f allocations for %d bytes, %.0f for %d", name, many, len(large.body), few, len(small[name].body))
		}
	}
}

// A body that nests deeper than the decoder reads is not JSON, and no path recurses into it.
func TestMap_Depth(t *testing.T) {
	deepest := "$" + strings.Repeat("[0]", 166)
	m := compile(t, webhook.Settings{
		ContentPath: deepest,
		Filters:     []webhook.Filter{{Path: deepest, Operator: webhook.Exists}},
	})
	nested := func(depth int) []byte { return []byte(strings.Repeat("[", depth) + strings.Repeat("]", depth)) }
	if got := m.Map(nested(9_999)); got.DroppedBy != "" || len(got.Content) != 2*(9_999-166) {
		t.Errorf("dropped by %q, %d bytes", got.DroppedBy, len(got.Content))
	}
	if got := m.Map(nested(500_000)); got.DroppedBy == "" {
		t.Error("a body of 500,000 levels is JSON")
	}
}

func BenchmarkMap_Hostile(b *testing.B) {
	for name, c := range hostile(1 << 20) {
		b.Run(name, func(b *testing.B) {
			m := compile(b, c.settings)
			b.ReportAllocs()
			for b.Loop() {
				m.Map(c.body)
			}
		})
	}
}

// eventCase is an event with what it must become.
type eventCase struct {
	Case        string
	Settings    struct{ Content, ID, At string }
	ContentType string
	Hex         string
	Body        json.RawMessage
	Headers     map[string]string
	Want        struct {
		ID, Content, At string
		Dropped         bool
	}
}

// The open cases of events become what they must. One that is packed is refused before its body is read.
func TestCases_Webhooks(t *testing.T) {
	folder := os.Getenv("ANNALS_TEST_CASES")
	if folder == "" {
		t.Skip("ANNALS_TEST_CASES names no folder of cases")
	}
	text, err := os.ReadFile(filepath.Join(folder, "webhooks4.jsonl"))
	runtest.Must(t, err)
	for line := range bytes.Lines(text) {
		var c eventCase
		runtest.Must(t, json.Unmarshal(line, &c))
		if c.Headers["Content-Encoding"] != "" || c.Case == "H04" { // which of two late events counts is the store's
			continue
		}
		body := []byte(c.Body)
		if c.Hex != "" {
			if body, err = hex.DecodeString(c.Hex); err != nil {
				t.Fatal(err)
			}
		}
		m := compile(t, webhook.Settings{
			ContentPath: c.Settings.Content, IDPath: c.Settings.ID, OccurredAtPath: c.Settings.At,
		})
		got := m.Map(webhook.Plain(c.ContentType, body))
		at := ""
		if !got.OccurredAt.IsZero() {
			at = got.OccurredAt.Format(time.RFC3339Nano)
		}
		if c.Want.Dropped != (got.DroppedBy != "") || c.Want.ID != got.ID && c.Want.ID != "" ||
			c.Want.Content != "" && c.Want.Content != got.Content || c.Want.At != "" && c.Want.At != at {
			t.Errorf("%s: %+v at %s, want %+v", c.Case, got, at, c.Want)
		}
	}
}
