package main

import (
	"time"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/ratelimit"
)

// rateLimits bounds the calls of an organization in any minute, over all its keys: as its plan says, or as the settings say for
// every plan.
type rateLimits struct {
	windows *ratelimit.Windows
	tariff  metering.Tariff
	every   *int
}

func newRateLimits(s *Settings, tariff metering.Tariff, now func() time.Time) *rateLimits {
	return &rateLimits{windows: ratelimit.New(time.Minute, now), tariff: tariff, every: s.RateLimit}
}

// allow counts a call of a principal; see httpx.Config.Limit.
func (l *rateLimits) allow(p auth.Principal) (retry time.Duration, ok bool) {
	limit := l.tariff[p.Limits.Plan].RequestsPerMinute
	if l.every != nil {
		limit = *l.every
	}
	return l.windows.Allow(p.OrganizationID, limit)
}
