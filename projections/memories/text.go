package memories

import "github.com/annals-project/annals/projections"

var _ projections.TextKeeper = (*Projector)(nil)

// TextTables implements projections.TextKeeper.
func (*Projector) TextTables() []string { return []string{"memories"} }
