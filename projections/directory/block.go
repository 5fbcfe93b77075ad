package directory

import "math/bits"

// The bounds of a block of states, in states and in traits of theirs that the rules compare.
const (
	blockStates = 4096
	blockTraits = 1 << 18
)

// block is the marks of some identities, grouped by value, to match all rules of a set at once: a condition costs a look-up for each of
// its values or for each value that the identities have, whichever are fewer, and one bit for each identity that has it.
type block struct {
	set    *ruleSet
	words  int
	states int
	// present has for each key the states that have it.
	present []uint64
	// values are by key: first is the newest value of each key, -1 for none, and count how many there are.
	first, count []int32
	values       []value
	byMark       map[mark]int32
	// holders are the states that have a value, as lists.
	holders []holder
	// scratch, acc and all are sets of states.
	scratch, acc, all []uint64
}

// value is one value that some states have of a key.
type value struct {
	mark    mark
	next    int32 // of the same key, -1 for none
	holders int32 // the newest, -1 for none
}

type holder struct{ state, next int32 }

// newBlock makes an empty block for so many states.
func newBlock(set *ruleSet, states int) *block {
	words := (states + 63) / 64
	b := &block{
		set: set, words: words, present: make([]uint64, len(set.keys)*words), first: make([]int32, len(set.keys)), count: make([]int32, len(set.keys)),
		byMark: map[mark]int32{}, scratch: make([]uint64, words), acc: make([]uint64, words), all: make([]uint64, words),
	}
	b.reset()
	return b
}

func (b *block) reset() {
	b.states, b.values, b.holders = 0, b.values[:0], b.holders[:0]
	clear(b.present)
	clear(b.count)
	clear(b.byMark)
	clear(b.all)
	for n := range b.first {
		b.first[n] = -1
	}
}

// full reports whether the block takes no further state.
func (b *block) full() bool { return b.states == b.words*64 || len(b.holders) >= blockTraits }

// add adds a state. Marks and keys are both sorted, and walked side by side.
func (b *block) add(m marks) {
	state := b.states
	b.states++
	b.all[state/64] |= 1 << (state % 64)
	for n, k := 0, 0; n < m.len() && k < len(b.set.keys); {
		switch order := m.key(n).compare(b.set.keys[k]); {
		case order < 0:
			n++
		case order > 0:
			k++
		default:
			b.present[k*b.words+state/64] |= 1 << (state % 64)
			b.hold(k, m.value(n), state)
			n, k = n+1, k+1
		}
	}
}

func (b *block) hold(key int, m mark, state int) {
	at, known := b.byMark[m]
	if !known {
		at = int32(len(b.values))
		b.values = append(b.values, value{mark: m, next: b.first[key], holders: -1})
		b.first[key], b.byMark[m] = at, at
		b.count[key]++
	}
	b.holders = append(b.holders, holder{state: int32(state), next: b.values[at].holders})
	b.values[at].holders = int32(len(b.holders) - 1)
}

// match calls yield for each rule with the states that fulfil it. They are good until yield returns.
func (b *block) match(yield func(rule int, states []uint64)) {
	for n := range b.set.rules {
		b.rule(&b.set.rules[n])
		yield(n, b.acc)
	}
}

// rule puts the states that fulfil a rule into acc. A rule without conditions is fulfilled by none.
func (b *block) rule(r *rule) {
	clear(b.acc)
	if len(r.conditions) == 0 {
		return
	}
	if !r.any {
		copy(b.acc, b.all)
	}
	for n := range r.conditions {
		b.condition(&r.conditions[n])
		open := uint64(0) // states that the other conditions still decide
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

// condition puts the states that fulfil a condition into scratch.
func (b *block) condition(c *condition) {
	clear(b.scratch)
	present := b.present[int(c.key)*b.words : (int(c.key)+1)*b.words]
	switch c.operator {
	case never:
	case exists:
		copy(b.scratch, present)
	case doesNotExist:
		for w := range b.scratch {
			b.scratch[w] = b.all[w] &^ present[w]
		}
	case oneOf, notOneOf:
		b.markHolders(c)
		if c.operator == notOneOf {
			for w := range b.scratch {
				b.scratch[w] = present[w] &^ b.scratch[w]
			}
		}
	}
}

// markHolders puts the states whose value is one of a condition's into scratch.
func (b *block) markHolders(c *condition) {
	if int(b.count[c.key]) <= len(c.values) {
		for at := b.first[c.key]; at >= 0; at = b.values[at].next {
			if c.holds(b.values[at].mark) {
				b.markState(at)
			}
		}
		return
	}
	for _, m := range c.values {
		if at, known := b.byMark[m]; known {
			b.markState(at)
		}
	}
}

func (b *block) markState(at int32) {
	for h := b.values[at].holders; h >= 0; h = b.holders[h].next {
		state := b.holders[h].state
		b.scratch[state/64] |= 1 << (state % 64)
	}
}

// holds reports whether a mark is one of the values, which are sorted.
func (c *condition) holds(m mark) bool {
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

// tally counts how many states fulfil each rule of a set, a block of them at a time.
type tally struct {
	block  *block
	plus   []uint64 // the states that count +1; the others count -1
	counts []int64  // by rule
}

func newTally(set *ruleSet, states int) *tally {
	b := newBlock(set, min(states, blockStates))
	return &tally{block: b, plus: make([]uint64, b.words), counts: make([]int64, len(set.rules))}
}

// add counts a state once more, or once less.
func (t *tally) add(m marks, more bool) {
	if t.block.full() {
		t.flush()
	}
	if state := t.block.states; more {
		t.plus[state/64] |= 1 << (state % 64)
	}
	t.block.add(m)
}

// flush counts what was added.
func (t *tally) flush() {
	t.block.match(func(n int, states []uint64) {
		for w, set := range states {
			t.counts[n] += int64(bits.OnesCount64(set&t.plus[w]) - bits.OnesCount64(set&^t.plus[w]))
		}
	})
	t.block.reset()
	clear(t.plus)
}
