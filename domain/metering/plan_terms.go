package metering

import "cmp"

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
