package audience

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"

	"github.com/google/uuid"
)

// matching is how a condition is matched. The values are stored in compiled rules.
type matching byte

const (
	never      matching = iota // an unknown operator matches no identity
	hasOneOf                   // has the trait with one of the values
	hasOther                   // has the trait with another value
	hasTrait                   // has the trait
	lacksTrait                 // lacks the trait
)

func matchingOf(o Operator) matching {
	switch o {
	case Is, IsOneOf:
		return hasOneOf
	case IsNot, IsNotOneOf:
		return hasOther
	case Exists:
		return hasTrait
	case DoesNotExist:
		return lacksTrait
	default:
		return never
	}
}

// Compile encodes a rule for a Matcher: with hashes instead of its texts, which may be long, and the
// values of a condition sorted. It is stored so, since to hash the texts again takes sixty times as long as to read
// the hashes.
//
// The format is a byte, 1 for "any"; then for each condition its matching, the hash of its key, the
// number of values as a varint, and their hashes.
func Compile(project uuid.UUID, r Rule) []byte {
	compiled := []byte{0}
	if r.Match == MatchAny {
		compiled[0] = 1
	}
	for _, c := range r.Conditions {
		values := make([]TraitKey, len(c.Values))
		for n, v := range c.Values {
			values[n] = ValueHash(project, c.Trait, v)
		}
		slices.SortFunc(values, TraitKey.compare)
		values = slices.Compact(values)
		key := KeyHash(project, c.Trait)
		compiled = append(append(compiled, byte(matchingOf(c.Operator))), key[:]...)
		compiled = binary.AppendUvarint(compiled, uint64(len(values)))
		for _, v := range values {
			compiled = append(compiled, v[:]...)
		}
	}
	return compiled
}

// Matcher holds compiled rules of a project, and finds which of them identities match. The zero value has none. It is
// safe for concurrent use once all rules are added.
type Matcher struct {
	audiences []uuid.UUID
	rules     []compiledRule
	// keys numbers the keys that the rules compare.
	keys map[TraitKey]int32
	// bytes is the approximate size in memory.
	bytes int
}

type compiledRule struct {
	any        bool
	conditions []compiledCondition
}

type compiledCondition struct {
	matching matching
	key      int32 // number of the key
	values   []TraitKey
}

var errTruncated = errors.New("compiled rule is truncated")

// Add adds the compiled rule of an audience, and copies it. It fails on damaged bytes; then the matcher is of no use.
func (m *Matcher) Add(audience uuid.UUID, compiled []byte) error {
	if len(compiled) == 0 {
		return errTruncated
	}
	r, rest := compiledRule{any: compiled[0] == 1}, compiled[1:]
	for len(rest) > 0 {
		const head = 1 + len(TraitKey{})
		if len(rest) < head {
			return errTruncated
		}
		c, key := compiledCondition{matching: matching(rest[0])}, TraitKey(rest[1:])
		count, n := binary.Uvarint(rest[head:])
		if rest = rest[head:]; n <= 0 || count > uint64(len(rest)-n)/uint64(len(TraitKey{})) {
			return errTruncated
		}
		rest = rest[n:]
		c.values = make([]TraitKey, count)
		for i := range c.values {
			c.values[i] = TraitKey(rest)
			rest = rest[len(TraitKey{}):]
		}
		c.key = m.number(key)
		r.conditions = append(r.conditions, c)
		m.bytes += 48 + len(c.values)*len(TraitKey{})
	}
	m.audiences, m.rules = append(m.audiences, audience), append(m.rules, r)
	m.bytes += 64
	return nil
}

// number returns the number of a key.
func (m *Matcher) number(key TraitKey) int32 {
	n, known := m.keys[key]
	if known {
		return n
	}
	if m.keys == nil {
		m.keys = map[TraitKey]int32{}
	}
	n = int32(len(m.keys))
	m.keys[key] = n
	m.bytes += 2 * len(key)
	return n
}

// Audiences are those of the rules, in the order in which they were added.
func (m *Matcher) Audiences() []uuid.UUID { return m.audiences }

// Bytes returns about how much memory the rules take.
func (m *Matcher) Bytes() int { return m.bytes }

// Reached lists the audiences whose rules an identity matches, in the order of Audiences. A nil matcher reaches none.
func (m *Matcher) Reached(traits TraitKeys) (reached []uuid.UUID) {
	if m == nil || len(m.rules) == 0 {
		return nil
	}
	b := newBlock(m, 1)
	b.add(traits)
	b.match(func(n int, states []uint64) {
		if states[0] != 0 {
			reached = append(reached, m.audiences[n])
		}
	})
	return reached
}

// Judge reports whether an identity matches a rule, and each of its conditions.
func (r Rule) Judge(project uuid.UUID, traits TraitKeys) (matches bool, conditions []bool, err error) {
	var m Matcher
	whole, conditions := uuid.Max, make([]bool, len(r.Conditions))
	if err := m.Add(whole, Compile(project, r)); err != nil {
		return false, nil, err
	}
	for n, c := range r.Conditions {
		alone := Rule{Match: MatchAll, Conditions: []Condition{c}}
		if err := m.Add(uuid.UUID{14: byte(n >> 8), 15: byte(n)}, Compile(project, alone)); err != nil {
			return false, nil, err
		}
	}
	for _, id := range m.Reached(traits) {
		if id == whole {
			matches = true
		} else {
			conditions[int(id[14])<<8|int(id[15])] = true
		}
	}
	return matches, conditions, nil
}

// The limits of a block: identities, and their traits that the rules compare.
const (
	blockStates = 4096
	blockTraits = 1 << 18
)

// block is an inverted index of the traits of some identities, to match all rules of a set at once.
// Here a state is an identity with its traits, and a set of states is a bitmap. A condition costs
// one lookup for each of its values or of the identities' values, whichever are fewer, and one bit
// for each identity with that value.
type block struct {
	matcher *Matcher
	words   int
	states  int
	// present holds, for each key, the states that have it.
	present []uint64
	// first and count are by key: the newest value of the key (-1: none), and how many it has.
	first, count []int32
	values       []value
	byKey        map[TraitKey]int32
	// holders are linked lists of the states that have a value.
	holders []holder
	// scratch, acc and all are sets of states.
	scratch, acc, all []uint64
}

// value is a value that some states have for a key.
type value struct {
	TraitKey TraitKey
	next     int32 // the next value of the same key, -1: none
	holders  int32 // the newest holder, -1: none
}

type holder struct{ state, next int32 }

// newBlock makes an empty block for a number of states.
func newBlock(m *Matcher, states int) *block {
	words := (states + 63) / 64
	b := &block{
		matcher: m, words: words, present: make([]uint64, len(m.keys)*words),
		first: make([]int32, len(m.keys)), count: make([]int32, len(m.keys)),
		byKey: map[TraitKey]int32{}, scratch: make([]uint64, words), acc: make([]uint64, words), all: make([]uint64, words),
	}
	b.reset()
	return b
}

func (b *block) reset() {
	b.states, b.values, b.holders = 0, b.values[:0], b.holders[:0]
	clear(b.present)
	clear(b.count)
	clear(b.byKey)
	clear(b.all)
	for n := range b.first {
		b.first[n] = -1
	}
}

// full reports whether the block takes no further state.
func (b *block) full() bool { return b.states == b.words*64 || len(b.holders) >= blockTraits }

// add adds a state.
func (b *block) add(traits TraitKeys) {
	state := b.states
	b.states++
	b.all[state/64] |= 1 << (state % 64)
	for n := range traits.Len() {
		if k, compared := b.matcher.keys[traits.Key(n)]; compared {
			b.present[int(k)*b.words+state/64] |= 1 << (state % 64)
			b.hold(int(k), traits.Value(n), state)
		}
	}
}

func (b *block) hold(key int, m TraitKey, state int) {
	at, known := b.byKey[m]
	if !known {
		at = int32(len(b.values))
		b.values = append(b.values, value{TraitKey: m, next: b.first[key], holders: -1})
		b.first[key], b.byKey[m] = at, at
		b.count[key]++
	}
	b.holders = append(b.holders, holder{state: int32(state), next: b.values[at].holders})
	b.values[at].holders = int32(len(b.holders) - 1)
}

// match calls yield for each rule with the states that match it. The bitmap is valid until yield
// returns.
func (b *block) match(yield func(rule int, states []uint64)) {
	for n := range b.matcher.rules {
		b.rule(&b.matcher.rules[n])
		yield(n, b.acc)
	}
}

// rule computes the states that match a rule into acc. No state matches a rule without conditions.
func (b *block) rule(r *compiledRule) {
	clear(b.acc)
	if len(r.conditions) == 0 {
		return
	}
	if !r.any {
		copy(b.acc, b.all)
	}
	for n := range r.conditions {
		b.condition(&r.conditions[n])
		open := uint64(0) // states that further conditions can still change
		for w, fulfil := range b.scratch {
			if r.any {
				b.acc[w] |= fulfil
				open |= b.all[w] &^ b.acc[w]
			} else {
				b.acc[w] &= fulfil
				open |= b.acc[w]
			}
		}
		if open == 0 {
			return
		}
	}
}

// condition computes the states that match a condition into scratch.
func (b *block) condition(c *compiledCondition) {
	clear(b.scratch)
	present := b.present[int(c.key)*b.words : (int(c.key)+1)*b.words]
	switch c.matching {
	case never:
	case hasTrait:
		copy(b.scratch, present)
	case lacksTrait:
		for w := range b.scratch {
			b.scratch[w] = b.all[w] &^ present[w]
		}
	case hasOneOf, hasOther:
		b.addHolders(c)
		if c.matching == hasOther {
			for w := range b.scratch {
				b.scratch[w] = present[w] &^ b.scratch[w]
			}
		}
	}
}

// addHolders adds the states that have one of the values of a condition to scratch.
func (b *block) addHolders(c *compiledCondition) {
	if int(b.count[c.key]) <= len(c.values) {
		for at := b.first[c.key]; at >= 0; at = b.values[at].next {
			if c.holds(b.values[at].TraitKey) {
				b.addStates(at)
			}
		}
		return
	}
	for _, m := range c.values {
		if at, known := b.byKey[m]; known {
			b.addStates(at)
		}
	}
}

func (b *block) addStates(at int32) {
	for h := b.values[at].holders; h >= 0; h = b.holders[h].next {
		state := b.holders[h].state
		b.scratch[state/64] |= 1 << (state % 64)
	}
}

// holds reports whether a value is one of the condition's, which are sorted.
func (c *compiledCondition) holds(m TraitKey) bool {
	low, high := 0, len(c.values)
	for low < high {
		middle := (low + high) / 2
		switch order := c.values[middle].compare(m); {
		case order == 0:
			return true
		case order < 0:
			low = middle + 1
		default:
			high = middle
		}
	}
	return false
}

// Tally counts the identities that match each rule of a Matcher, one block after the other.
type Tally struct {
	block  *block
	plus   []uint64 // states that count +1; others count -1
	counts []int64  // by rule
}

// NewTally makes a tally for about so many identities.
func NewTally(m *Matcher, identities int) *Tally {
	b := newBlock(m, min(max(identities, 1), blockStates))
	return &Tally{block: b, plus: make([]uint64, b.words), counts: make([]int64, len(m.rules))}
}

// Add counts an identity: +1 if more is true, else -1.
func (t *Tally) Add(traits TraitKeys, more bool) {
	if t.block.full() {
		t.flush()
	}
	if state := t.block.states; more {
		t.plus[state/64] |= 1 << (state % 64)
	}
	t.block.add(traits)
}

// Counts returns the counts of all that was added, in the order of Matcher.Audiences.
func (t *Tally) Counts() []int64 {
	t.flush()
	return t.counts
}

// flush counts the states of the block and empties it.
func (t *Tally) flush() {
	t.block.match(func(n int, states []uint64) {
		for w, set := range states {
			t.counts[n] += int64(bits.OnesCount64(set&t.plus[w]) - bits.OnesCount64(set&^t.plus[w]))
		}
	})
	t.block.reset()
	clear(t.plus)
}
