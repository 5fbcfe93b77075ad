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

// operator is how a condition is matched. The values are stored.
type operator byte

const (
	never        operator = iota // an operator that is none
	oneOf                        // the trait is there with one of the values
	notOneOf                     // the trait is there with another value
	exists                       // the trait is there
	doesNotExist                 // the trait is not there
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

// compile makes what a rule is matched by: marks in place of its texts, however long those are, and the values of a condition sorted.
//
// It is a byte that is 1 for "any"; then for each condition its operator, the mark of its key, the number of its values as a varint, and
// their marks.
func compile(project uuid.UUID, r audience.Rule) []byte {
	compiled := []byte{0}
	if r.Match == audience.MatchAny {
		compiled[0] = 1
	}
	for _, c := range r.Conditions {
		values := make([]mark, len(c.Values))
		for n, v := range c.Values {
			values[n] = valueMark(project, c.Trait, v)
		}
		slices.SortFunc(values, mark.compare)
		values = slices.Compact(values)
		key := keyMark(project, c.Trait)
		compiled = append(append(compiled, byte(operatorOf(c.Operator))), key[:]...)
		compiled = binary.AppendUvarint(compiled, uint64(len(values)))
		for _, v := range values {
			compiled = append(compiled, v[:]...)
		}
	}
	return compiled
}

// rule is the compiled rule of an audience.
type rule struct {
	audience   uuid.UUID
	any        bool
	conditions []condition
}

type condition struct {
	operator operator
	key      int32 // among the keys of the set
	values   []mark
}

// ruleSet are the rules of a project, in the order of their audiences' ids, and the keys that they compare, sorted. It is never changed
// once it is made.
type ruleSet struct {
	rules []rule
	keys  []mark
	// bytes is about what it takes.
	bytes int
}

// setMaker collects the rules of a set.
type setMaker struct {
	set  ruleSet
	keys map[mark]int32
}

func newSetMaker() *setMaker { return &setMaker{keys: map[mark]int32{}} }

// add decodes a compiled rule.
func (m *setMaker) add(id uuid.UUID, compiled []byte) error {
	if len(compiled) == 0 {
		return errors.New("the compiled rule is empty")
	}
	r, rest := rule{audience: id, any: compiled[0] == 1}, compiled[1:]
	for len(rest) > 0 {
		const head = 1 + len(mark{})
		if len(rest) < head {
			return errors.New("the compiled rule breaks off")
		}
		c, key := condition{operator: operator(rest[0])}, mark(rest[1:])
		count, n := binary.Uvarint(rest[head:])
		if rest = rest[head:]; n <= 0 || count > uint64(len(rest)-n)/uint64(len(mark{})) {
			return errors.New("the compiled rule breaks off")
		}
		rest = rest[n:]
		c.values = make([]mark, count)
		for i := range c.values {
			c.values[i] = mark(rest)
			rest = rest[len(mark{}):]
		}
		at, known := m.keys[key]
		if !known {
			at = int32(len(m.keys))
			m.keys[key] = at
			m.set.bytes += 2 * len(mark{})
		}
		c.key = at
		r.conditions = append(r.conditions, c)
		m.set.bytes += 48 + len(c.values)*len(mark{})
	}
	m.set.rules = append(m.set.rules, r)
	m.set.bytes += 64
	return nil
}

// done is the set, with its keys in order.
func (m *setMaker) done() *ruleSet {
	set := &m.set
	set.keys = make([]mark, 0, len(m.keys))
	for key := range m.keys {
		set.keys = append(set.keys, key)
	}
	slices.SortFunc(set.keys, mark.compare)
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

// reached are the audiences whose rules an identity with these marks fulfils.
func (s *ruleSet) reached(m marks) (reached []uuid.UUID) {
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

// selectRules is what the projector reads; selectRulesQualified what readers do.
const (
	selectRules          = `select id, compiled from audiences where project_id = $1 and compiled is not null order by id`
	selectRulesQualified = `select id, compiled from directory.audiences where project_id = $1 and compiled is not null order by id`
)

// readRules reads the rules of a project.
func readRules(ctx context.Context, db querier, sql string, project uuid.UUID) (*ruleSet, error) {
	rows, err := db.Query(ctx, sql, [16]byte(project))
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	var (
		m        = newSetMaker()
		id       uuid.UUID
		compiled pgtype.DriverBytes
	)
	_, err = pgx.ForEachRow(rows, []any{(*[16]byte)(&id), &compiled}, func() error { return m.add(id, compiled) })
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	return m.done(), nil
}
