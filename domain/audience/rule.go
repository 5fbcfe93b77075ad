package audience

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
)

// Match is whether all conditions of a rule must hold, or any.
type Match string

// The matches.
const (
	MatchAll Match = "all"
	MatchAny Match = "any"
)

// Operator compares a trait with the values of a condition.
type Operator string

// The operators. Is and IsNot take one value, IsOneOf and IsNotOneOf 1 to limit.RuleValues, the
// others none. If the identity lacks the trait, only DoesNotExist matches.
const (
	Is           Operator = "is"
	IsNot        Operator = "is_not"
	IsOneOf      Operator = "is_one_of"
	IsNotOneOf   Operator = "is_not_one_of"
	Exists       Operator = "exists"
	DoesNotExist Operator = "does_not_exist"
)

// Rule selects the identities of an audience by their traits.
type Rule struct {
	Match      Match       `json:"match"`
	Conditions []Condition `json:"conditions"`
}

// Condition is one comparison of a rule.
type Condition struct {
	Trait    string   `json:"trait"`
	Operator Operator `json:"operator"`
	Values   []string `json:"values"`
}

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

// memberBytes is what a member of a fixed audience counts in limit.AudienceBytes: its id in the
// log, and a row of the projection.
const memberBytes = 32

// MembersBytes is the size of a definition with so many members.
func MembersBytes(members int) int64 { return int64(members) * memberBytes }

// DefinitionBytes is the size of the definition of a put: of a rule its traits and values in UTF-8,
// or its blob.
func (p *Put) DefinitionBytes() int64 {
	switch {
	case p.RuleBlob != nil:
		return p.RuleBlob.Size
	case p.Rule != nil:
		return p.Rule.bytes()
	case p.MembersBlob != nil:
		return MembersBytes(int(p.MembersBlob.Size / int64(len(uuid.UUID{}))))
	default:
		return MembersBytes(len(p.Members))
	}
}

func (r *Rule) bytes() (size int64) {
	for _, c := range r.Conditions {
		size += int64(len(c.Trait))
		for _, v := range c.Values {
			size += int64(len(v))
		}
	}
	return size
}

// checkRoom returns the fault audience-limit-reached if a definition does not fit among those of a
// project, of which it may replace one.
func (s *State) checkRoom(replaced Live, exists bool, definition int64) error {
	if !exists && len(s.live) >= limit.Audiences {
		return fault.New(fault.Invalid, fault.CodeAudienceLimitReached,
			"the project has %d audiences: delete one first", limit.Audiences)
	}
	if total := s.bytes - replaced.bytes + definition; total > limit.AudienceBytes && definition > replaced.bytes {
		return fault.New(fault.Invalid, fault.CodeAudienceLimitReached,
			"the audiences of the project would have definitions of %d bytes together: want at most %d", total, limit.AudienceBytes)
	}
	return nil
}

// ValidSlug reports whether a text can name an audience. The default slug is valid.
func ValidSlug(slug string) bool { return limit.IsAudienceSlug(slug) }

// CheckSlug returns the fault audience-slug-invalid or audience-slug-reserved for a slug that
// cannot be put.
func CheckSlug(slug string) error {
	if !ValidSlug(slug) {
		return fault.New(fault.Invalid, fault.CodeAudienceSlugInvalid,
			"a slug has %d to %d lower-case letters, digits and dashes, with a letter or digit at each end", limit.MinAudienceSlug, limit.AudienceSlug)
	}
	if slug == Default {
		return fault.New(fault.Invalid, fault.CodeAudienceSlugReserved,
			"the audience %q contains every identity: it cannot be put, deleted or recomputed", Default)
	}
	return nil
}

// Check returns the fault audience-rule-invalid if the rule breaks the limits.
func (r Rule) Check() error {
	if r.Match != MatchAll && r.Match != MatchAny {
		return RuleInvalid("rule.match", "is %.100q: want %q or %q", r.Match, MatchAll, MatchAny)
	}
	if n := len(r.Conditions); n < 1 || n > limit.RuleConditions {
		return RuleInvalid("rule.conditions", "there are %d: want 1 to %d", n, limit.RuleConditions)
	}
	for i, c := range r.Conditions {
		if err := c.check(i); err != nil {
			return err
		}
	}
	return nil
}

func (c Condition) check(i int) error {
	if wrong := lengthWrong(c.Trait, limit.TraitKey); wrong != "" {
		return RuleInvalid(conditionPath(i, "trait"), "%s", wrong)
	}
	least, most := 0, 0
	switch c.Operator {
	case Exists, DoesNotExist:
	case Is, IsNot:
		least, most = 1, 1
	case IsOneOf, IsNotOneOf:
		least, most = 1, limit.RuleValues
	default:
		return RuleInvalid(conditionPath(i, "operator"), "is %.100q: want one of %s", c.Operator, operatorNames())
	}
	if n := len(c.Values); n < least || n > most {
		if least == most {
			return RuleInvalid(conditionPath(i, "values"), "there are %d: %s takes %d", n, c.Operator, most)
		}
		return RuleInvalid(conditionPath(i, "values"), "there are %d: %s takes %d to %d", n, c.Operator, least, most)
	}
	for _, v := range c.Values {
		if wrong := lengthWrong(v, limit.TraitValue); wrong != "" {
			return RuleInvalid(conditionPath(i, "values"), "one of them %s", wrong)
		}
	}
	return nil
}

// Operators returns all operators.
func Operators() []Operator { return []Operator{Is, IsNot, IsOneOf, IsNotOneOf, Exists, DoesNotExist} }

func operatorNames() string {
	var names []string
	for _, o := range Operators() {
		names = append(names, string(o))
	}
	return strings.Join(names, ", ")
}

// lengthWrong returns what is wrong with a text as key or value of a trait, "" for nothing.
func lengthWrong(text string, most int) string {
	switch {
	case text == "":
		return "is empty"
	case utf8.RuneCountInString(text) > most:
		return "is too long"
	case strings.ContainsRune(text, 0):
		return "holds U+0000"
	}
	return ""
}

// TraitKey is a hash of a project and the key of a trait, or of a project, key and value. Rules are
// matched and identities are found by these hashes, so equal hashes count as equal texts.
type TraitKey [16]byte

// KeyHash identifies the identities of a project that have a trait.
func KeyHash(project uuid.UUID, key string) TraitKey {
	text := make([]byte, 0, 256)
	return hashOf(append(append(append(text, project[:]...), 'k'), key...))
}

// ValueHash identifies the identities of a project that have a trait with a value.
func ValueHash(project uuid.UUID, key, value string) TraitKey {
	text := make([]byte, 0, 512)
	text = binary.AppendUvarint(append(append(text, project[:]...), 'v'), uint64(len(key)))
	return hashOf(append(append(text, key...), value...))
}

func hashOf(text []byte) (k TraitKey) {
	sum := sha256.Sum256(text)
	copy(k[:], sum[:])
	return k
}

func (k TraitKey) compare(other TraitKey) int { return bytes.Compare(k[:], other[:]) }

// TraitKeys are the hashes of the traits of an identity: for each trait that of its key, then that of
// its value, sorted by the first. An identity is matched by these; the text of its traits is read only
// to be returned.
type TraitKeys []byte

// pairBytes is the size of the two hashes of a trait.
const pairBytes = 2 * len(TraitKey{})

// TraitKeysOf returns the hashes of traits.
func TraitKeysOf(project uuid.UUID, traits map[string]string) TraitKeys {
	pairs := make([][pairBytes]byte, 0, len(traits))
	for key, value := range traits {
		var pair [pairBytes]byte
		k, v := KeyHash(project, key), ValueHash(project, key, value)
		copy(pair[:], k[:])
		copy(pair[len(k):], v[:])
		pairs = append(pairs, pair)
	}
	slices.SortFunc(pairs, func(a, b [pairBytes]byte) int { return bytes.Compare(a[:], b[:]) })
	all := make(TraitKeys, 0, len(pairs)*pairBytes)
	for _, pair := range pairs {
		all = append(all, pair[:]...)
	}
	return all
}

// Len returns the number of traits.
func (t TraitKeys) Len() int { return len(t) / pairBytes }

// Key returns the hash of the key of the nth trait.
func (t TraitKeys) Key(n int) TraitKey { return TraitKey(t[n*pairBytes:]) }

// Value returns the hash of the key and value of the nth trait.
func (t TraitKeys) Value(n int) TraitKey { return TraitKey(t[n*pairBytes+len(TraitKey{}):]) }
