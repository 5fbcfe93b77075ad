package comprehend

import (
	"slices"
	"strings"

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
