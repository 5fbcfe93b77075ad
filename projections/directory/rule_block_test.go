package directory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/limit"
)

var blockProject = uuid.MustParse("00000000-0000-4000-8000-0000000000aa")

func setOf(t interface{ Fatal(...any) }, rules ...audience.Rule) *ruleSet {
	m := newSetBuilder()
	for n, r := range rules {
		if err := m.add(uuid.UUID{15: byte(n), 14: byte(n >> 8)}, compile(blockProject, r)); err != nil {
			t.Fatal(err)
		}
	}
	return m.build()
}

func drawRule(t *rapid.T) audience.Rule {
	values := rapid.SliceOfN(rapid.SampledFrom([]string{"1", "2", "3", "4", "5"}), 0, 4)
	r := audience.Rule{Match: rapid.SampledFrom([]audience.Match{audience.MatchAll, audience.MatchAny}).Draw(t, "match")}
	for range rapid.IntRange(0, 4).Draw(t, "conditions") {
		r.Conditions = append(r.Conditions, audience.Condition{
			Trait:    rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "trait"),
			Operator: rapid.SampledFrom(append(audience.Operators(), "like")).Draw(t, "operator"),
			Values:   values.Draw(t, "values"),
		})
	}
	return r
}

// A block matches like the rules themselves, and a tally counts the identities that enter minus
// those that leave.
func TestBlock_MatchesLikeRules(tt *testing.T) {
	rapid.Check(tt, func(t *rapid.T) {
		rules := rapid.SliceOfN(rapid.Custom(drawRule), 0, 6).Draw(t, "rules")
		set := setOf(t, rules...)
		states := rapid.SliceOfN(rapid.MapOfN(
			rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), rapid.SampledFrom(
				[]string{"1", "2", "3", "4", "5", "6"},
			), 0, 5), 1, 150).Draw(t, "states")
		size := rapid.SampledFrom([]int{1, 64, 100, blockStates}).Draw(t, "block")
		tallied, want := newTally(set, size), make([]int64, len(rules))
		for n, traits := range states {
			m := traitKeysOf(blockProject, traits)
			reached, more := set.reached(m), n%3 > 0
			tallied.add(m, more)
			for i, r := range rules {
				matches := r.Matches(traits)
				if got := slices.Contains(reached, set.rules[i].audience); got != matches {
					t.Fatalf("%v: rule %+v is matched: %t", traits, r, got)
				}
				if matches && more {
					want[i]++
				} else if matches {
					want[i]--
				}
			}
		}
		if tallied.flush(); !slices.Equal(tallied.counts, want) {
			t.Fatalf("counts %v, want %v", tallied.counts, want)
		}
	})
}

// hostileRules makes rules of the largest allowed size, with texts as long as traits may be.
func hostileRules(count int) []audience.Rule {
	rules := make([]audience.Rule, count)
	for n := range rules {
		rules[n].Match = audience.MatchAny
		for c := range limit.RuleConditions {
			values := make([]string, limit.RuleValues)
			for v := range values {
				values[v] = fmt.Sprintf("%0*d", limit.TraitValue, n*1_000_000+c*1000+v)
			}
			rules[n].Conditions = append(rules[n].Conditions,
				audience.Condition{Trait: fmt.Sprint("trait ", c), Operator: audience.IsOneOf, Values: values})
		}
	}
	return rules
}

// The size of a compiled rule does not depend on the length of its texts, nor the cost of a match
// on the number of values.
func TestRuleSet_BytesOfHostileRules(t *testing.T) {
	rules := hostileRules(30) // 60 MB of values
	compiled := 0
	for _, r := range rules {
		compiled += len(compile(blockProject, r))
	}
	set := setOf(t, rules...)
	if most := 30 * 1000 * 20; compiled > most || set.bytes > most {
		t.Errorf("compiled they have %d bytes, and %d to match", compiled, set.bytes)
	}
	traits := map[string]string{}
	for n := range 20 {
		traits[fmt.Sprint("trait ", n)] = strings.Repeat("x", limit.TraitValue)
	}
	m := traitKeysOf(blockProject, traits)
	if n := testing.AllocsPerRun(10, func() {
		if reached := set.reached(m); reached != nil {
			t.Errorf("they reach %v", reached)
		}
	}); n > 40 {
		t.Errorf("a match makes %v allocations", n)
	}
}

func TestBlock_IsBounded(t *testing.T) {
	set := setOf(t, hostileRules(1)...)
	one, twenty := map[string]string{"trait 1": "x"}, map[string]string{}
	for n := range 20 {
		twenty[fmt.Sprint("trait ", n)] = "x"
	}
	for name, c := range map[string]struct {
		traits map[string]string
		states int
	}{"by states": {one, blockStates}, "by traits": {twenty, (blockTraits + 19) / 20}} {
		b, m := newBlock(set, blockStates), traitKeysOf(blockProject, c.traits)
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
	if wide.add(traitKeysOf(blockProject, one)); !wide.full() {
		t.Error("not full at the limit of traits")
	}
}

func TestCompiledRules_BrokenBytes(t *testing.T) {
	whole := compile(blockProject, hostileRules(1)[0])
	for n := range len(whole) {
		if n == 1 || n > 3000 && n < len(whole)-50 {
			continue // a rule without conditions is cached too
		}
		err := newSetBuilder().add(uuid.Nil, whole[:n])
		conditions := (n - 1) % (1 + 16 + 1 + 50*16)
		if (err == nil) != (n > 0 && conditions == 0) {
			t.Fatalf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
}

func TestRuleCache_Bounds(t *testing.T) {
	c := newRuleCache()
	sized := func(bytes int) *ruleSet { return &ruleSet{bytes: bytes} }
	small := uuid.New()
	c.put(small, 1, sized(100))
	c.put(uuid.New(), 1, sized(maxCachedRulesOne+1))
	if len(c.projects) != 1 {
		t.Error("what is too big is kept")
	}
	var last uuid.UUID
	for range 10 {
		last = uuid.New()
		c.put(last, 7, sized(maxCachedRulesOne))
		if total := c.bytes; total > maxCachedRules {
			t.Fatalf("%d bytes are kept", total)
		}
	}
	if _, ok := c.get(small, 1); !ok {
		t.Error("the small set made room for the big ones")
	}
	if len(c.projects) != 1+maxCachedRules/maxCachedRulesOne {
		t.Errorf("%d sets are kept", len(c.projects))
	}
	if _, ok := c.get(small, 2); ok {
		t.Error("the rules of another position are returned")
	}
	c.put(small, 2, sized(50))
	if _, ok := c.get(small, 2); !ok {
		t.Error("a set is not replaced")
	}
	sum := 0
	for _, kept := range c.projects {
		sum += cost(kept.set)
	}
	if sum != c.bytes {
		t.Errorf("%d bytes are kept, %d counted", sum, c.bytes)
	}
}

// One caller at a time reads the rules of a project, and a few those of all: each set may have
// megabytes.
func TestRuleCache_BoundedReaders(t *testing.T) {
	c := newRuleCache()
	project := uuid.New()
	var leaves []func()
	for n := range maxReading {
		of := uuid.New()
		if n == 0 {
			of = project
		}
		release, err := c.acquire(t.Context(), of)
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, release)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, of := range map[string]uuid.UUID{"the same project": project, "one project more": uuid.New()} {
		if _, err := c.acquire(gone, of); !errors.Is(err, context.Canceled) {
			t.Errorf("%s enters: %v", name, err)
		}
	}
	entered := make(chan error)
	go func() {
		release, err := c.acquire(t.Context(), project)
		if err == nil {
			release()
		}
		entered <- err
	}()
	for _, release := range leaves {
		release()
	}
	if err := <-entered; err != nil {
		t.Error(err)
	}
}

func TestRuleCache_LoadReadsOnce(t *testing.T) {
	c, project, reads := newRuleCache(), uuid.New(), 0
	read := func() (*ruleSet, error) { reads++; return &ruleSet{}, nil }
	for range 3 {
		if _, err := c.load(project, 3, read); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.load(project, 4, read); err != nil || reads != 2 {
		t.Errorf("%d reads as of two positions, %v", reads, err)
	}
	failed := errors.New("failed")
	if _, err := c.load(project, 5, func() (*ruleSet, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	if _, kept := c.get(project, 5); kept {
		t.Error("what failed is kept")
	}
}

// BenchmarkHostileRules counts 60 rules of the largest size over 20,000 identities with a trait of
// each condition.
func BenchmarkHostileRules(b *testing.B) {
	set := setOf(b, hostileRules(60)...)
	traits := map[string]string{}
	for n := range 20 {
		traits[fmt.Sprint("trait ", n)] = fmt.Sprintf("%0*d", limit.TraitValue, n)
	}
	all := make([]traitKeys, 20_000)
	for n := range all {
		traits["trait 0"] = fmt.Sprint(n)
		all[n] = traitKeysOf(blockProject, traits)
	}
	b.Run("count", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			t := newTally(set, blockStates)
			for _, m := range all {
				t.add(m, true)
			}
			t.flush()
		}
	})
	b.Run("reach of one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			set.reached(all[7])
		}
	})
}
