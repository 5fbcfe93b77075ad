package directory

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/annals-project/annals/domain/audience"
)

// operator is how a condition is matched. The values are stored in compiled rules.
type operator byte

const (
	never        operator = iota // an unknown operator matches no identity
	oneOf                        // has the trait with one of the values
	notOneOf                     // has the trait with another value
	exists                       // has the trait
	doesNotExist                 // lacks the trait
)

func operatorOf(o audience.Operator) operator {
	switch o {
	case audience.Is, audience.IsOneOf:
		return oneOf
	case audience.IsNot, audience.IsNotOneOf:
		return notOneOf
	case audience.Exists:
		return exists
	case audience.DoesNotExist:
		return doesNotExist
	default:
		return never
	}
}

// compile encodes a rule for matching: with hashes instead of its texts, which may be long, and the
// values of a condition sorted.
//
// The format is a byte, 1 for "any"; then for each condition its operator, the hash of its key, the
// number of values as a varint, and their hashes.
func compile(project uuid.UUID, r audience.Rule) []byte {
	compiled := []byte{0}
	if r.Match == audience.MatchAny {
		compiled[0] = 1
	}
	for _, c := range r.Conditions {
		values := make([]traitKey, len(c.Values))
		for n, v := range c.Values {
			values[n] = valueHash(project, c.Trait, v)
		}
		slices.SortFunc(values, traitKey.compare)
		values = slices.Compact(values)
		key := keyHash(project, c.Trait)
		compiled = append(append(compiled, byte(operatorOf(c.Operator))), key[:]...)
		compiled = binary.AppendUvarint(compiled, uint64(len(values)))
		for _, v := range values {
			compiled = append(compiled, v[:]...)
		}
	}
	return compiled
}

// rule is a compiled rule of an audience.
type rule struct {
	audience   uuid.UUID
	any        bool
	conditions []condition
}

type condition struct {
	operator operator
	key      int32 // index in the keys of the set
	values   []traitKey
}

// ruleSet holds the rules of a project in the order of audience ids, and the keys that they
// compare, sorted. It is immutable.
type ruleSet struct {
	rules []rule
	keys  []traitKey
	// bytes is its approximate size in memory.
	bytes int
}

// setBuilder collects the rules of a set.
type setBuilder struct {
	set  ruleSet
	keys map[traitKey]int32
}

func newSetBuilder() *setBuilder { return &setBuilder{keys: map[traitKey]int32{}} }

// add decodes a compiled rule into the set. It fails on damaged bytes.
func (m *setBuilder) add(id uuid.UUID, compiled []byte) error {
	if len(compiled) == 0 {
		return errors.New("compiled rule is empty")
	}
	r, rest := rule{audience: id, any: compiled[0] == 1}, compiled[1:]
	for len(rest) > 0 {
		const head = 1 + len(traitKey{})
		if len(rest) < head {
			return errors.New("compiled rule is truncated")
		}
		c, key := condition{operator: operator(rest[0])}, traitKey(rest[1:])
		count, n := binary.Uvarint(rest[head:])
		if rest = rest[head:]; n <= 0 || count > uint64(len(rest)-n)/uint64(len(traitKey{})) {
			return errors.New("compiled rule is truncated")
		}
		rest = rest[n:]
		c.values = make([]traitKey, count)
		for i := range c.values {
			c.values[i] = traitKey(rest)
			rest = rest[len(traitKey{}):]
		}
		at, known := m.keys[key]
		if !known {
			at = int32(len(m.keys))
			m.keys[key] = at
			m.set.bytes += 2 * len(traitKey{})
		}
		c.key = at
		r.conditions = append(r.conditions, c)
		m.set.bytes += 48 + len(c.values)*len(traitKey{})
	}
	m.set.rules = append(m.set.rules, r)
	m.set.bytes += 64
	return nil
}

// build sorts the keys and returns the set.
func (m *setBuilder) build() *ruleSet {
	set := &m.set
	set.keys = make([]traitKey, 0, len(m.keys))
	for key := range m.keys {
		set.keys = append(set.keys, key)
	}
	slices.SortFunc(set.keys, traitKey.compare)
	to := make([]int32, len(set.keys))
	for at, key := range set.keys {
		to[m.keys[key]] = int32(at)
	}
	for _, r := range set.rules {
		for n := range r.conditions {
			r.conditions[n].key = to[r.conditions[n].key]
		}
	}
	return set
}

// reached lists the audiences whose rules an identity matches.
func (s *ruleSet) reached(m traitKeys) (reached []uuid.UUID) {
	if s == nil || len(s.rules) == 0 {
		return nil
	}
	b := newBlock(s, 1)
	b.add(m)
	b.match(func(n int, states []uint64) {
		if states[0] != 0 {
			reached = append(reached, s.rules[n].audience)
		}
	})
	return reached
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// selectRules is for the projector, whose search_path is the schema that it builds;
// selectRulesQualified is for queries.
const (
	selectRules = `select id, compiled from audiences where project_id = $1 and compiled is not null
		order by id`
	selectRulesQualified = `select id, compiled from directory.audiences
		where project_id = $1 and compiled is not null order by id`
)

// readRules reads the rules that a statement selects.
func readRules(ctx context.Context, db querier, sql string, args ...any) (*ruleSet, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	var (
		m        = newSetBuilder()
		id       uuid.UUID
		compiled pgtype.DriverBytes
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &compiled}, func() error { return m.add(id, compiled) })
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	return m.build(), nil
}
