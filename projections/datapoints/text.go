package datapoints

import "github.com/annals-project/annals/projections"

var _ projections.TextKeeper = Projector{}

// TextTables implements projections.TextKeeper.
func (Projector) TextTables() []string { return []string{"data_points", "revisions"} }
