package comprehend

import (
	"strings"

	"github.com/annals-project/annals/domain/memory"
)

// readMentions states the names in a sentence, except of the person it addresses ("Thanks, Bo!")
// and of its speaker.
func readMentions(d *document, s *sentence) []draft {
	var drafts []draft
	for _, e := range d.entities(s, 0, len(s.tokens)) {
		if e.to == e.from+1 && s.department(e.from) || called(s.tokens, e) || e.to == e.from+1 && s.technical(e.from) ||
			sameName(e.text, s.who.name) {
			continue
		}
		line := e.text + " is mentioned"
		if s.who.name != "" {
			line = s.who.name + " mentions " + e.text
		}
		drafts = append(drafts, draft{kind: memory.Mention, line: line, entities: []string{e.text}, named: true})
	}
	return drafts
}

// technical reports whether a single word is capitalised without being a name: an abbreviation
// (MVP, URLs), which is far more frequent than a name like NASA; a word quoted from a program
// ('Submit', `Request`); a status after its number.
func (s *sentence) technical(i int) bool {
	t := s.tokens[i]
	if short := strings.TrimSuffix(t.text, "s"); t.shouted() || len(short) > 1 && strings.ToUpper(short) == short {
		return true
	}
	if i == 0 {
		return false
	}
	before := s.tokens[i-1]
	return before.numeric() && len(before.text) == 3 || pressed[before.low] || !before.word &&
		strings.Contains("`'\"‘“<{[/#.", before.text) && !t.gap || strings.HasSuffix(t.text, "Error") ||
		strings.HasSuffix(t.text, "Exception")
}

// department reports whether a common noun has its capital as a field of work: "Head of Data", "the
// Marketing team".
func (s *sentence) department(i int) bool {
	if !commonNouns[s.tokens[i].low] {
		return false
	}
	before := lowAt(s.tokens, i-1)
	return before == "of" || determiners[before] || groups[lowAt(s.tokens, i+1)]
}

// pressed are words before the text of a screen.
var pressed = set(`click press tap select grep`)

// called reports whether a name only addresses somebody: alone at an end of the sentence or between
// commas, after a greeting or before the message.
func called(tokens []token, e entity) bool {
	before, after := "", ""
	if e.from > 0 {
		before = tokens[e.from-1].low
	}
	if e.to < len(tokens) {
		after = tokens[e.to].low
	}
	closed := e.to >= len(tokens) || !tokens[e.to].word && after != "(" && after != `"`
	switch {
	case interjections[before] && before != "and" && before != "but" && before != "also" && before != "plus" &&
		before != "see" && before != "then":
		return closed
	case e.from == 0:
		return closed
	case before == ",":
		if e.from >= 2 && isName(tokens[e.from-2]) {
			return false // one of a list
		}
		return closed && (after != "," || !introduces(tokens, e.from-1))
	}
	return !tokens[e.from-1].word && closed && (after == "!" || after == "?") && before != `"`
}

// introduces reports whether the words before the comma at i describe the name that follows, as in
// "my sister, Dee, …".
func introduces(tokens []token, i int) bool {
	for k := i - 1; k >= 0 && k >= i-4; k-- {
		if determiners[tokens[k].low] {
			return true
		}
	}
	return false
}

// sameName reports whether two names can be of one person by their first words.
func sameName(a, b string) bool {
	return b != "" && (normalize(a) == normalize(b) || hasFirst(a, b) || hasFirst(b, a))
}
