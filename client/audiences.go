package annals

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// Audience is who reaches the data points that name it.
type Audience struct {
	Slug string `json:"slug"`
	Name string `json:"name"`
	// Kind is AudienceDefault, of the audience "project" alone, AudienceFixed or AudienceRule.
	Kind string `json:"kind"`
	// MemberCount counts the identities that reach it now, MemoryCount what recall could return of it.
	MemberCount   int64 `json:"memberCount"`
	MemoryCount   int64 `json:"memoryCount"`
	ReachesNobody bool  `json:"reachesNobody"`
	// RecomputedAt is nil for the audience "project".
	RecomputedAt *time.Time `json:"recomputedAt"`
	CreatedAt    time.Time  `json:"createdAt"`
	// Identities are sorted, and nil unless the kind is fixed.
	Identities []string `json:"identities"`
	// Rule is nil unless the kind is rule.
	Rule *Rule `json:"rule"`
}

// Kinds of audiences.
const (
	AudienceDefault = "default"
	AudienceFixed   = "fixed"
	AudienceRule    = "rule"
)

// Rule selects identities by their traits.
type Rule struct {
	// Match is MatchAll or MatchAny of the conditions, of which there are 1 to 20.
	Match      string      `json:"match"`
	Conditions []Condition `json:"conditions"`
}

// How many of its conditions a rule needs.
const (
	MatchAll = "all"
	MatchAny = "any"
)

// Condition is one condition on a trait.
type Condition struct {
	Trait string `json:"trait"`
	// Operator is one of the constants that begin with Operator.
	Operator string `json:"operator"`
	// Values are those that the operator compares with.
	Values []string `json:"values,omitempty"`
}

// Operators of a Condition.
const (
	OperatorIs           = "is"             // exactly one value
	OperatorIsNot        = "is_not"         // exactly one value
	OperatorIsOneOf      = "is_one_of"      // 1 to 50 values
	OperatorIsNotOneOf   = "is_not_one_of"  // 1 to 50 values
	OperatorExists       = "exists"         // no value
	OperatorDoesNotExist = "does_not_exist" // no value
)

// AudiencePut is an audience to write.
type AudiencePut struct {
	// Slug has 2 to 40 lower-case letters, digits and dashes.
	Slug string `json:"-"`
	// Kind is AudienceFixed, which needs Identities, or AudienceRule, which needs Rule.
	Kind string `json:"kind"`
	// Name is "" for the slug, or the stored name.
	Name string `json:"name,omitempty"`
	// Identities is a list that may be empty, but not nil.
	Identities []string `json:"identities,omitzero"`
	Rule       *Rule    `json:"rule,omitempty"`
}

// AudienceList is all audiences of a project.
type AudienceList struct {
	Audiences []Audience `json:"audiences"`
}

// ListAudiences returns the audiences: "project" first, then the others by creation.
func (c *Client) ListAudiences(ctx context.Context) (*AudienceList, error) {
	return get[AudienceList](ctx, c, path("audiences"), nil)
}

// Audiences yields the audiences as ListAudiences returns them.
func (c *Client) Audiences(ctx context.Context) iter.Seq2[Audience, error] {
	return pages("", func(string) ([]Audience, *string, error) {
		list, err := c.ListAudiences(ctx)
		if err != nil {
			return nil, nil, err
		}
		return list.Audiences, nil, nil
	})
}

// GetAudience returns one audience.
func (c *Client) GetAudience(ctx context.Context, slug string) (*Audience, error) {
	return get[Audience](ctx, c, path("audiences", slug), nil)
}

// PutAudience creates an audience or replaces its definition.
func (c *Client) PutAudience(ctx context.Context, a AudiencePut) (*Audience, error) {
	return send[Audience](ctx, c, call{
		method: http.MethodPut, path: path("audiences", a.Slug), in: a, repeat: safe,
	})
}

// DeleteAudience removes an audience. What was scoped to it stays and reaches nobody.
func (c *Client) DeleteAudience(ctx context.Context, slug string) error {
	return c.discard(ctx, call{method: http.MethodDelete, path: path("audiences", slug), repeat: deletion})
}

// RecomputeAudience counts the members of an audience again.
func (c *Client) RecomputeAudience(ctx context.Context, slug string) (*Audience, error) {
	return send[Audience](ctx, c, call{method: http.MethodPost, path: path("audiences", slug, "recompute")})
}
