package main

import (
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/projections/usage"
)

// newMeters makes what takes sends out of the limits of their organizations, and lets the finisher drop what counts no longer.
func (p *process) newMeters(tariff metering.Tariff) *usage.Meters {
	meters := usage.NewMeters(p.st.db, tariff, p.waiter, p.log)
	p.finisher.Reservations = usage.NewMeters(p.st.work, tariff, p.runtime.Inside(), p.log)
	return meters
}
