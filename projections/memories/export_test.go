package memories

// WithRows returns the projector with slices of some rows.
func (p *Projector) WithRows(rows int) *Projector {
	other := *p
	other.rows = rows
	return &other
}
