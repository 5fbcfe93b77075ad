package audience

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawTraits(t *rapid.T) map[string]string {
	return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}),
		rapid.SampledFrom([]string{"1", "2", "3", "4", "5"}), 0, 4).Draw(t, "traits")
}

func TestRule_JudgesLikeTheMatcher(tt *testing.T) {
	rapid.Check(tt, func(t *rapid.T) {
		rule, traits := drawRule(t), drawTraits(t)
		matches, conditions, err := rule.Judge(aProject, TraitKeysOf(aProject, traits))
		if err != nil || len(conditions) != len(rule.Conditions) {
			t.Fatal(conditions, err)
		}
		if matches != holds(rule, traits) {
			t.Fatalf("%v matches %v: %v", rule, traits, matches)
		}
		for n, c := range rule.Conditions {
			if conditions[n] != holds(Rule{Match: MatchAll, Conditions: []Condition{c}}, traits) {
				t.Fatalf("condition %v of %v: %v", c, traits, conditions[n])
			}
		}
	})
}

// A selector selects what matches, also if its identities fill several blocks.
func TestSelector_SelectsLikeTheMatcher(tt *testing.T) {
	rapid.Check(tt, func(t *rapid.T) {
		rule, traits := drawRule(t), make([]map[string]string, 5)
		for n := range traits {
			traits[n] = drawTraits(t)
		}
		s := NewSelector(matcherOf(t, rule))
		var got, want []int
		for n, first := 0, 0; n < 2*blockStates; n++ {
			of := traits[n%len(traits)*(n%7)%len(traits)]
			if holds(rule, of) {
				want = append(want, n)
			}
			if s.Add(TraitKeysOf(aProject, of)) || n == 2*blockStates-1 {
				for _, place := range s.Take() {
					got = append(got, first+place)
				}
				first = n + 1
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("selects %d, want %d", len(got), len(want))
		}
	})
}
