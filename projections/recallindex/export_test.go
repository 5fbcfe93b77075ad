package recallindex

// Continue makes a projector go on with the rows of an earlier version.
func (p *Projector) Continue(version int) { p.continued = append(p.continued, version) }
