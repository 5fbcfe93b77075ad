package recall

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Traits describe a passage for ranking. The index stores them: a bit never changes its meaning.
type Traits uint8

// The traits of a passage.
const (
	// IsQuestion: its first line ends in a question mark; further lines are captions and the like.
	IsQuestion Traits = 1 << iota
	// TimeEvidence: it names a day, a month, a year or a span of time.
	TimeEvidence
	// NumberEvidence: it contains a number, in digits or in words.
	NumberEvidence
	// NameEvidence: it contains a capitalized word that does not begin a sentence.
	NameEvidence
	// FirstPerson: the author speaks of themselves.
	FirstPerson
	// SecondPerson: the author addresses somebody.
	SecondPerson
	// Negates: it denies something.
	Negates
)

// Has reports whether all of some traits are set.
func (t Traits) Has(all Traits) bool { return t&all == all }

// traitWords are the words that show a trait, besides months and days of the week. A word shows one. A verb after an
// apostrophe does not count as part of a word: "I'm" is "i".
var traitWords = []struct {
	trait Traits
	words string
}{
	{FirstPerson, `i me my mine myself we us our ours ourselves im ive`},
	{SecondPerson, `you your yours yourself yourselves`},
	{TimeEvidence, `day days week weeks weekend weekends month months year years morning afternoon evening`},
	{TimeEvidence, `yesterday today tonight tomorrow last next ago since`},
	{NumberEvidence, `one two three four five six seven eight nine ten eleven twelve dozen hundred thousand million`},
	{NumberEvidence, `couple once twice thrice several few both`},
}

var traitByWord = func() map[string]Traits {
	traits := make(map[string]Traits)
	for _, list := range traitWords {
		for word := range strings.FieldsSeq(list.words) {
			traits[word] = list.trait
		}
	}
	for month := time.January; month <= time.December; month++ {
		traits[strings.ToLower(month.String())] = TimeEvidence
	}
	for day := time.Sunday; day <= time.Saturday; day++ {
		traits[strings.ToLower(day.String())] = TimeEvidence
	}
	return traits
}()

func wordSet(list string) map[string]struct{} {
	set := make(map[string]struct{})
	for w := range strings.FieldsSeq(list) {
		set[w] = struct{}{}
	}
	return set
}

// TraitsOf returns the traits of a passage, read in one pass.
func TraitsOf(text string) Traits {
	var traits Traits
	first := true // a sentence begins here
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			switch r {
			case '.', '!', '?', '\n', ':', '[', '"', '“':
				first = true
			}
			i += size
			continue
		}
		end := wordEnd(text, i)
		traits |= traitsOfWord(text[i:end], first)
		if !traits.Has(Negates) && negatesAt(text, i, end, first) {
			traits |= Negates
		}
		first, i = false, end
	}
	if endsInQuestion(text) {
		traits |= IsQuestion
	}
	return traits
}

// wordEnd returns where the word that begins at i ends: letters, digits, and apostrophes between
// them.
func wordEnd(text string, i int) int {
	for i < len(text) {
		r, size := utf8.DecodeRuneInString(text[i:])
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '\'' && r != '’' {
			break
		}
		i += size
	}
	return i
}

// longestTraitWord is the length of the longest word of traitByWord, in bytes.
const longestTraitWord = 10

func traitsOfWord(word string, first bool) Traits {
	if word[0] >= '0' && word[0] <= '9' {
		if len(word) == 4 && (word[:2] == "19" || word[:2] == "20") {
			return NumberEvidence | TimeEvidence
		}
		return NumberEvidence
	}
	if traits := traitByWord[string(folded(word, make([]byte, 0, longestTraitWord)))]; traits != 0 {
		return traits
	}
	if r, size := utf8.DecodeRuneInString(word); !first && unicode.IsUpper(r) && size < len(word) {
		return NameEvidence
	}
	return 0
}

// folded appends a word of ASCII to a buffer in lower case, up to its apostrophe. It returns nothing for a word that
// does not fit, or has other letters.
func folded(word string, buffer []byte) []byte {
	for _, r := range word {
		switch {
		case r == '\'' || r == '’':
			return buffer
		case r >= utf8.RuneSelf || len(buffer) == cap(buffer):
			return nil
		case r >= 'A' && r <= 'Z':
			r += 'a' - 'A'
		}
		buffer = append(buffer, byte(r))
	}
	return buffer
}

// endsInQuestion reports whether the first line of a text ends in a question mark.
func endsInQuestion(text string) bool {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.HasSuffix(strings.TrimRight(line, " \t\r\"”'’)"), "?")
}
