package todo

import (
	"encoding/json"
	"time"
)

// Text is what one revision says.
type Text struct {
	Content string
	// Metadata is JSON as sent, empty for none.
	Metadata json.RawMessage
	// Label and Author are "" for none.
	Label, Author string
	OccurredAt    time.Time
}
