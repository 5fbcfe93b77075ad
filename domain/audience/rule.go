package audience

import "slices"

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

// Matches reports whether an identity with these traits belongs to the audience.
func (r Rule) Matches(traits map[string]string) bool {
	for _, c := range r.Conditions {
		if c.matches(traits) != (r.Match == MatchAll) {
			return r.Match == MatchAny
		}
	}
	return r.Match == MatchAll && len(r.Conditions) > 0
}

func (c Condition) matches(traits map[string]string) bool {
	value, exists := traits[c.Trait]
	switch c.Operator {
	case Exists:
		return exists
	case DoesNotExist:
		return !exists
	case Is, IsOneOf:
		return exists && slices.Contains(c.Values, value)
	case IsNot, IsNotOneOf:
		return exists && !slices.Contains(c.Values, value)
	default:
		return false
	}
}
