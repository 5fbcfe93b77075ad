package datapoints

import "time"

// Pace implements projections.Paced. It is short: the lists of the pipeline and the statuses of sends are read here.
func (Projector) Pace() time.Duration { return 20 * time.Millisecond }
