package usage

import "time"

// Pace implements projections.Paced. Few events concern this projection, and a caller that needs
// one waits for it, which ends the pause. Without a pace, most pages would hold none.
func (Projector) Pace() time.Duration { return 50 * time.Millisecond }
