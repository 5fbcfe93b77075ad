// Package recallscore measures recall on dialogues with questions whose evidence is known.
package recallscore

import (
	"time"

	"github.com/annals-project/annals/internal/client"
)

// Dialogue is what was said, as it is sent, and what is asked about it.
type Dialogue struct {
	ID string
	// Points are the turns, oldest first.
	Points    []client.DataPoint
	Questions []Question
	// Asker is the identity that asks, at AskedAt.
	Asker   string
	AskedAt time.Time
	// Skipped counts the questions without evidence, which nothing can be measured on.
	Skipped int
}

// Question asks for what one or more turns hold.
type Question struct {
	Text     string
	Category string
	// Aside says that its category is reported, but not part of the figures over all.
	Aside bool
	// Evidence are the source ids of the turns, at least one, each once.
	Evidence []string
}
