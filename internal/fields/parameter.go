package fields

import (
	"unicode/utf8"

	"github.com/annals-project/annals/domain/instant"
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
