package recall

import (
	"hash/fnv"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Wording is a short text as it is compared with others on the same thing. It is analysed when it is first needed: few
// texts are alike.
type Wording struct {
	text, author string
	of           *Wordings
	// corrects are the words of the question in each sentence that corrects something.
	corrects []Words
	// isRead reports that the text was analysed, amendRead that mayAmend, whether it may have a sign of a correction, is
	// known.
	isRead, mayAmend, amendRead bool
	// words are those of the text, folded, holds which words of the question each of them is, and relates which of them
	// relate others to each other: stop words but fillers.
	words   []string
	holds   []Words
	relates []bool
	// ofAuthor reports that it is in the first person: about its author.
	ofAuthor bool
}

// WordingBytes is the longest text, in bytes, that has a Wording as a whole, and MostWordings how many candidates, best
// first, are compared by theirs.
const (
	WordingBytes = 1024
	MostWordings = 64
)

// frameStretch is the most words in which two statements of one thing differ.
const frameStretch = 6

// Wordings makes the wordings of texts for one question.
type Wordings struct {
	analyzer *Analyzer
	terms    map[string]Words
}

// Wordings prepares the comparison of texts for a question that the analyzer made.
func (a *Analyzer) Wordings(q *Question) *Wordings {
	w := &Wordings{analyzer: a, terms: make(map[string]Words, len(q.Terms))}
	for _, t := range q.Terms {
		if t.Kind <= Stem {
			w.terms[t.Text] |= 1 << t.For
		}
	}
	return w
}

// Of returns the wording of a text of an author.
func (w *Wordings) Of(text, author string) *Wording {
	return &Wording{text: text, author: author, of: w}
}

// read analyses the text.
func (w *Wording) read() {
	if w.isRead {
		return
	}
	w.isRead = true
	p := w.of.analyzer.read(w.text)
	defer p.release()
	speaks := p.evidence.text()
	w.words, w.holds = make([]string, 0, len(p.items)), make([]Words, 0, len(p.items))
	sentence := 0
	for i := range p.items {
		item := &p.items[i]
		switch held := w.of.held(item, speaks); {
		case item.isCompared():
			if item.initial {
				w.endSentence(sentence)
				sentence = len(w.words)
			}
			w.words, w.holds = append(w.words, item.word), append(w.holds, held)
			w.relates = append(w.relates, item.relates(speaks))
			if _, first := firstPersons[item.spelled]; first {
				w.ofAuthor = true
			}
		case len(w.holds) > 0: // a form or a part of the word before
			w.holds[len(w.holds)-1] |= held
		}
	}
	w.endSentence(sentence)
}

// isCompared reports whether a token is a word of a wording, and no form or part of one.
func (i *item) isCompared() bool { return i.kind == aWord || i.kind == aUnit || i.kind == aSymbol }

// held returns the words of the question that a token of a text is, by itself or its stem in the language of the text.
func (w *Wordings) held(i *item, speaks spoken) Words {
	held := w.terms[i.word]
	if l, _ := speaks.of(i.alphabet); l != languageCount && !i.short && !i.stops.has(l) {
		for _, stem := range i.in(l) {
			held |= w.terms[stem]
		}
	}
	return held
}

// relates reports whether a word relates others to each other: a stop word that is no filler.
func (i *item) relates(speaks spoken) bool {
	l, _ := speaks.of(i.alphabet)
	_, fills := fillers[i.word]
	return i.stops.has(l) && !fills
}

// fillers are stop words that may come and go with the value of a statement.
var fillers = wordSet(`a an the now again still just ein eine jetzt un une le la el il een nu`)

// endSentence notes the sentence that begins at a word and ends here, if it corrects something.
func (w *Wording) endSentence(from int) {
	if hasSign(w.words[from:]) || hasRenewed(w.words[from:], w.holds[from:]) {
		w.corrects = append(w.corrects, union(w.holds[from:]))
	}
}

func union(sets []Words) (all Words) {
	for _, s := range sets {
		all |= s
	}
	return all
}

// firstPersons are the words of an author about themselves, as they are spelled, in the languages with stems.
var firstPersons = wordSet(`i me my mine myself we us our ours im ive ich mich mir mein meine meinen meinem meiner wir
	uns unser unsere unseren unserem je moi mon ma mes nous notre nos yo mi mis nosotros nuestro nuestra io mio mia noi nostro
	nostra eu meu minha nós nosso nossa ik mij mijn wij ons onze jag mig min mitt mina vi oss vår vårt våra
	я мне мой моя моё мы нас наш наша наше`)

// relation is what a later text is to an earlier one.
type relation uint8

const (
	// unrelated texts are on different things, or nothing shows that they are on one.
	unrelated relation = iota
	// replaces takes the place of the earlier one, corrects puts it below.
	replaces
	corrects
)

// relation returns what a later candidate is to an earlier one: both state something of one thing, or the later one
// corrects the earlier.
//
// Two texts state something of one thing if they differ in one stretch of at most frameStretch words, and what they
// have in common holds every word of the question that either has, one of them no stop word. A text corrects another if
// it has a sign of that in a sentence with all words of the question that the other has. A text in the first person is
// about its author.
func (q *Question) relation(p, earlier *Placed) relation {
	later, before := p.Wording, earlier.Wording
	had, has := earlier.Held&^q.Denials, p.Held&^q.Denials
	if later == nil || before == nil || had&q.Content == 0 || earlier.ByAsker && !p.ByAsker ||
		!p.HeldAnywhere.Contains(earlier.HeldAnywhere&^q.Denials) {
		return unrelated
	}
	alike := later.mayDifferInOne(before)
	if !alike && !later.mayCorrect() {
		return unrelated
	}
	later.read()
	before.read()
	if (before.ofAuthor || later.ofAuthor) && before.author != later.author {
		return unrelated
	}
	// Where a question asks for what is not, what affirms replaces what denies only if nothing else differs.
	onlyDenial := q.Negates && earlier.Negates && !p.Negates
	related := alike && later.differsInOne(before, had|has, onlyDenial)
	for _, sentence := range later.corrects {
		related = related || sentence.Contains(had)
	}
	switch {
	case !related:
		return unrelated
	case had == has:
		return replaces
	default:
		return corrects
	}
}

// differsInOne reports whether two texts differ in one short stretch, outside of which they have some words of the
// question. With onlyDenial the stretch is a denial and nothing else.
func (w *Wording) differsInOne(before *Wording, held Words, onlyDenial bool) bool {
	a, b := before.words, w.words
	from, same := 0, min(len(a), len(b))
	for from < same && a[from] == b[from] {
		from++
	}
	end := 0
	for end < same-from && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	inA, inB := len(a)-from-end, len(b)-from-end
	if inA == 0 && inB == 0 || max(inA, inB) > frameStretch {
		return false
	}
	if onlyDenial && (!denies(a[from:len(a)-end]) || !denies(b[from:len(b)-end])) {
		return false
	}
	if !onlyDenial && !slices.Equal(relating(before.words, before.relates, from, end), relating(b, w.relates, from, end)) {
		return false // "is with Petra" and "is due on 3 May" are about two things
	}
	common := union(before.holds[:from]) | union(before.holds[len(a)-end:])
	return common.Contains(held)
}

// denies reports whether all words of a stretch negate.
func denies(stretch []string) bool {
	return !slices.ContainsFunc(stretch, func(word string) bool {
		_, negates := foldedNegations[word]
		return !negates
	})
}

// relating returns the words of a stretch that relate others to each other.
func relating(words []string, relates []bool, from, end int) (found []string) {
	for i := from; i < len(words)-end; i++ {
		if relates[i] {
			found = append(found, words[i])
		}
	}
	return found
}

// mayDifferInOne is false for most texts of which differsInOne is false, without analysing them.
func (w *Wording) mayDifferInOne(before *Wording) bool {
	a, b := before.text, w.text
	from, same := 0, min(len(a), len(b))
	for from < same && lower(a[from]) == lower(b[from]) {
		from++
	}
	end := 0
	for end < same-from && lower(a[len(a)-1-end]) == lower(b[len(b)-1-end]) {
		end++
	}
	return fewWords(a[from:len(a)-end]) && fewWords(b[from:len(b)-end])
}

// lower returns an ASCII letter in lower case.
func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// fewWords reports whether a stretch may be of at most frameStretch words. The words at its ends may be parts of words.
func fewWords(stretch string) bool {
	words := 0
	inWord := false
	for i := range len(stretch) {
		isSpace := stretch[i] <= ' '
		if !isSpace && !inWord {
			if words++; words > frameStretch {
				return false
			}
		}
		inWord = !isSpace
	}
	return true
}

// mayCorrect is false for most texts without a sign of a correction, without analysing them.
func (w *Wording) mayCorrect() bool {
	if !w.amendRead {
		w.amendRead, w.mayAmend = true, mayCorrect(w.text)
	}
	return w.mayAmend
}

func mayCorrect(text string) bool {
	word := make([]byte, 0, termBytes)
	for _, r := range text + " " {
		switch {
		case r >= utf8.RuneSelf && !unicode.IsPunct(r): // only the analysis knows the word
			return true
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
			if len(word) < cap(word) {
				word = append(word, lower(byte(r)))
			}
		case r != '\'':
			_, begins := correctionSigns[string(word)]
			if _, renews := renewing[string(word)]; begins || renews {
				return true
			}
			word = word[:0]
		}
	}
	return false
}

// correctionSigns show that a sentence replaces what was stated before. A word "…" is any words.
var correctionSigns = signsOf(`correction|corrected|update|no longer|anymore|no more|instead|rather than|moved to|
	moved … to|changed to|changed … to|switched to|switched … to|renamed to|rescheduled to|postponed to|replaces|
	replaced by|replaced … with|not … but|
	korrektur|berichtigung|anderung|ab sofort|geandert|nicht mehr|kein … mehr|keine … mehr|stattdessen|anstelle|
	verschoben auf|verlegt auf|umgezogen nach|gezogen nach|nicht … sondern|
	rectification|ne … plus|nest plus|na plus|plutot que|au lieu|deplace a|deplacee a|demenage a|pas … mais|
	correccion|ya no|en lugar|en vez|trasladado a|trasladada a|se mudo a|se movio a|no … sino|
	correzione|non … piu|invece|al posto|spostato a|spostata a|spostato alle|spostata alle|trasferito a|trasferita a|
	non … bensi|
	correcao|ja nao|nao … mais|em vez|mudou para|mudado para|mudada para|transferido para|transferida para|nao … mas|
	nao … e sim|
	correctie|niet meer|geen … meer|in plaats|verplaatst naar|verhuisd naar|verschoven naar|niet … maar|
	rattelse|korrigering|inte langre|i stallet|istallet|flyttat till|flyttad till|flyttas till|inte … utan|
	исправление|поправка|больше не|уже не|вместо|перенесен на|перенесена на|перенесено на|переехал в|переехала в`)

// anyWords stands for any words between those of a sign, fewer than signGap: a text may repeat the first of them.
const (
	anyWords = "…"
	signGap  = 16
)

// signsOf reads signs that | separates, by their first word.
func signsOf(list string) map[string][][]string {
	signs := make(map[string][][]string)
	for sign := range strings.SplitSeq(list, "|") {
		if words := strings.Fields(sign); len(words) > 0 {
			signs[words[0]] = append(signs[words[0]], words[1:])
		}
	}
	return signs
}

// hasSign reports whether a sentence has the sign of a correction.
func hasSign(sentence []string) bool {
	for i, word := range sentence {
		for _, rest := range correctionSigns[word] {
			if follows(sentence[i+1:], rest) {
				return true
			}
		}
	}
	return false
}

// renewing are the words for "new" before what has a new value, in the languages with stems.
var renewing = wordSet(`new neue neuer neues neuen nouveau nouvelle nuevo nueva nuovo nuova novo nova nieuwe nya nytt
	новый новая новое`)

// hasRenewed reports whether a sentence has a new instance of what the question asks for: "the new gate code".
func hasRenewed(words []string, holds []Words) bool {
	for i, word := range words[:max(len(words)-1, 0)] {
		if _, renews := renewing[word]; renews && holds[i] == 0 && holds[i+1] != 0 {
			return true
		}
	}
	return false
}

// follows reports whether the words of a sign follow at once, or after any words where it allows them. "Not only … but"
// adds, and replaces nothing.
func follows(words, sign []string) bool {
	for i, want := range sign {
		if want == anyWords {
			if len(words) == 0 {
				return false
			}
			if _, adds := onlyWords[words[0]]; adds {
				return false
			}
			for n := 1; n < min(len(words), signGap); n++ {
				if follows(words[n:], sign[i+1:]) {
					return true
				}
			}
			return false
		}
		if i >= len(words) || words[i] != want {
			return false
		}
	}
	return true
}

// onlyWords follow "not" in "not only".
var onlyWords = wordSet(`only just nur seulement solo solamente soltanto so apenas alleen bara endast только`)

// asksHistory are the phrases of a question for what was before, folded.
var asksHistory = slices.Concat(
	phrases(" ", `first before originally previously formerly earlier`, " "),
	phrases(" ", `fruher zuerst vorher ursprunglich ehemals damals`, " "),
	phrases(" ", `avant auparavant autrefois antes anteriormente originalmente primero`, " "),
	phrases(" ", `prima inizialmente precedentemente antigamente`, " "),
	phrases(" ", `vroeger eerder eerst oorspronkelijk tidigare forut forst ursprungligen`, " "),
	phrases(" ", `раньше сначала прежде ранее`, " "),
	[]string{" used to ", " history of ", " au debut ", " d abord "},
)

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
