package metering

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
