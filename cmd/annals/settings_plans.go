package main

import "github.com/annals-project/annals/domain/metering"

// tariff is the terms of every plan.
func (s *Settings) tariff() (metering.Tariff, error) {
	if s.Plans == "" {
		return metering.DefaultTariff(), nil
	}
	return metering.DefaultTariff().Override(s.Plans)
}
