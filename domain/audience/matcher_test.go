package audience

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/runtest"
	_ "github.com/annals-project/annals/internal/seedtest"
)

var aProject = uuid.MustParse("00000000-0000-4000-8000-0000000000aa")

func matcherOf(t runtest.T, rules ...Rule) *Matcher {
	var m Matcher
	for n, r := range rules {
		runtest.Must(t, m.Add(uuid.UUID{15: byte(n), 14: byte(n >> 8)}, Compile(aProject, r)))
	}
	return &m
}

// holds reports whether traits match a rule, by its words.
func holds(r Rule, traits map[string]string) bool {
	count := 0
	for _, c := range r.Conditions {
		value, exists := traits[c.Trait]
		if map[Operator]bool{
			Exists: exists, DoesNotExist: !exists,
			Is: exists && slices.Contains(c.Values, value), IsOneOf: exists && slices.Contains(c.Values, value),
			IsNot: exists && !slices.Contains(c.Values, value), IsNotOneOf: exists && !slices.Contains(c.Values, value),
		}[c.Operator] {
			count++
		}
	}
	return count > 0 && (r.Match == MatchAny || count == len(r.Conditions))
}

func drawRule(t *rapid.T) Rule {
	values := rapid.SliceOfN(rapid.SampledFrom([]string{"1", "2", "3", "4", "5"}), 0, 4)
	r := Rule{Match: rapid.SampledFrom([]Match{MatchAll, MatchAny}).Draw(t, "match")}
	for range rapid.IntRange(0, 4).Draw(t, "conditions") {
		r.Conditions = append(r.Conditions, Condition{
			Trait:    rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "trait"),
			Operator: rapid.SampledFrom(append(Operators(), "like")).Draw(t, "operator"),
			Values:   values.Draw(t, "values"),
		})
	}
	return r
}

// A matcher matches like the rules themselves, and a tally counts the identities that enter minus
// those that leave.
func TestMatcher_MatchesLikeRules(tt *testing.T) {
	rapid.Check(tt, func(t *rapid.T) {
		rules := rapid.SliceOfN(rapid.Custom(drawRule), 0, 6).Draw(t, "rules")
		set := matcherOf(t, rules...)
		states := rapid.SliceOfN(rapid.MapOfN(
			rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), rapid.SampledFrom(
				[]string{"1", "2", "3", "4", "5", "6"},
			), 0, 5), 1, 150).Draw(t, "states")
		size := rapid.SampledFrom([]int{1, 64, 100, blockStates}).Draw(t, "block")
		tallied, want := NewTally(set, size), make([]int64, len(rules))
		for n, traits := range states {
			m := TraitKeysOf(aProject, traits)
			reached, more := set.Reached(m), n%3 > 0
			tallied.Add(m, more)
			for i, r := range rules {
				matches := holds(r, traits)
				if got := slices.Contains(reached, set.audiences[i]); got != matches {
					t.Fatalf("%v: rule %+v is matched: %t", traits, r, got)
				}
				if matches && more {
					want[i]++
				} else if matches {
					want[i]--
				}
			}
		}
		if got := tallied.Counts(); !slices.Equal(got, want) {
			t.Fatalf("counts %v, want %v", got, want)
		}
	})
}

// hostileRules makes rules of the largest allowed size, with texts as long as traits may be.
func hostileRules(count int) []Rule {
	rules := make([]Rule, count)
	for n := range rules {
		rules[n].Match = MatchAny
		for c := range limit.RuleConditions {
			values := make([]string, limit.RuleValues)
			for v := range values {
				values[v] = fmt.Sprintf("%0*d", limit.TraitValue, n*1_000_000+c*1000+v)
			}
			rules[n].Conditions = append(rules[n].Conditions,
				Condition{Trait: fmt.Sprint("trait ", c), Operator: IsOneOf, Values: values})
		}
	}
	return rules
}

// The size of a compiled rule does not depend on the length of its texts, nor the cost of a match
// on the number of values.
func TestMatcher_BytesOfHostileRules(t *testing.T) {
	rules := hostileRules(30) // 60 MB of values
	compiled := 0
	for _, r := range rules {
		compiled += len(Compile(aProject, r))
	}
	set := matcherOf(t, rules...)
	if most := 30 * 1000 * 20; compiled > most || set.bytes > most {
		t.Errorf("compiled they have %d bytes, and %d to match", compiled, set.bytes)
	}
	traits := map[string]string{}
	for n := range 20 {
		traits[fmt.Sprint("trait ", n)] = strings.Repeat("x", limit.TraitValue)
	}
	m := TraitKeysOf(aProject, traits)
	if n := testing.AllocsPerRun(10, func() {
		if reached := set.Reached(m); reached != nil {
			t.Errorf("they reach %v", reached)
		}
	}); n > 40 {
		t.Errorf("a match makes %v allocations", n)
	}
}

func TestBlock_IsBounded(t *testing.T) {
	set := matcherOf(t, hostileRules(1)...)
	one, twenty := map[string]string{"trait 1": "x"}, map[string]string{}
	for n := range 20 {
		twenty[fmt.Sprint("trait ", n)] = "x"
	}
	for name, c := range map[string]struct {
		traits map[string]string
		states int
	}{"by states": {one, blockStates}, "by traits": {twenty, (blockTraits + 19) / 20}} {
		b, m := newBlock(set, blockStates), TraitKeysOf(aProject, c.traits)
		for !b.full() {
			b.add(m)
		}
		if want := min(c.states, blockStates); b.states != want {
			t.Errorf("%s: full after %d states, want %d", name, b.states, want)
		}
	}
	wide := newBlock(set, blockStates)
	wide.holders = make([]holder, blockTraits-1)
	if wide.full() {
		t.Error("full before the limit of traits")
	}
	if wide.add(TraitKeysOf(aProject, one)); !wide.full() {
		t.Error("not full at the limit of traits")
	}
}

func TestMatcher_BrokenBytes(t *testing.T) {
	whole := Compile(aProject, hostileRules(1)[0])
	for n := range len(whole) {
		if n == 1 || n > 3000 && n < len(whole)-50 {
			continue // a rule without conditions is cached too
		}
		err := new(Matcher).Add(uuid.Nil, whole[:n])
		conditions := (n - 1) % (1 + 16 + 1 + 50*16)
		if (err == nil) != (n > 0 && conditions == 0) {
			t.Fatalf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
}

// BenchmarkHostileRules counts 60 rules of the largest size over 20,000 identities with a trait of
// each condition.
func BenchmarkHostileRules(b *testing.B) {
	set := matcherOf(b, hostileRules(60)...)
	traits := map[string]string{}
	for n := range 20 {
		traits[fmt.Sprint("trait ", n)] = fmt.Sprintf("%0*d", limit.TraitValue, n)
	}
	all := make([]TraitKeys, 20_000)
	for n := range all {
		traits["trait 0"] = fmt.Sprint(n)
		all[n] = TraitKeysOf(aProject, traits)
	}
	b.Run("count", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			t := NewTally(set, blockStates)
			for _, m := range all {
				t.Add(m, true)
			}
			t.Counts()
		}
	})
	b.Run("reach of one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			set.Reached(all[7])
		}
	})
}

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
