package recall

import (
	"strings"
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
	// ChangeEvidence: it states that something is no longer as it was.
	ChangeEvidence
)

// Has reports whether all of some traits are set.
func (t Traits) Has(all Traits) bool { return t&all == all }

// traitWords are the words that show a trait. A word shows one.
var traitWords = map[Traits]string{
	FirstPerson:  `i i'm i've i'd i'll me my mine myself we we're we've we'd we'll us our ours ourselves im ive`,
	SecondPerson: `you you're you've you'd you'll your yours yourself yourselves`,
	TimeEvidence: `yesterday today tonight tomorrow last next ago since week weeks weekend weekends month months year years day days
		morning afternoon evening monday tuesday wednesday thursday friday saturday sunday
		january february march april may june july august september october november december`,
	ChangeEvidence: `now currently recently nowadays anymore longer new newer newest latest instead replaced replacing
		changed change changing switched switching moved moving migrated relocated transferred updated update updating upgraded
		improved increased decreased reduced raised lowered dropped grown grew reached bumped cut down back
		extended postponed delayed rescheduled became turned stopped quit finished started began cancelled canceled closed left
		sold joined adopted gave took decided`,
	NumberEvidence: `one two three four five six seven eight nine ten eleven twelve dozen hundred thousand million couple once twice thrice several few both`,
}

var traitByWord = func() map[string]Traits {
	traits := make(map[string]Traits)
	for trait, list := range traitWords {
		for word := range wordSet(list) {
			traits[word] |= trait
		}
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

// longestTraitWord is the length of the longest word of traitWords, in bytes.
const longestTraitWord = 11

func traitsOfWord(word string, first bool) Traits {
	var traits Traits
	if word[0] >= '0' && word[0] <= '9' {
		traits |= NumberEvidence
		if len(word) == 4 && (word[:2] == "19" || word[:2] == "20") {
			traits |= TimeEvidence
		}
		return traits
	}
	var buffer [longestTraitWord]byte
	folded := buffer[:0]
	for _, r := range word {
		if len(folded) == longestTraitWord || r >= utf8.RuneSelf && r != '’' {
			folded = nil
			break
		}
		switch {
		case r == '’':
			r = '\''
		case r >= 'A' && r <= 'Z':
			r += 'a' - 'A'
		}
		folded = append(folded, byte(r))
	}
	traits |= traitByWord[string(folded)]
	r, size := utf8.DecodeRuneInString(word)
	if !first && unicode.IsUpper(r) && size < len(word) && traits&^ChangeEvidence == 0 { // a New in New York is a name
		traits |= NameEvidence
	}
	return traits
}

// endsInQuestion reports whether the first line of a text ends in a question mark.
func endsInQuestion(text string) bool {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.HasSuffix(strings.TrimRight(line, " \t\r\"”'’)"), "?")
}
