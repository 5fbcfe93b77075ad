package datapoints

// WithRows returns the projector with slices of some rows.
func (p Projector) WithRows(rows int) Projector {
	p.rows = rows
	return p
}

// The statements of a lease, for the test of their plans.
const (
	PlanLease         = planLease
	SelectDueProjects = selectDueProjects
	LeaseItems        = leaseItems
)
