package recallindex

import "time"

// Pace implements projections.Paced. A page of the index costs as much as some dozens of its documents, and what was
// sent is to be found within a quarter of a second.
func (*Projector) Pace() time.Duration { return 80 * time.Millisecond }

// MostPace implements projections.Stretched: a document in a page of 200 costs half of what it does in one of 50.
func (*Projector) MostPace() time.Duration { return 200 * time.Millisecond }
