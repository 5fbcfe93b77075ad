package memory

import "slices"

// The kinds of derived memory.
const (
	Observation    = "observation"
	Claim          = "claim"
	Rule           = "rule"
	Membership     = "membership"
	Identity       = "identity"
	Mention        = "mention"
	TemporalAnchor = "temporal-anchor"
)

// Kind is what holds for every memory of one kind.
type Kind struct {
	Name string
	// Means is what is of this kind, in words for a model.
	Means string
	// Distilled reports that it is worth more than its source in fewer words.
	Distilled bool
	// HasSubject reports that it has a subject and an attribute. A later claim about both supersedes an earlier one.
	HasSubject bool
	// ResolvesDates reports that it has the span of time that it names.
	ResolvesDates bool
}

var kinds = []Kind{
	{Name: Observation, Means: "something that happened or was seen."},
	{
		Name: Claim, Distilled: true, HasSubject: true,
		Means: `a fact or preference that somebody holds. "subject" is who or what it is about (the name of the author for "I"), ` +
			`"attribute" what it says about it, in few words ("favourite editor").`,
	},
	{Name: Rule, Means: "a standing instruction.", Distilled: true},
	{Name: Membership, Means: "somebody or something belongs to a group, a team, a role.", Distilled: true},
	{Name: Identity, Means: "names, aliases, handles or addresses of one entity.", Distilled: true},
	{Name: Mention, Means: "an entity is named."},
	{
		Name: TemporalAnchor, Distilled: true, ResolvesDates: true,
		Means: `a date expression. "from" and "to" are its first and last day as YYYY-MM-DD, resolved against occurredAt.`,
	},
}

// Kinds returns all kinds.
func Kinds() []Kind { return slices.Clone(kinds) }

// KindOf returns the kind with a name. A log may hold names that this program does not know, which are of no kind.
func KindOf(name string) (k Kind, ok bool) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{Name: name}, false
	}
	return kinds[i], true
}
