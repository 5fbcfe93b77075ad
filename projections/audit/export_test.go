package audit

// Rest returns the projector with another number of events that a page reads of the rest of the log.
func (p Projector) Rest(events int) Projector {
	p.rest = events
	return p
}
