package recall

import (
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Span is a part of a text in bytes, End exclusive.
type Span struct{ Start, End int }

// Sizes of passages in code points. A text of at most passageMax is one passage; a longer one is
// cut between passageMin and passageMax, at the best break nearest to passageTarget.
const (
	passageMin    = 400
	passageTarget = 1000
	passageMax    = 2000
)

// Split cuts a text into passages, in order and without gaps or overlap, at paragraphs, else lines,
// else sentences, else spaces, else between two code points. It reads each byte a bounded number of
// times. An empty text has no passage.
func Split(text string) iter.Seq[Span] {
	return func(yield func(Span) bool) {
		for start := 0; start < len(text); {
			end := start + passageEnd(text[start:])
			if !yield(Span{start, end}) {
				return
			}
			start = end
		}
	}
}

// passageEnd returns where the first passage of a text ends, in bytes.
func passageEnd(text string) int {
	// lower, target and upper are the byte offsets of the sizes in code points.
	var lower, target int
	upper, n := 0, 0
	for upper < len(text) && n < passageMax {
		switch n {
		case passageMin:
			lower = upper
		case passageTarget:
			target = upper
		}
		upper += width(text[upper:])
		n++
	}
	if upper == len(text) {
		return len(text)
	}
	for _, find := range []func(string, int, int) int{paragraphEnd, lineEnd, sentenceEnd, spaceEnd} {
		if end := nearest(text[:upper], lower, target, find); end > 0 {
			return end
		}
	}
	return upper
}

// nearest returns the end nearest to target that find returns: the last one in (lower, target],
// else the first one after it.
func nearest(text string, lower, target int, find func(string, int, int) int) int {
	last := 0
	for at := lower; at < len(text); {
		end := find(text, at, len(text))
		if end <= at {
			break
		}
		if end > target {
			if last == 0 || end-target < target-last {
				return end
			}
			return last
		}
		last, at = end, end
	}
	return last
}

// paragraphEnd returns the offset after the next empty line, 0 for none.
func paragraphEnd(text string, at, to int) int {
	for at < to {
		i := strings.IndexByte(text[at:to], '\n')
		if i < 0 {
			return 0
		}
		at += i + 1
		rest := strings.TrimLeft(text[at:to], " \t\r")
		if strings.HasPrefix(rest, "\n") {
			return to - len(rest) + 1
		}
		at = max(at, to-len(rest))
	}
	return 0
}

// lineEnd returns the offset after the next line break, 0 for none.
func lineEnd(text string, at, to int) int {
	if i := strings.IndexByte(text[at:to], '\n'); i >= 0 {
		return at + i + 1
	}
	return 0
}

// sentenceEnd returns the offset after the next full stop, question or exclamation mark that a
// space follows, 0 for none.
func sentenceEnd(text string, at, to int) int {
	for i := at; i < to; i++ {
		switch text[i] {
		case '.', '!', '?':
			if i+1 < to && isSpace(text[i+1]) {
				return i + 2
			}
		case 0xE3: // the ideographic full stop, U+3002
			if strings.HasPrefix(text[i:to], "。") {
				return i + len("。")
			}
		}
	}
	return 0
}

// spaceEnd returns the offset after the next space, 0 for none.
func spaceEnd(text string, at, to int) int {
	for i := at; i < to; i++ {
		if isSpace(text[i]) {
			return i + 1
		}
	}
	return 0
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// width returns the bytes of the first code point; an invalid byte counts as one.
func width(text string) int {
	if text[0] < utf8.RuneSelf {
		return 1
	}
	_, size := utf8.DecodeRuneInString(text)
	return size
}

const (
	// PassagesOfSource is the most passages that take the place of one source.
	PassagesOfSource = 3
	// ShortText is the most code points of a text that is one passage.
	ShortText = passageMax
	// LeastPassage is the least that a passage costs, in tokens, unless it is the last of its text.
	LeastPassage = passageMin / 4
	// excerptMax is the most code points of an excerpt of a passage.
	excerptMax = 300
)

// Numbered returns the passages of a text that have anything to search for, with the numbers that Analyzer.Passages
// gives them, from 0.
func Numbered(text string) iter.Seq2[int, Span] {
	return func(yield func(int, Span) bool) {
		n := 0
		for span := range Split(text) {
			if !isVisible(text[span.Start:span.End]) {
				continue
			}
			if !yield(n, span) {
				return
			}
			n++
		}
	}
}

// IsOnePassage reports whether a text is a single passage, or empty.
func IsOnePassage(text string) bool { return passageEnd(text) == len(text) }

// isVisible reports whether a text has terms.
func isVisible(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsSpace(r) && unicode.IsGraphic(r) && !unicode.Is(unicode.Mn, r)
	})
}

// Excerpt returns the line of a passage that scores best for a question, verbatim, without white space around it: the
// first one if none has a term of it. Of a line with more than 300 code points it is a part.
func (a *Analyzer) Excerpt(passage string, terms []Term, weights Weights) string {
	best, most := "", -1.0
	for start := 0; start < len(passage); {
		end := start + excerptEnd(passage[start:])
		part := strings.TrimSpace(passage[start:end])
		start = end
		if part == "" {
			continue
		}
		found := a.Terms(part)
		if score := weights.Score(Counts(terms, Terms{Text: found}), len(found)); score > most {
			best, most = part, score
		}
	}
	return best
}

// excerptEnd returns where the first part of a passage ends: after its line, else after the last sentence or word that
// fits.
func excerptEnd(text string) int {
	upper := 0
	for n := 0; upper < len(text) && n < excerptMax; n++ {
		upper += width(text[upper:])
	}
	if end := lineEnd(text, 0, upper); end > 0 {
		return end
	}
	if upper == len(text) {
		return upper
	}
	last := 0
	for end := sentenceEnd(text, 0, upper); end > 0; end = sentenceEnd(text, end, upper) {
		last = end
	}
	if last > 0 {
		return last
	}
	if space := strings.LastIndexAny(text[:upper], " \t\r"); space > 0 {
		return space + 1
	}
	return upper
}
