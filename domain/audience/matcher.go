package audience

import (
	"encoding/binary"
	"errors"
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
