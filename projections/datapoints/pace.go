package datapoints

import "time"

// Pace implements projections.Paced. An item changes its phase several times within a moment;
// what falls into one page is one change of its rows.
func (Projector) Pace() time.Duration { return 50 * time.Millisecond }
