package webhook_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/webhook"
	_ "github.com/annals-project/annals/internal/seedtest"
)

// A filter that is edited as an expression stays the same filter.
func TestFilter_Expression(t *testing.T) {
	value := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", " ", `"`, "a b", "a\nb", " a", "a\t", "is", "\u00a0"}))
	rapid.Check(t, func(t *rapid.T) {
		f := webhook.Filter{
			Path:     rapid.SampledFrom([]string{"$", "$.a", "$['a b'][0]"}).Draw(t, "path"),
			Operator: rapid.SampledFrom([]webhook.Operator{webhook.Is, webhook.IsAnyOf, webhook.Contains, webhook.Exists}).Draw(t, "operator"),
		}
		switch f.Operator {
		case webhook.Exists:
		case webhook.Contains:
			f.Values = []string{rapid.StringMatching(`[a-z"]([a-z" ]*[a-z"])?`).Draw(t, "value")}
		case webhook.Is:
			f.Values = []string{value.Draw(t, "value")}
		default:
			f.Values = rapid.SliceOfN(value, 1, 5).Draw(t, "values")
		}
		got, err := webhook.ParseFilter(f.Expression())
		if err != nil {
			t.Fatalf("%q: %v", f.Expression(), err)
		}
		if f.Operator == webhook.Is && got.Operator == webhook.IsAnyOf {
			f.Operator = webhook.IsAnyOf
		}
		if diff := cmp.Diff(f, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", f.Expression(), diff)
		}
	})
}

// Every filter has its verdict, also after the one that drops the event.
func TestMatches(t *testing.T) {
	m := compile(t, webhook.Settings{Filters: []webhook.Filter{
		filter(t, "$.a is x"), filter(t, "$.b exists"), filter(t, "$.c contains y"),
	}})
	for body, want := range map[string][]bool{
		`{"a":"x","b":1,"c":["y"]}`: {true, true, true}, `{"a":"z","b":1}`: {false, true, false}, `a`: {false, false, false},
	} {
		if diff := cmp.Diff(want, m.Matches([]byte(body))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
}
