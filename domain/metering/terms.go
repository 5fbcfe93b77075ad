package metering

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/annals-project/annals/domain/limit"
)

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
