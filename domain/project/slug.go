package project

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/annals-project/annals/domain/limit"
)

// Slug derives a slug from a name: lower-case ASCII letters and digits, with one dash for each run
// of other characters. A name without an ASCII letter or digit gives "project".
func Slug(name string) string {
	var b strings.Builder
	gap := false
	for _, r := range strings.ToLower(name) {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			if gap && b.Len() > 0 {
				b.WriteByte('-')
			}
			gap = false
			b.WriteRune(r)
			continue
		}
		gap = true
	}
	if b.Len() == 0 {
		return "project"
	}
	return b.String()
}

// FreeSlug is the slug of a name, with "-2", "-3" … appended if it is taken.
func FreeSlug(name string, taken func(slug string) bool) string {
	slug := Slug(name)
	for n := 2; taken(slug); n++ {
		slug = Slug(name) + "-" + strconv.Itoa(n)
	}
	return slug
}

// ValidName reports whether a text can name a project: up to limit.ProjectName characters, at least
// two of them letters or digits.
func ValidName(name string) bool {
	characters, telling := 0, 0
	for _, r := range name {
		characters++
		if r == 0 {
			return false
		}
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			telling++
		}
	}
	return characters <= limit.ProjectName && telling >= 2
}
