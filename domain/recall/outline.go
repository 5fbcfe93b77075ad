package recall

import "hash/fnv"

// Outline is what shows of a short text whether it can be a statement on the same thing as another one, so that few
// texts are read to find out. A table can hold it: hashes of the text's ends and, in the lowest bits, outlineOf,
// outlineLong and outlineCorrects. It is 0 if nothing is known.
type Outline int64

const (
	// outlineCorrects: it may correct something.
	outlineCorrects Outline = 1 << iota
	// outlineLong: it has so many words that it has endWords of them at one end in common with each statement of the same
	// thing, which differs in one stretch of at most frameStretch words.
	outlineLong
	// outlineKnown is set in each.
	outlineKnown
)

// endWords are how many words of each end have a hash together. Above the three bits, an outline has four hashes of
// endBits: of the last word, the first one, the last endWords and the first endWords.
const (
	endWords = 3
	endBits  = 15
)

// MayBeOn reports whether a text can replace or correct an earlier one. Two statements of one thing begin or end with
// the same words.
func (o Outline) MayBeOn(earlier Outline) bool {
	if o == 0 || earlier == 0 || o&outlineCorrects != 0 {
		return true
	}
	ends := (o ^ earlier) >> 3
	if (o|earlier)&outlineLong != 0 {
		ends >>= 2 * endBits
	}
	const end = 1<<endBits - 1
	return ends&end == 0 || ends>>endBits&end == 0
}

// outline returns the outline of a text.
func (p *reading) outline() Outline {
	words, sentence, corrects := make([]string, 0, len(p.items)), 0, false
	endSentence := func() {
		corrects = corrects || hasSign(words[sentence:]) || mayRenew(words[sentence:])
		sentence = len(words)
	}
	for i := range p.items {
		if item := &p.items[i]; item.isCompared() {
			if item.initial {
				endSentence()
			}
			words = append(words, item.word)
		}
	}
	endSentence()
	n, o := len(words), Outline(0)
	if n == 0 {
		return 0
	}
	for _, end := range [][]string{
		words[:min(endWords, n)], words[max(n-endWords, 0):], words[:1], words[n-1:],
	} {
		o = o<<endBits | endHash(end)
	}
	o = o<<3 | outlineKnown
	if n >= frameStretch+2*endWords {
		o |= outlineLong
	}
	if corrects {
		o |= outlineCorrects
	}
	return o
}

func endHash(words []string) Outline {
	h := fnv.New32a()
	for _, word := range words {
		h.Write([]byte(word))
		h.Write([]byte{0})
	}
	return Outline(h.Sum32() >> (32 - endBits))
}

// mayRenew reports whether a sentence may have a new instance of what some question asks for.
func mayRenew(words []string) bool {
	for _, word := range words[:max(len(words)-1, 0)] {
		if _, renews := renewing[word]; renews {
			return true
		}
	}
	return false
}
