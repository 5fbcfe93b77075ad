package comprehend

import (
	"cmp"
	"strings"
)

// subjectKey returns the subject of the clause as claims compare it: the speaker for "I", "ana's
// daughter" for "my daughter". An unknown speaker is "i": without an author, "I" is always the same
// unknown person.
func (c *clause) subjectKey() string {
	who := normalize(c.s.who.name)
	switch c.kind {
	case first:
		if who == "" {
			return "i"
		}
		return who
	case firstPlural:
		if who == "" {
			return "we"
		}
		return who + " and others"
	case ours:
		who = cmp.Or(who, "i")
		key := who + "'s " + c.foldTokens(c.subj+1, c.subjEnd)
		if both, ok := strings.CutSuffix(key, " and i"); ok {
			key = both + " and " + who
		}
		return key
	default: // a name or a thing as it is
	}
	end := c.subj
	for end < c.subjEnd && c.low(end) != "(" && c.low(end) != "<" { // "Sam (he/him)"
		end++
	}
	return c.foldTokens(c.subj, end)
}

func (c *clause) foldTokens(from, to int) string {
	if from >= to {
		return ""
	}
	return normalize(c.text(from, to))
}

// text returns the tokens [from, to) as written.
func (c *clause) text(from, to int) string {
	if from >= to {
		return ""
	}
	return c.s.text[c.s.tokens[from].at:c.s.tokens[to-1].end()]
}

// owned reads the subject as something owned: "Ana's favourite editor", "my birthday", "the name of
// the ship", "the launch date". It returns the owner as a subject key and the thing owned.
func (c *clause) owned() (owner, attribute string, ok bool) {
	switch c.kind {
	case ours, named:
		for i := c.subjEnd - 1; i > c.subj; i-- {
			if c.low(i) != "'s" || i+1 >= c.subjEnd {
				continue
			}
			owner = c.foldTokens(c.subj, i)
			if c.kind == ours {
				owner = c.firstOwner() + "'s " + c.foldTokens(c.subj+1, i)
			}
			return owner, c.text(i+1, c.subjEnd), true
		}
		if c.kind == ours {
			return c.firstOwner(), c.text(c.subj+1, c.subjEnd), true
		}
	case thing:
		for i := c.subj + 2; i < c.subjEnd-1; i++ {
			if l := c.low(i); (l == "of" || l == "for") && i+1 < c.subjEnd {
				return c.foldTokens(i+1, c.subjEnd), c.text(c.subj+1, i), true
			}
			if c.low(i) == "'s" {
				return c.foldTokens(c.subj, i), c.text(i+1, c.subjEnd), true
			}
		}
		if c.subjEnd-c.subj >= 3 {
			return c.foldTokens(c.subj, c.subjEnd-1), c.text(c.subjEnd-1, c.subjEnd), true
		}
		return c.foldTokens(c.subj, c.subjEnd), "value", c.subjEnd-c.subj == 2
	default: // nobody owns anything
	}
	return "", "", false
}

// firstOwner returns the subject key of "my" and "our" at the subject, and ownerAt of those at
// token i.
func (c *clause) firstOwner() string { return c.ownerAt(c.subj) }

func (c *clause) ownerAt(i int) string {
	who := normalize(c.s.who.name)
	switch {
	case who == "" && c.low(i) == "our":
		return "we"
	case who == "":
		return "i"
	case c.low(i) == "our":
		return who + " and others"
	}
	return who
}

// object returns the noun phrase or infinitive at token i, up to the next conjunction or mark. ok
// is false if it cannot be understood alone.
func (c *clause) object(i int) (text string, end int, ok bool) {
	for i < c.to && adverbs[c.low(i)] {
		i++
	}
	if i >= c.to || c.nowadays(i) || vagueObjects[c.low(i)] || c.low(i) == "their" || c.low(i) == "its" ||
		c.low(i) == "his" || c.low(i) == "her" {
		return "", i, false
	}
	if c.low(i) == "the" && !commonGround[c.low(i+1)] && !isName(c.s.tokens[min(i+1, c.to-1)]) {
		return "", i, false
	}
	end = i
	for end < c.to && end-i < 14 {
		t := c.s.tokens[end]
		if end > i && c.nowadays(end) {
			break
		}
		if conjunctions[t.low] && t.low != "and" && t.low != "as" && t.low != "before" && t.low != "after" &&
			t.low != "or" || !t.word && t.low != "`" && t.low != `"` && t.low != "'" && t.low != "(" && t.low != ")" &&
			t.low != "&" && t.low != "/" && t.low != "," {
			break
		}
		end++
	}
	for end > i && (!c.s.tokens[end-1].word || adverbs[c.low(end-1)] || c.low(end-1) == "and") {
		end--
	}
	if end <= i || prepositions[c.low(end-1)] || vagueObjects[c.low(end-1)] || !c.s.tokens[i].word && end-i < 2 {
		return "", i, false
	}
	for k := i; k < end; k++ {
		if low := c.low(k); low == "this" || low == "these" || low == "those" || low == "certain" || low == "he" ||
			low == "she" {
			return "", i, false
		}
	}
	return c.text(i, end), end, true
}

// nowadays reports whether "these days" or the like stands at token i.
func (c *clause) nowadays(i int) bool {
	switch low, next := c.low(i), c.low(i+1); low {
	case "these":
		return next == "days"
	case "right":
		return next == "now"
	case "at":
		return next == "the" && c.low(i+2) == "moment"
	case "nowadays", "anymore":
		return true
	case "any":
		return next == "more" || next == "longer"
	}
	return false
}

// commonGround are things that everybody knows which one of is meant.
var commonGround = set(`outdoors beach ocean sea mountains rain snow piano guitar violin cello drums flute trumpet saxophone clarinet ukulele cold heat city countryside sun sunshine
	water internet night moon stars sky earth world environment forest woods lake weather gym theatre theater cinema opera ballet harp bass banjo accordion keyboard trombone`)

// trimAttribute is the part of an object that a claim is compared by: up to a bracket or a word of
// time or degree.
func trimAttribute(text string) string {
	if i := strings.IndexByte(text, '('); i > 0 {
		text = text[:i]
	}
	for _, word := range []string{
		" now", " anymore", " any more", " these days", " lately", " today", " at the moment",
		" so much", " a lot", " very much", " too",
	} {
		if i := strings.Index(strings.ToLower(text), word); i > 0 && i <= len(text) {
			text = text[:i]
		}
	}
	return text
}
