package access

import "time"

// Pace implements projections.Paced. Hardly any event is of this projection, and who needs one that is waits for it, which ends
// the rest: without a pace most pages would say that nothing happened.
func (Projector) Pace() time.Duration { return 50 * time.Millisecond }
