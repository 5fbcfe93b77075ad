package client

import (
	"context"
	"net/http"
	"net/url"
)

// Identity is a record of the directory as written: a PUT replaces all of its traits.
type Identity struct {
	Identity string            `json:"identity"`
	Traits   map[string]string `json:"traits"`
}

// Rule selects the identities of an audience by their traits. Match is all or any.
type Rule struct {
	Match      string       `json:"match"`
	Conditions []Comparison `json:"conditions"`
}

// Comparison is one condition of a rule.
type Comparison struct {
	Trait    string   `json:"trait"`
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

// Audience is an audience as a write returns it.
type Audience struct {
	Slug        string `json:"slug"`
	MemberCount int64  `json:"memberCount"`
}

// PutIdentity creates a record or replaces its traits.
func (c *Client) PutIdentity(ctx context.Context, i Identity) error {
	body := struct {
		Traits map[string]string `json:"traits"`
	}{i.Traits}
	return c.do(ctx, call{method: http.MethodPut, path: api + "/identities/" + url.PathEscape(i.Identity), body: body},
		nil)
}

// PutIdentities creates or replaces up to 1,000 records, all or none.
func (c *Client) PutIdentities(ctx context.Context, rows []Identity) error {
	return c.do(ctx, call{method: http.MethodPost, path: api + "/identities/bulk", body: rows}, nil)
}

// PutRule creates an audience of all identities that match a rule, or replaces its rule.
func (c *Client) PutRule(ctx context.Context, slug string, rule Rule) (Audience, error) {
	body := struct {
		Kind string `json:"kind"`
		Rule Rule   `json:"rule"`
	}{"rule", rule}
	var out Audience
	err := c.do(ctx, call{method: http.MethodPut, path: api + "/audiences/" + url.PathEscape(slug), body: body}, &out)
	return out, err
}

// Recompute recounts the members of an audience.
func (c *Client) Recompute(ctx context.Context, slug string) (Audience, error) {
	var out Audience
	err := c.do(ctx, call{method: http.MethodPost, path: api + "/audiences/" + url.PathEscape(slug) + "/recompute"}, &out)
	return out, err
}
