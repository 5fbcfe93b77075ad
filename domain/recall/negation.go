package recall

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

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
