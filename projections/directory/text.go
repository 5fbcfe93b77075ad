package directory

import "github.com/annals-project/annals/projections"

var _ projections.TextKeeper = (*Projector)(nil)

// TextTables implements projections.TextKeeper. Marks are hashes of what may be guessed.
func (*Projector) TextTables() []string { return []string{"identities", "marks"} }
