package recall

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// States are hashes of what a text states: the same in each process, so that a table can hold them. Two texts that are
// written to have the same can only be found by trying.
type States struct {
	// Stems are those of all words but stop words, with the negations; Exact are the names, numbers, ids and negations.
	Stems, Exact uint64
}

// StatedText is the longest text, in bytes, of which it is noted what it states.
const StatedText = 1024

// States returns what a text states, with its outline.
func (a *Analyzer) States(text string) (States, Outline) {
	p := a.read(text)
	defer p.release()
	negations := Negations(text)
	return States{
		Stems: hashOf(append(slices.Clip(p.stems()), negations...)), Exact: hashOf(append(Exact(text), negations...)),
	}, p.outline()
}

// hashBits is how many bits a hash has: a table holds it as a signed number.
const hashBits = 56

// hashOf returns the same for the same set of terms, and never 0.
func hashOf(terms []string) uint64 {
	slices.Sort(terms)
	var joined []byte
	for _, t := range slices.Compact(terms) {
		joined = append(append(joined, t...), 0)
	}
	sum := sha256.Sum256(joined)
	return max(binary.BigEndian.Uint64(sum[:])>>(64-hashBits), 1)
}

// negations change what a text states, although they are stop words.
var negations = wordSet(`not no never none neither nor without cannot nicht kein nie pas jamais non nunca niet inte не`)

// Negations returns the words of a text that negate, each as often as it occurs, so that texts which differ by one do
// not state the same. A contraction counts as "not".
func Negations(text string) (found []string) {
	eachWord(text, func(word string, _ bool) {
		low := strings.ToLower(word)
		switch _, negates := negations[low]; {
		case strings.HasSuffix(low, "n't"), strings.HasSuffix(low, "n’t"), low == "cannot":
			found = append(found, "not")
		case negates:
			found = append(found, low)
		}
	})
	return found
}

// Exact returns the words of a text that name something: numbers, ids, and names, which are capitalized within a
// sentence. Texts that differ in one are about different things.
func Exact(text string) (found []string) {
	eachWord(text, func(word string, first bool) {
		initial, _ := utf8.DecodeRuneInString(word)
		if !first && unicode.IsUpper(initial) || strings.ContainsFunc(word, unicode.IsDigit) {
			found = append(found, strings.ToLower(word))
		}
	})
	slices.Sort(found)
	return slices.Compact(found)
}

// WordsOf returns the words of a text in lower case, without what is between them. They are the same for each normal
// form of the text.
func WordsOf(text string) (found []string) {
	eachWord(norm.NFKC.String(text), func(word string, _ bool) { found = append(found, strings.ToLower(word)) })
	return found
}

// eachWord calls yield for each word of a text; first reports whether it begins a sentence.
func eachWord(text string, yield func(word string, first bool)) {
	first := true
	for i := 0; i < len(text); {
		end := wordEnd(text, i)
		if end == i {
			r, size := utf8.DecodeRuneInString(text[i:])
			first = first || beginsSentence(r)
			i += size
			continue
		}
		yield(text[i:end], first)
		first, i = false, end
	}
}

// beginsSentence reports whether a sentence begins after a character that belongs to no word.
func beginsSentence(r rune) bool {
	switch r {
	case '.', '!', '?', '\n', ':', '[', '"', '“', '。':
		return true
	default:
		return false
	}
}
