package comprehend

import (
	"strings"
	"unicode"

	"github.com/annals-project/annals/domain/memory"
)

// rescheduled verbs set the date of something to the date that follows.
var rescheduled = set(`slip move reschedule postpone schedule set push delay shift plan book fix arrange bring advance`)

// leaves returns the claim that an event makes true: "Ana moved the launch to 3 June 2025" sets the
// date of the launch. The claim is built from the observation.
func leaves(c *clause, event draft) []draft {
	if !rescheduled[c.lemma] || c.perfect && c.past {
		return nil
	}
	date, ok := c.lastDate()
	if !ok || !date.single() {
		return nil
	}
	at := date.from - 1
	for c.low(at) == "the" || c.low(at) == "on" {
		at--
	}
	if low := c.low(at); low != "to" && low != "for" && low != "until" && low != "till" {
		return nil
	}
	from, to := c.rest, at
	// "the launch moved from … to …"
	itself := c.kind == thing && (c.lemma == "move" || c.lemma == "shift" || c.lemma == "slip") &&
		prepositions[c.low(c.rest)]
	if c.passive || itself {
		from, to = c.subj, c.subjEnd
		if low := c.low(c.rest); c.rest != at && low != "back" && low != "forward" && low != "from" {
			return nil
		}
	}
	for c.low(to-1) == "back" || c.low(to-1) == "forward" || c.low(to-1) == "out" || c.low(to-1) == "up" {
		to--
	}
	for i := from + 1; i < to; i++ { // "moved the kickoff from 14 October to 21 October"
		if _, dated := c.dateAt(i + 1); dated && c.low(i) == "from" {
			to = i
		}
	}
	what, key := c.scheduled(from, to)
	if what == "" {
		return nil
	}
	d := c.draft(memory.Claim, finishLine(what+" is "+date.preposition()+date.describe(), ""))
	d.subject, d.attribute = key, "date"
	d.basis = append(d.basis, event.line)
	return []draft{d}
}

// movesHome: "Ana moved to Lisbon in March" makes Lisbon her home. The subject must be a person,
// since "we moved to Kubernetes" does not name what moved.
func movesHome(c *clause, event draft) []draft {
	if c.lemma != "move" && c.lemma != "relocate" && c.lemma != "emigrate" || c.passive || c.kind == thing ||
		c.kind == firstPlural {
		return nil
	}
	for i := c.rest; i < c.to; i++ {
		if c.low(i) != "to" || c.dateWord(i+1) {
			continue
		}
		end := nameEnd(c.s.tokens[:c.to], i+1)
		if end == i+1 || !placeLike(c.s.tokens[i+1:end]) || groups[c.low(end)] || c.low(end) == "'s" {
			return nil
		}
		who, verb := c.phraseOfSubject(), " lives in "
		if c.plural || c.manyAs(c.subjEnd-1) {
			verb = " live in "
		}
		if who == "" {
			return c.claim(c.subjectKey(), "home") // without a speaker: "I moved to Lisbon"
		}
		d := c.draft(memory.Claim, finishLine(who+verb+c.text(i+1, end), c.s.who.name))
		d.subject, d.attribute = c.subjectKey(), normalizeAttribute("home")
		d.basis = append(d.basis, event.line)
		return []draft{d}
	}
	return nil
}

// placeLike reports whether words are written like a place: "Lisbon", "New York", but not "GitLab",
// "iOS" or "Postgres 16".
func placeLike(words []token) bool {
	for _, t := range words {
		if t.numeric() || t.shouted() && len(t.text) > 3 || strings.IndexFunc(t.text[1:], unicode.IsUpper) >= 0 &&
			!t.shouted() && !strings.ContainsAny(t.text, "-'’.") {
			return false
		}
	}
	return true
}

// switches: after "Ana switched from Vim to Emacs" she uses the one and no longer the other.
func switches(c *clause, event draft) []draft {
	if low := c.low(c.rest); c.lemma != "switch" && c.lemma != "migrate" || low != "from" && low != "to" &&
		low != "over" || c.passive || c.kind == thing {
		return nil
	}
	who := c.phraseOfSubject()
	if who == "" && c.kind == first {
		who = "I"
	}
	var drafts []draft
	for i := c.rest; i < c.to && len(drafts) < 2; i++ {
		end := nameEnd(c.s.tokens[:c.to], i+1)
		verb := map[string]string{"to": " switched to ", "from": " switched away from "}[c.low(i)]
		if verb == "" || end == i+1 || c.dateWord(i+1) || who == "" {
			continue
		}
		d := c.draft(memory.Claim, finishLine(who+verb+c.text(i+1, end), c.s.who.name))
		d.subject, d.attribute = c.subjectKey(), normalizeAttribute("use "+c.text(i+1, end))
		d.basis = append(d.basis, event.line)
		drafts = append(drafts, d)
	}
	return drafts
}

// lastDate is the last date expression of the clause.
func (c *clause) lastDate() (last dated, ok bool) {
	for _, d := range c.s.dates {
		if d.from >= c.rest && d.to <= c.to {
			last, ok = d, true
		}
	}
	return last, ok
}

// single reports whether the date is one day, one month or one year, or a time of one day.
func (d dated) single() bool {
	return d.clock || d.start.AddDate(0, 0, 1).Equal(d.end) || d.start.Day() == 1 &&
		(d.start.AddDate(0, 1, 0).Equal(d.end) || d.start.AddDate(1, 0, 0).Equal(d.end))
}

// preposition returns the preposition of the date in a sentence.
func (d dated) preposition() string {
	if d.clock || d.start.AddDate(0, 0, 1).Equal(d.end) {
		return "on "
	}
	return "in "
}

// scheduled returns the thing that the tokens [from, to) name, as text of a line and as a subject
// key.
func (c *clause) scheduled(from, to int) (what, key string) {
	if to-from < 2 || to-from > 7 {
		return "", ""
	}
	for i := from; i < to; i++ {
		if low := c.low(i); !c.s.tokens[i].word || conjunctions[low] || vagueObjects[low] || low == "to" {
			return "", ""
		}
	}
	switch c.low(from) {
	case "the":
		return c.phrase(from, to), c.foldTokens(from, to)
	case "my", "our":
		who := normalize(c.s.who.name)
		if who == "" {
			return c.text(from, to), map[string]string{"my": "i", "our": "we"}[c.low(from)] + "'s " + c.foldTokens(from+1, to)
		}
		return possessive(c.s.who.name) + " " + c.text(from+1, to), who + "'s " + c.foldTokens(from+1, to)
	}
	if isName(c.s.tokens[from]) {
		return c.text(from, to), c.foldTokens(from, to)
	}
	return "", ""
}
