package audience

import "math/bits"

// Selector finds which of many identities match a rule, a block of them at a time.
type Selector struct{ block *block }

// NewSelector makes a selector for the first rule of a matcher.
func NewSelector(m *Matcher) *Selector { return &Selector{block: newBlock(m, blockStates)} }

// Add adds an identity. If full is true, the caller takes what was selected before it adds another one.
func (s *Selector) Add(traits TraitKeys) (full bool) {
	s.block.add(traits)
	return s.block.full()
}

// Take returns the identities added since the last call that match, by their place among these.
func (s *Selector) Take() (matching []int) {
	s.block.rule(&s.block.matcher.rules[0])
	for word, states := range s.block.acc {
		for ; states != 0; states &= states - 1 {
			matching = append(matching, 64*word+bits.TrailingZeros64(states))
		}
	}
	s.block.reset()
	return matching
}
