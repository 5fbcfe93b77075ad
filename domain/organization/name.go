package organization

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/limit"
)

// ValidName reports whether a text can name an organization: up to limit.OrganizationName
// characters, at least two of them letters or digits, without control characters, without a space
// at either end, and not an id, since commands take a name or an id.
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
	return err != nil && utf8.ValidString(name) && utf8.RuneCountInString(name) <= limit.OrganizationName &&
		telling >= 2 &&
		strings.TrimSpace(name) == name
}
