package organization

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// maxName is the most characters of an organization's name, as of a project's.
const maxName = 255

// ValidName reports whether an organization may be called that: up to 255 characters, at least two of them letters or digits, no
// control characters, no space at either end, and no id, which commands take as well as a name.
func ValidName(name string) bool {
	telling := 0
	for _, r := range name {
		if unicode.IsControl(r) {
			return false
		}
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			telling++
		}
	}
	_, err := uuid.Parse(name)
	return err != nil && utf8.ValidString(name) && utf8.RuneCountInString(name) <= maxName && telling >= 2 && strings.TrimSpace(name) == name
}
