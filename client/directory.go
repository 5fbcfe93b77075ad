package annals

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Identity is a record of the directory.
type Identity struct {
	Identity string            `json:"identity"`
	Traits   map[string]string `json:"traits"`
	// Origin is what created the record, such as api, ingest or audience.
	Origin string `json:"origin"`
	// LastSeenAt is the time of the last data point or recall with the id, nil for none.
	LastSeenAt *time.Time `json:"lastSeenAt"`
	CreatedAt  time.Time  `json:"createdAt"`
	UpdatedAt  time.Time  `json:"updatedAt"`
	// Audiences are the slugs of the audiences that the identity reaches. Only GetIdentity returns them.
	Audiences []string `json:"audiences"`
}

// IdentityRow is a record to write. It replaces all traits of the identity.
type IdentityRow struct {
	Identity string            `json:"identity"`
	Traits   map[string]string `json:"traits"`
}

// IdentityPatch changes some traits of a record: a value sets one, nil removes it.
type IdentityPatch struct {
	Identity string             `json:"-"`
	Traits   map[string]*string `json:"traits"`
}

// ListIdentitiesRequest selects records of the directory.
type ListIdentitiesRequest struct {
	// After is the EndCursor of the page before.
	After string
	// Limit is the most records of a page, 1 to 1,000; 0 is 100.
	Limit int
	// TraitKey is a trait that the records have, TraitValue its value.
	TraitKey, TraitValue string
}

// IdentityList is one page of the directory.
type IdentityList struct {
	Identities []Identity `json:"identities"`
	HasMore    bool       `json:"hasMore"`
	EndCursor  *string    `json:"endCursor"`
}

// BulkReceipt is the answer to a bulk write.
type BulkReceipt struct {
	Identities []BulkStatus `json:"identities"`
}

// BulkStatus is what a bulk write did to one record: created or updated.
type BulkStatus struct {
	Identity string `json:"identity"`
	Status   string `json:"status"`
}

// inProject is the query of a call about identities: a management key must name the project.
func (c *Client) inProject() params {
	query := params{}
	query.text("project", c.project)
	return query
}

// ListIdentities returns one page of the directory, newest first. [Client.Identities] reads all.
func (c *Client) ListIdentities(ctx context.Context, r ListIdentitiesRequest) (*IdentityList, error) {
	query := c.inProject()
	query.text("after", r.After)
	query.number("limit", r.Limit)
	query.text("traitKey", r.TraitKey)
	query.text("traitValue", r.TraitValue)
	return get[IdentityList](ctx, c, path("identities"), url.Values(query))
}

// Identities yields the records of the directory, newest first.
func (c *Client) Identities(ctx context.Context, r ListIdentitiesRequest) iter.Seq2[Identity, error] {
	return pages(r.After, func(after string) ([]Identity, *string, error) {
		r.After = after
		page, err := c.ListIdentities(ctx, r)
		if err != nil {
			return nil, nil, err
		}
		return page.Identities, following(page.HasMore, page.EndCursor), nil
	})
}

// GetIdentity returns a record with its audiences.
func (c *Client) GetIdentity(ctx context.Context, identity string) (*Identity, error) {
	return get[Identity](ctx, c, path("identities", identity), url.Values(c.inProject()))
}

// PutIdentity creates a record, or replaces all of its traits.
func (c *Client) PutIdentity(ctx context.Context, r IdentityRow) (*Identity, error) {
	body := struct {
		Traits map[string]string `json:"traits"`
	}{r.Traits}
	return send[Identity](ctx, c, call{
		method: http.MethodPut, path: path("identities", r.Identity), query: url.Values(c.inProject()), in: body,
		repeat: safe,
	})
}

// PatchIdentity sets and removes some traits of a record.
func (c *Client) PatchIdentity(ctx context.Context, r IdentityPatch) (*Identity, error) {
	return send[Identity](ctx, c, call{
		method: http.MethodPatch, path: path("identities", r.Identity), query: url.Values(c.inProject()), in: r,
	})
}

// PutIdentities creates up to 1,000 records or replaces their traits, all or none. Of several rows with one identity
// the last counts.
func (c *Client) PutIdentities(ctx context.Context, rows []IdentityRow) (*BulkReceipt, error) {
	return send[BulkReceipt](ctx, c, call{
		method: http.MethodPost, path: path("identities", "bulk"), query: url.Values(c.inProject()), in: rows,
	})
}

// DeleteIdentity removes a record, and with it the identity from all audiences. Stored memory stays.
func (c *Client) DeleteIdentity(ctx context.Context, identity string) error {
	return c.discard(ctx, call{
		method: http.MethodDelete, path: path("identities", identity), query: url.Values(c.inProject()), repeat: deletion,
	})
}

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
