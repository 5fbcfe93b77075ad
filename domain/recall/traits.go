package recall

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Traits say what kind of thing a passage says, as far as ranking asks for it. They are kept in the index with the passage:
// a bit never changes its meaning.
type Traits uint8

// The traits of a passage.
const (
	// Asks: its last sentence, captions and the like aside, is a question.
	Asks Traits = 1 << iota
	// TellsTime: it names a day, a month, a year or a span of time.
	TellsTime
	// TellsNumber: it holds a number, in digits or in words.
	TellsNumber
	// TellsName: it holds a word with a capital where no sentence begins.
	TellsName
	// FirstPerson: whoever wrote it speaks of themselves.
	FirstPerson
	// SecondPerson: whoever wrote it speaks to somebody.
	SecondPerson
)

// Has says whether all of some traits are there.
func (t Traits) Has(all Traits) bool { return t&all == all }

// kindsOfWords are the words that a trait is told by. A word is of one kind.
var kindsOfWords = map[Traits]string{
	FirstPerson:  `i i'm i've i'd i'll me my mine myself we we're we've we'd we'll us our ours ourselves im ive`,
	SecondPerson: `you you're you've you'd you'll your yours yourself yourselves`,
	TellsTime: `yesterday today tonight tomorrow last next ago since week weeks weekend weekends month months year years day days
		morning afternoon evening monday tuesday wednesday thursday friday saturday sunday
		january february march april may june july august september october november december`,
	TellsNumber: `one two three four five six seven eight nine ten eleven twelve dozen hundred thousand million couple once twice thrice several few both`,
}

var traitOfWord = func() map[string]Traits {
	traits := make(map[string]Traits)
	for trait, list := range kindsOfWords {
		for word := range wordSet(list) {
			traits[word] |= trait
		}
	}
	return traits
}()

// TraitsOf reads the traits of a passage in one pass.
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
	if asks(text) {
		traits |= Asks
	}
	return traits
}

// wordEnd is where the word that begins at i ends: letters, digits, and apostrophes between them.
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

// longestKind is the length of the longest word of kindsOfWords, in bytes.
const longestKind = 10

func traitsOfWord(word string, first bool) Traits {
	var traits Traits
	if word[0] >= '0' && word[0] <= '9' {
		traits |= TellsNumber
		if len(word) == 4 && (word[:2] == "19" || word[:2] == "20") {
			traits |= TellsTime
		}
		return traits
	}
	var buffer [longestKind]byte
	folded := buffer[:0]
	for _, r := range word {
		if len(folded) == longestKind || r >= utf8.RuneSelf && r != '’' {
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
	traits |= traitOfWord[string(folded)]
	if r, size := utf8.DecodeRuneInString(word); !first && unicode.IsUpper(r) && size < len(word) && traits == 0 {
		traits |= TellsName
	}
	return traits
}

// asks says whether a text ends in a question: the first line does, where the others say what came with it.
func asks(text string) bool {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.HasSuffix(strings.TrimRight(line, " \t\r\"”'’)"), "?")
}
