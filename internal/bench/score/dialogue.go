// Package score measures recall on dialogues with questions whose evidence is known.
package score

import (
	"time"

	client "github.com/annals-project/annals/client"
)

// Dialogue is a conversation with questions about it.
type Dialogue struct {
	ID string
	// DataPoints are the turns, oldest first.
	DataPoints []client.DataPoint
	Questions  []Question
	// Asker is the identity that asks, at AskedAt.
	Asker   string
	AskedAt time.Time
	// Skipped counts the questions without evidence, which cannot be measured.
	Skipped int
}

// Question is answered by one or more turns.
type Question struct {
	Text     string
	Category string
	// Excluded reports that its category is reported, but not part of the overall figures.
	Excluded bool
	// Evidence are the source ids of the turns, at least one, each once.
	Evidence []string
}
