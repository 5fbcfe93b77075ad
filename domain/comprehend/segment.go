package comprehend

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/sentences"
)

// sentence is one sentence of the content, of the label or of a text in the metadata.
type sentence struct {
	start, end   int    // span in the content
	text         string // the span with control characters replaced by spaces
	tokens       []token
	who          speaker // the person who is "I"
	fromMetadata bool    // from label or metadata: the span has no meaning
	question     bool
	exclaimed    bool
	tense        tense
	dates        []dated // the date expressions in it, in order
	named        []int   // where names begin that are subjects of statements
}

// maxBlock is the longest run of text that is cut into sentences at once, in bytes. The rules of
// sentence boundaries look ahead without limit, so a longer run could take quadratic time.
const maxBlock = 2048

// eachSentence calls yield for each sentence to read, until yield returns false. The sentence and
// what it refers to are reused for the next one.
func (d *document) eachSentence(yield func(*sentence) bool) {
	var s sentence
	d.eachSpan(func(start, end int, who speaker) bool {
		if end-start > maxSentence || end-start < 2 || !utf8.ValidString(d.content[start:end]) {
			return true
		}
		s = sentence{
			start: start, end: end, text: mask(d.content[start:end]), who: who, tokens: s.tokens,
			dates: s.dates[:0], named: s.named[:0],
		}
		d.prepare(&s)
		return yield(&s)
	})
}

// prepare sets what all rules need of a sentence.
func (d *document) prepare(s *sentence) {
	s.tokens = tokenize(s.text, s.tokens[:0])
	for i := len(s.tokens) - 1; i >= 0 && !s.tokens[i].word; i-- {
		switch s.tokens[i].low[0] {
		case '?':
			s.question = true
		case '!':
			s.exclaimed = true
		}
	}
	// Marks without a letter after the end of the sentence were added by a program: "… on Fridays.
	// -> 1,25".
	letters := len(s.tokens)
	for letters > 0 && !hasLetter(s.tokens[letters-1].text) {
		letters--
	}
	for i := letters; i < len(s.tokens)-1; i++ {
		if s.tokens[i].low == "." || s.tokens[i].low == "!" {
			s.tokens = s.tokens[:i+1]
			break
		}
	}
	s.tense = tenseOf(s.tokens)
	s.dates = findDates(s, d.occurredAt)
}

func hasLetter(text string) bool { return strings.IndexFunc(text, unicode.IsLetter) >= 0 }

// eachSpan calls yield with the span and the speaker of each sentence of the content, in order.
func (d *document) eachSpan(yield func(start, end int, who speaker) bool) {
	d.credit = 0
	who := d.author
	if d.chat {
		who = speaker{}
	}
	fenced := false
	blockStart, blockEnd := -1, -1
	flush := func() bool {
		if blockStart < 0 {
			return true
		}
		start, end := blockStart, blockEnd
		blockStart = -1
		return d.cut(start, end, who, yield)
	}
	for at := 0; at < len(d.content); {
		next := len(d.content)
		if i := strings.IndexByte(d.content[at:], '\n'); i >= 0 {
			next = at + i + 1
		}
		line := d.content[at:next]
		body := strings.TrimSpace(line)
		fence := strings.HasPrefix(body, "```") || strings.HasPrefix(body, "~~~")
		switch name, skip := d.turn(line); {
		case fence:
			fenced = !fenced
			if !flush() {
				return
			}
		case fenced, body == "", body[0] == '>', body[0] == '|', strings.HasPrefix(body, "$ "):
			if !flush() {
				return
			}
			if body == "" && d.chat {
				who = speaker{}
			}
		case skip > 0:
			if !flush() {
				return
			}
			who = d.speakerOf(name)
			blockStart, blockEnd = at+skip, next
		default:
			bullet := bulletEnd(line)
			if blockStart >= 0 && bullet == 0 && d.continues(blockStart, blockEnd, line) {
				blockEnd = next
				break
			}
			if !flush() {
				return
			}
			blockStart, blockEnd = at+bullet, next
		}
		at = next
	}
	flush()
}

// continues reports whether a line continues the sentence of the block before it, as in text
// wrapped at a column.
func (d *document) continues(start, end int, line string) bool {
	before := strings.TrimRightFunc(d.content[start:end], unicode.IsSpace)
	last, _ := utf8.DecodeLastRuneInString(before)
	first, _ := utf8.DecodeRuneInString(strings.TrimLeftFunc(line, unicode.IsSpace))
	width := len(before) - (strings.LastIndexByte(before, '\n') + 1)
	return end-start < maxBlock && width >= 40 && !strings.ContainsRune(".!?:;", last) &&
		(unicode.IsLower(first) || hanging(before) || last == ',' || unicode.IsLower(last) && unicode.IsLetter(first))
}

// hanging reports whether a line ends with a word that cannot end a sentence: "to", "the".
func hanging(line string) bool {
	last := line[strings.LastIndexByte(line, ' ')+1:]
	return len(last) < 8 && (determiners[last] || last == "to" || last == "of" || last == "and" || last == "for" ||
		last == "at" || last == "from" || last == "with")
}

// bulletEnd returns where the text of a list item or a heading begins, 0 for other lines.
func bulletEnd(line string) int {
	i := len(line) - len(strings.TrimLeft(line, " \t"))
	rest := line[i:]
	mark := 0
	switch {
	case strings.HasPrefix(rest, "- "), strings.HasPrefix(rest, "* "), strings.HasPrefix(rest, "+ "):
		mark = 2
	case strings.HasPrefix(rest, "• "), strings.HasPrefix(rest, "– "):
		mark = strings.IndexByte(rest, ' ') + 1
	case strings.HasPrefix(rest, "#"):
		mark = len(rest) - len(strings.TrimLeft(rest, "#"))
	default:
		for mark < len(rest) && mark < 3 && rest[mark] >= '0' && rest[mark] <= '9' {
			mark++
		}
		if mark == 0 || mark+1 >= len(rest) || rest[mark] != '.' && rest[mark] != ')' || rest[mark+1] != ' ' {
			return 0
		}
		mark += 2
	}
	for _, box := range []string{"[ ] ", "[x] ", "[X] "} {
		if strings.HasPrefix(rest[mark:], box) {
			mark += len(box)
		}
	}
	return i + mark
}

// cut cuts the text between two offsets into sentences.
func (d *document) cut(start, end int, who speaker, yield func(start, end int, who speaker) bool) bool {
	for start < end {
		stop := end
		if stop-start > maxBlock {
			stop = start + maxBlock
			if space := strings.LastIndexAny(d.content[start:stop], " \n\t"); space > 0 {
				stop = start + space
			}
			for stop > start+1 && !utf8.RuneStart(d.content[stop]) {
				stop--
			}
		}
		if d.credit += d.share * float64(stop-start); d.credit < float64(stop-start) {
			start = stop
			continue
		}
		d.credit -= float64(stop - start)
		text := mask(d.content[start:stop])
		from := 0
		for it := sentences.FromString(text); it.Next(); {
			to := it.End()
			if to < len(text) && abbreviated(text[from:to], text[to:]) {
				continue
			}
			s, e := trimSpan(text, from, to)
			from = to
			if s < e && !yield(start+s, start+e, who) {
				return false
			}
		}
		start = stop
	}
	return true
}

// abbreviated reports whether a sentence only seems to end, at an abbreviation or an initial.
func abbreviated(text, next string) bool {
	text = strings.TrimRight(text, " ")
	if !strings.HasSuffix(text, ".") {
		return false
	}
	word := text[strings.LastIndexAny(text, " (")+1 : len(text)-1]
	if len(word) == 1 && word[0] >= 'A' && word[0] <= 'Z' {
		return word != "I"
	}
	word = strings.ToLower(word)
	r, _ := utf8.DecodeRuneInString(strings.TrimLeft(next, " "))
	return titles[word] || abbreviations[word] && !unicode.IsUpper(r)
}

// trimSpan removes white space from both ends of a span.
func trimSpan(text string, from, to int) (int, int) {
	from += len(text[from:to]) - len(strings.TrimLeftFunc(text[from:to], unicode.IsSpace))
	to -= len(text[from:to]) - len(strings.TrimRightFunc(text[from:to], unicode.IsSpace))
	return from, to
}
