package metering

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/annals-project/annals/domain/limit"
)

// Plan is what an organization pays by.
type Plan string

// The plans. SelfHosted is none: nothing is metered, and credit figures read null.
const (
	SelfHosted Plan = "self-hosted"
	PayAsYouGo Plan = "payg"
	Flex       Plan = "flex"
	Enterprise Plan = "enterprise"
)

// Metered reports whether credits are taken from a balance.
func (p Plan) Metered() bool { return p != SelfHosted && p != "" }

// Grant is how credits came to an organization.
type Grant string

// The kinds of grants.
const (
	Starting Grant = "starting"
	Bought   Grant = "bought"
)

// Caps are what binds the calls of a project, as its key was looked up. Nil is no cap; tenths are
// of a credit.
type Caps struct {
	Plan            Plan
	SpendCapTenths  *int64 // of the organization, a month
	IngestionCap    *int64 // of the project, data points a month
	CreditCapTenths *int64 // of the project, a month
}

// Terms are what a plan grants and costs. Zero means no limit, for a limit.
type Terms struct {
	// RequestsPerMinute bounds the calls of an organization in any 60 seconds.
	RequestsPerMinute int `json:"requestsPerMinute"`
	// Projects bounds how many an organization has, archived ones too.
	Projects int `json:"projects"`
	// AllowanceTenths are given each month, and expire with it.
	AllowanceTenths int64 `json:"allowanceTenths"`
	// RecallTenths is the price of a recall. Where it is not 0, recall is refused without credits.
	RecallTenths int64 `json:"recallTenths"`
	// EvidenceCeiling is the most tokens of a page of recall.
	EvidenceCeiling int `json:"evidenceCeiling"`
	// Webhooks are included.
	Webhooks bool `json:"webhooks"`
	// RetentionDays is how long bodies of logged requests are kept.
	RetentionDays int `json:"retentionDays"`
}

// PlanTerms is the terms of every plan.
type PlanTerms map[Plan]Terms

// Of is the terms of a plan; no plan is SelfHosted.
func (t PlanTerms) Of(plan Plan) Terms {
	plan = cmp.Or(plan, SelfHosted)
	return t[plan]
}

// DefaultPlanTerms is the terms of a deployment that sets none.
func DefaultPlanTerms() PlanTerms {
	return PlanTerms{
		SelfHosted: {EvidenceCeiling: 32000, Webhooks: true, RetentionDays: 14},
		PayAsYouGo: {RequestsPerMinute: 120, Projects: 3, RecallTenths: 1, EvidenceCeiling: 8000, RetentionDays: 3},
		Flex:       {RequestsPerMinute: 600, Projects: 20, EvidenceCeiling: 8000, Webhooks: true, RetentionDays: 14},
		Enterprise: {RequestsPerMinute: 3000, EvidenceCeiling: 32000, Webhooks: true, RetentionDays: 30},
	}
}

// The bounds of terms, so that no sum of them overflows.
const (
	maxNumber       = 1_000_000_000
	maxTenths       = 1_000_000_000_000_000
	maxRetention    = 365
	leastEvidence   = 1
	termsExample    = `{"flex":{"allowanceTenths":1000000,"requestsPerMinute":900}}`
	termsDescribing = "requestsPerMinute, projects, allowanceTenths, recallTenths, evidenceCeiling, webhooks, " +
		"retentionDays"
)

// Override returns the tariff with some numbers changed: by plan, the fields of Terms that differ.
// It fails on an unknown plan or field, and on numbers out of bounds, with a message for the person
// who wrote it.
func (t PlanTerms) Override(text string) (PlanTerms, error) {
	changed := maps.Clone(t)
	var plans map[Plan]json.RawMessage
	if err := json.Unmarshal([]byte(text), &plans); err != nil || plans == nil {
		return nil, fmt.Errorf("is no JSON object of plans, such as %s", termsExample)
	}
	for plan, raw := range plans {
		terms, known := t[plan]
		if !known {
			return nil, fmt.Errorf("names the plan %q: there are %s, %s, %s and %s", plan, SelfHosted, PayAsYouGo, Flex,
				Enterprise)
		}
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&terms); err != nil {
			return nil, fmt.Errorf("cannot be read for plan %s (%w): it may change %s", plan, err, termsDescribing)
		}
		if err := terms.validate(); err != nil {
			return nil, fmt.Errorf("cannot be for plan %s: %w", plan, err)
		}
		changed[plan] = terms
	}
	return changed, nil
}

func (t Terms) validate() error {
	for _, n := range []struct {
		name        string
		value       int64
		least, most int64
	}{
		{"requestsPerMinute", int64(t.RequestsPerMinute), 0, maxNumber},
		{"projects", int64(t.Projects), 0, maxNumber},
		{"allowanceTenths", t.AllowanceTenths, 0, maxTenths},
		{"recallTenths", t.RecallTenths, 0, maxNumber},
		{"evidenceCeiling", int64(t.EvidenceCeiling), leastEvidence, limit.EvidenceTokens},
		{"retentionDays", int64(t.RetentionDays), 0, maxRetention},
	} {
		if n.value < n.least || n.value > n.most {
			return fmt.Errorf("%s is %d: want %d to %d", n.name, n.value, n.least, n.most)
		}
	}
	return nil
}
