package recall

import "unicode/utf8"

// Tokens returns what a document costs of the budget: a quarter of the code points of its content
// and excerpts, rounded up.
func Tokens(content string, excerpts ...string) int {
	points := utf8.RuneCountInString(content)
	for _, e := range excerpts {
		points += utf8.RuneCountInString(e)
	}
	return (points + 3) / 4
}

// LeastTokens returns the least that a text of so many bytes of UTF-8 can cost.
func LeastTokens(bytes int64) int64 { return ((bytes+3)/4 + 3) / 4 }
