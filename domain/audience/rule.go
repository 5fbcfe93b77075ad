package audience

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
