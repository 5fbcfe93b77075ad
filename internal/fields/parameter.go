package fields

import (
	"strconv"
	"unicode/utf8"

	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/internal/cursor"
)

// CheckParameter adds a problem if a parameter of a query is no text of 1 to most characters.
func (p *Problems) CheckParameter(name, value string, most int) {
	if !utf8.ValidString(value) {
		p.Add(name, "is not UTF-8")
	} else if err := CheckName(value, 1, most); err != nil {
		p.Add(name, "%v", err)
	}
}

// Instant reads a parameter of a query that is an instant, nil if it is empty or wrong.
func (p *Problems) Instant(name, value string) *instant.Written {
	if value == "" {
		return nil
	}
	w, err := instant.Read(value)
	if err != nil {
		p.Add(name, "want an ISO 8601 instant: %v", err)
		return nil
	}
	return &w
}

// Count reads a parameter of a query that is a number from 1 to most. An empty one is otherwise.
func (p *Problems) Count(name, value string, most, otherwise int) int {
	if value == "" {
		return otherwise
	}
	count, err := strconv.Atoi(value)
	if err != nil || count < 1 || count > most {
		p.Add(name, "want an integer from 1 to %d, got %.40q", most, value)
	}
	return count
}

// Cursor reads a parameter of a query that is the end of a page of a list, nil if it is empty.
func (p *Problems) Cursor(name, value, list string) *cursor.Cursor {
	if value == "" {
		return nil
	}
	at, err := cursor.Parse(value)
	if err != nil {
		p.Add(name, "is not an endCursor of a list of %s", list)
	}
	return &at
}
