package audit

import "github.com/annals-project/annals/eventstore"

// Short returns the projector with another length of the rest of the log that a page reads.
func (p Projector) Short(positions eventstore.Position) Projector {
	p.short = positions
	return p
}
