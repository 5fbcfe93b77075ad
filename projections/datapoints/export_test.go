package datapoints

// The statements of a lease, for the test of their plans.
const (
	PlanLease         = planLease
	SelectDueProjects = selectDueProjects
	LeaseItems        = leaseItems
)
