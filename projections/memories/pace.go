package memories

import "time"

// Pace implements projections.Paced. Nobody waits for what was derived; it is to be there by the time that the index finds it.
func (*Projector) Pace() time.Duration { return 60 * time.Millisecond }

// MostPace implements projections.Stretched. It is less than that of the index.
func (*Projector) MostPace() time.Duration { return 180 * time.Millisecond }
