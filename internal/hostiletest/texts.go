package hostiletest

import (
	"math/rand/v2"
	"strings"
)

// lexicon are words and marks that the built-in extractor handles. Sentences of them reach its
// rare branches.
var lexicon = strings.Fields(`ok okay thanks sure yes no please rule note remember always never must should not don't won't it its they
	them this that those these he she we i my our your his her who which what when where if because until since before after but and or
	is are was were am be been isn't aren't like likes love loves hate prefer prefers moved lives live works work changed renamed left
	joined bought sold has have had own owns want wants use uses used today tomorrow yesterday monday friday next last week month year
	in on at of to from with by for as than the a an every each all no one somebody ana ben berlin project team deadline 1 2 3rd 2024-02-30 9am
	25:61 Q3 Dr. e.g. U.S. http://a.b -- - — … "" '' ( ) [ ] : ; , . ! ? ?! ... @ana #tag *bold* 1. • € 🙂 ’s 's`)

// corners are texts that failed once, or are close to a bound.
var corners = []string{
	"ok, it", "Thanks, it", "Rule: it", "ok,it", "ok, it.", "Note: it", "Rule:", "Rule: .", "ok, ", "it", "It.", ",", ":", "\"", "'s", "- it", "if it", "always it", "must",
	"my", "My is", "I moved", "I moved to", "Rule: never", "from to", "not", "remember that it", "…", "— it", "\u200b", "\u00a0", "\ufeffok, it", "a\u0301\u0301\u0301",
	"HTTP/1.1 417 Expectation Failed\r\n\r\n", "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request",
	"'; drop table datapoints.items; --", "{{7*7}}", "%s%n%d", "\x7f\x01\x02", "\U0010ffff", "\ufffd", "İstanbul ǅ ﬁ ß", "\u202eevil", strings.Repeat("a", 5000),
	strings.Repeat("it ", 400), strings.Repeat("ok, ", 300) + "it",
	strings.Repeat("(", 500), strings.Repeat("I like tea. ", 200),
	"2024-13-45T99:99:99Z", "on 31 February",
	"0000-00-00", "in 99999999999999999999 days", "next next next friday", "1e999999", "-0", "NaN", "null", "true",
}

// Text returns a random text: one of the corners, or words of the extractor's lexicon in any
// order.
func Text(rng *rand.Rand) string {
	if rng.IntN(3) == 0 {
		return corners[rng.IntN(len(corners))]
	}
	var b strings.Builder
	for range 1 + rng.IntN(14) {
		word := lexicon[rng.IntN(len(lexicon))]
		if rng.IntN(6) == 0 {
			word = strings.ToUpper(word[:1]) + word[1:]
		}
		b.WriteString(word)
		b.WriteString([]string{" ", " ", " ", ", ", ": ", ". ", "", "\n", " - "}[rng.IntN(9)])
	}
	return b.String()
}
