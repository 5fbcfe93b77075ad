package comprehend

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/sentences"

	"github.com/annals-project/annals/domain/memory"
)

// reader is one named rule: it reads one kind of statement in a clause, and returns nothing if it
// is not sure.
type reader struct {
	name string
	read func(*clause) []draft
}

// readSentence derives the memories of a sentence: dates, instructions, then what each clause
// states, then names.
func readSentence(d *document, s *sentence) []draft {
	drafts := readAnchors(d, s)
	if s.who.machine || !d.english {
		return drafts
	}
	if changeLine(s.tokens) {
		return nil
	}
	if rules := readRules(d, s); len(rules) > 0 {
		drafts = append(drafts, rules...)
	} else if !quotesSpeech(s) {
		parts := clauseSpans(s)
		if s.question { // the words before "- want to see it?" are not a question
			parts = parts[:len(parts)-1]
		}
		for _, part := range parts {
			if part[1]-part[0] > maxClause {
				continue
			}
			whole, ok := parse(d, s, part[0], part[1])
			if ok && whole.kind == named && (sayings[whole.lemma] && !commonNouns[whole.low(whole.subj)] || whole.plural &&
				whole.low(whole.subjEnd-1) == "i" || properName(s.tokens[whole.subj])) {
				s.named = append(s.named, s.tokens[whole.subj].at)
			}
			if !ok || whole.addressed {
				continue
			}
			for _, c := range coordinated(whole) {
				drafts = append(drafts, readClause(&c)...)
			}
		}
	}
	drafts = append(drafts, readHandles(s)...)
	return append(drafts, readMentions(d, s)...)
}

// changeLine reports whether a sentence is the subject line of a change in the form "feat(api): …".
func changeLine(tokens []token) bool {
	if len(tokens) < 4 || !changes[tokens[0].low] || tokens[1].gap {
		return false
	}
	if tokens[1].low == "(" {
		for i := 2; i < min(len(tokens)-1, 8); i++ {
			if tokens[i].low == ")" {
				return strings.HasSuffix(tokens[i+1].low, ":")
			}
		}
		return false
	}
	return tokens[1].low == ":" && !tokens[0].capital()
}

var changes = set(`fix feat chore refactor docs test tests build ci perf style revert wip hotfix bugfix`)

// sayings are verbs whose subject is a person, so a capital before one is that of a name.
var sayings = set(`say tell think suggest ask believe want know promise claim argue mention explain recommend reply answer prefer love like hate hope agree disagree doubt insist complain warn confirm`)

// maxClause is the longest clause that is read, in tokens.
const maxClause = 45

// readClause applies the rules of all kinds to a clause. A clause that states an identity or a
// membership is not also a plain claim.
func readClause(c *clause) []draft {
	drafts := readObservation(c)
	if len(drafts) > 0 {
		for _, follows := range []func(*clause, draft) []draft{leaves, movesHome, switches} {
			drafts = append(drafts, follows(c, drafts[0])...)
		}
	}
kinds:
	for _, kind := range [][]reader{identityRules, membershipRules, claimRules} {
		for _, r := range kind {
			if found := r.read(c); len(found) > 0 {
				drafts = append(drafts, found...)
				break kinds
			}
		}
	}
	if len(drafts) > 0 && c.kind == named && !commonNouns[c.low(c.subj)] {
		c.s.named = append(c.s.named, c.s.tokens[c.subj].at)
		for i := range drafts {
			drafts[i].entities = c.withName(drafts[i].entities)
		}
	}
	return drafts
}

// withName puts the subject first if it is a name: a rule that read the clause takes it for one,
// even if its capital could be that of the sentence.
func (c *clause) withName(names []string) []string {
	end := nameEnd(c.s.tokens[:c.subjEnd], c.subj)
	name := flat(c.text(c.subj, end))
	if name == "" || slices.Contains(names, name) {
		return names
	}
	return append([]string{name}, names...)
}

// draft returns a memory of the clause. It cites the sentence, or only the clause if the sentence
// is long.
func (c *clause) draft(kind, line string) draft {
	d := draft{kind: kind, line: line, entities: c.entityNames()}
	if len(c.s.text) > MaxExcerpt {
		d.start = c.s.start + c.s.tokens[c.from].at
		d.end = c.s.start + c.s.tokens[c.to-1].end()
	}
	for _, date := range c.s.dates {
		if date.relative && date.from >= c.from && date.to <= c.to {
			d.basis = append(d.basis, anchorLine(c.s, date, c.doc.occurredAt))
		}
	}
	return d
}

// claim returns a claim of the clause about a subject, none if the clause has no line.
func (c *clause) claim(subject, attribute string) []draft {
	line := c.line()
	attribute = normalizeAttribute(attribute)
	if line == "" || subject == "" || attribute == "" {
		return nil
	}
	d := c.draft(memory.Claim, line)
	d.subject, d.attribute = subject, attribute
	return []draft{d}
}

// entityNames returns the names in the clause, first that of the speaker if the clause is about the
// speaker.
func (c *clause) entityNames() []string {
	var names []string
	if c.s.who.name != "" && (c.kind == first || c.kind == firstPlural || c.kind == ours) {
		names = append(names, c.s.who.name)
	}
	for _, e := range c.doc.entities(c.s, c.from, c.to) {
		if len(names) < 16 && (len(names) == 0 || names[0] != e.text) {
			names = append(names, e.text)
		}
	}
	return names
}

// clauseSpans cuts a sentence into clauses: at a dash or a semicolon, and before a conjunction or
// after a comma if a new subject follows.
func clauseSpans(s *sentence) [][2]int {
	tokens := s.tokens
	var spans [][2]int
	from := 0
	cut := func(to, next int) {
		if next < len(tokens) && !hasVerb(tokens[from:to]) &&
			(tokens[next-1].word || tokens[next-1].low == "," &&
				(isName(tokens[next]) && tokens[next].low != "i" || s.onlyDate(from, to))) {
			return // "My colleagues and I went", "Bo, Cy and Dee are", "Last week, I went"
		}
		if to > from {
			spans = append(spans, [2]int{from, to})
		}
		from = next
	}
	for i, t := range tokens {
		if i == 0 || i+1 >= len(tokens) {
			continue
		}
		next := tokens[i+1]
		switch {
		case t.low == ";" || t.low == "…" || len(t.low) > 1 && t.low[0] == '.' || t.low[0] == '!' || t.low[0] == '?',
			!t.word && next.gap && isDash(t.low), t.low == "—", t.low == ":":
			cut(i, i+1)
		case t.low == "," && (next.low == "which" || next.low == "who" || next.low == "where" || next.low == "so" ||
			next.low == "but"):
			cut(i, i+1)
		case t.low == "," && i+2 < len(tokens) && isName(next) && !conditions[tokens[from].low] && happened(tokens[i+2].low):
			cut(i, i+1) // "Idris is out sick, Wen finished the importer"
		case t.low == "," && questionStarts[next.low], t.low == "," && startsClause(tokens, i+1):
			cut(i, i+1)
		case splitters[t.low] && tokens[i-1].low != "both" &&
			(startsClause(tokens, i+1) || startsClause(tokens, s.afterDate(i+1))):
			cut(i, i+1)
		}
	}
	cut(len(tokens), len(tokens))
	return spans
}

// conditions begin clauses that are not stated as facts.
var conditions = set(`if unless when whenever suppose supposing imagine once until before after while because since as had`)

func happened(low string) bool {
	lemma, ok := is(low, past)
	return ok && eventVerbs[lemma]
}

// hasVerb reports whether one of the tokens is a verb. A word that can be a noun as well ("my
// partner") counts only after a pronoun.
func hasVerb(tokens []token) bool {
	for i, t := range tokens {
		if _, ok := is(t.low, third|past|participle|gerund); ok || beForms[t.low] || modals[t.low] || haveForms[t.low] {
			return true
		}
		if _, ok := is(t.low, base); ok && i > 0 && t.low != "last" &&
			(pronouns[tokens[i-1].low] || adverbs[tokens[i-1].low] || tokens[i-1].low == "to") {
			return true
		}
	}
	return false
}

// onlyDate reports whether the tokens [from, to) are only a date expression with small words before
// it.
func (s *sentence) onlyDate(from, to int) bool {
	for _, d := range s.dates {
		if d.to != to || d.from < from {
			continue
		}
		for _, t := range s.tokens[from:d.from] {
			if t.word && !interjections[t.low] && !adverbs[t.low] && !prepositions[t.low] {
				return false
			}
		}
		return true
	}
	return false
}

// afterDate returns the token after a date expression and a comma at token i, past the end if there
// is none.
func (s *sentence) afterDate(i int) int {
	for _, d := range s.dates {
		if d.from == i {
			if d.to < len(s.tokens) && s.tokens[d.to].low == "," {
				return d.to + 1
			}
			return d.to
		}
	}
	return len(s.tokens)
}

// questionStarts begin a question or a request after a comma: "I want to parse dates, can you
// help?"
var questionStarts = set(`can could would do does did how what why is are please let here any haha lol huh right though thanks`)

var splitters = set(`and but so or yet though although plus while whereas`)

func isDash(low string) bool { return low == "-" || low == "–" || low == "--" || low == "—" }

// startsClause reports whether token i is a pronoun that can only be a subject, with a verb after
// it.
func startsClause(tokens []token, i int) bool {
	if i+1 >= len(tokens) {
		return false
	}
	next := tokens[i+1].low
	if isName(tokens[i]) && (beForms[next] && next != "'s" && next != "be" || modals[next] && next != "'d" ||
		next == "has") {
		return true
	}
	switch tokens[i].low {
	case "i", "we", "they", "he", "she", "it", "you", "there", "this", "that", "these", "those":
		_, verb := is(next, base|third|past)
		return verb || beForms[next] || modals[next] || haveForms[next] || doForms[next] || adverbs[next]
	case "my", "our", "the":
		if i+2 >= len(tokens) {
			return false
		}
		after := tokens[i+2].low
		_, verb := is(after, past|third)
		return beForms[after] && after != "'s" || modals[after] || verb
	}
	return false
}

// quotesSpeech reports whether the sentence quotes words in the first person, whose speaker is
// unknown.
func quotesSpeech(s *sentence) bool {
	inside, seen := false, false
	for _, t := range s.tokens {
		switch t.low {
		case `"`:
			inside = !inside
			seen = true
		case "i", "my", "we", "our", "me", "you", "your":
			if inside {
				return true
			}
		}
	}
	return seen && inside
}

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
	s := sentence{tokens: d.tokens}
	d.tokens = nil
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
