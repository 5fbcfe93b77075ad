package recall

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"time"
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

// States returns what a text of at most StatedText bytes states, with its outline.
func (a *Analyzer) States(text string) (States, Outline) {
	p := a.read(text)
	defer a.kept.keep(text, p)
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

// negationWords are the words that deny what a sentence states, in the languages with stems. "Mai" of Italian is a
// month elsewhere, and is none.
var negationWords = wordSet(`not no none never neither nor nobody nothing without cannot isnt arent wasnt werent dont
	doesnt didnt cant couldnt wont wouldnt shouldnt hasnt havent hadnt
	nicht kein keine keinen keinem keiner keines nie niemals niemand nichts ohne
	pas jamais aucun aucune sans non
	nunca nadie nada ningún ninguna ninguno sin
	nessuno nessuna niente nulla senza
	não nem nenhum nenhuma ninguém sem
	niet geen nooit niemand zonder
	inte ej aldrig ingen inget inga utan
	не нет ни никогда никто ничего без`)

// foldedNegations are the same as terms.
var foldedNegations = func() map[string]struct{} {
	var n normalizer
	words := make(map[string]struct{}, len(negationWords))
	for word := range negationWords {
		words[foldedWord(&n, word)] = struct{}{}
	}
	return words
}()

// longestNegation is the length of the longest of them, in bytes.
var longestNegation = func() (most int) {
	for word := range negationWords {
		most = max(most, len(word))
	}
	return most
}()

// negates reports whether a word negates, by itself or as a contraction. low is the word in lower case.
func negates(low string) bool {
	if strings.HasSuffix(low, "n't") || strings.HasSuffix(low, "n’t") {
		return true
	}
	if len(low) > longestNegation {
		return false
	}
	_, is := negationWords[low]
	return is
}

// negatesAt reports whether the word from i to end of a text negates. One with an upper-case first letter within a
// sentence is part of a name, and "no." before a digit is a number.
func negatesAt(text string, i, end int, first bool) bool {
	word := text[i:end]
	initial, size := utf8.DecodeRuneInString(word)
	if !first && unicode.IsUpper(initial) && (size == len(word) || word != strings.ToUpper(word)) {
		return false
	}
	if !mayNegate(word) || !negates(strings.ToLower(word)) {
		return false
	}
	next, _ := utf8.DecodeRuneInString(strings.TrimLeft(text[end:], ". "))
	return !strings.EqualFold(word, "no") || !unicode.IsDigit(next)
}

// mayNegate reports whether a word can be one that negates, by its first letter or its end: most texts are read for it.
func mayNegate(word string) bool {
	switch word[0] {
	case 'n', 'N', 'k', 'K', 'p', 'P', 'j', 'J', 'a', 'A', 's', 'S', 'g', 'G', 'z', 'Z', 'i', 'I', 'e', 'E', 'u', 'U', 'o',
		'O', 'w', 'W', 'c', 'C', 'd', 'D', 'h', 'H':
		return len(word) <= longestNegation
	}
	return word[0] >= utf8.RuneSelf || strings.HasSuffix(word, "n't") || strings.HasSuffix(word, "n’t")
}

// notNegated are the phrases in which a negation of a question denies nothing, between words.
var notNegated = strings.Split(`or not|not only|not just|why not|if not|last but not least|no doubt|no matter|never mind|
no problem|oder nicht|warum nicht|nicht nur|nicht wahr|ou non|ou pas|pourquoi pas|n'est-ce pas|est ce pas|non seulement|
o no|por qué no|no solo|no sólo|o non|perché no|non solo|ou não|por que não|não só|of niet|waarom niet|niet alleen|
eller inte|eller ej|varför inte|inte bara|или нет|почему нет|не только`, "|")

// asksNegated reports whether a question asks for what is not: "Who is not allergic?". A contraction that begins it
// asks whether something is ("Isn't Ana allergic?"), as one after a comma does.
func asksNegated(text string) bool {
	text = cut(text, queryBytes)
	spaced := " "
	var found []string // the words that negate
	first, comma := true, false
	short := false // the word before may be an abbreviation
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			first, comma = first || beginsSentence(r) && (r != '.' || !short), comma || r == ','
			i += size
			continue
		}
		end := wordEnd(text, i)
		low := strings.ToLower(text[i:end])
		contracted := strings.ContainsAny(low, "'’")
		if negatesAt(text, i, end, first) && (!contracted || !first && !comma) {
			found = append(found, low)
		}
		spaced += low + " "
		initial, _ := utf8.DecodeRuneInString(text[i:])
		short = end-i <= 3 && unicode.IsUpper(initial)
		first, comma, i = false, false, end
	}
	for _, phrase := range notNegated {
		if phrase = strings.TrimSpace(phrase); !strings.Contains(spaced, " "+phrase+" ") {
			continue
		}
		for word := range strings.FieldsSeq(phrase) {
			if at := slices.Index(found, word); at >= 0 {
				found = slices.Delete(found, at, at+1)
				break
			}
		}
	}
	return len(found) > 0
}

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
