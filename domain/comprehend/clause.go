package comprehend

import (
	"cmp"
	"strings"
)

// subjectKind is the kind of the subject of a clause.
type subjectKind int

const (
	noSubject   subjectKind = iota
	first                   // I
	firstPlural             // we
	ours                    // my daughter, our team's budget
	named                   // Ana, Ana Ruiz and Bo, Ana's favourite editor
	thing                   // the launch, the payments service
)

// clause is one statement: a subject, a verb and what follows. Its tokens are those of its
// sentence.
type clause struct {
	doc      *document
	s        *sentence
	from, to int // without greetings and conjunctions before, and punctuation after it
	kind     subjectKind
	subj     int // the subject is [subj, subjEnd)
	subjEnd  int
	finite   int    // the token that agrees with the subject: the first auxiliary, or the verb
	verb     int    // the main verb, or the form of "be" if there is no other
	lemma    string // of the main verb
	rest     int    // what follows the verb

	plural      bool // the subject is more than one
	past        bool // the finite verb is in the past
	negated     bool
	modal       string // will, would, can … or "used to", "going to"
	perfect     bool   // has done
	progressive bool   // is doing
	passive     bool   // was done
	addressed   bool   // it addresses "you"
}

func (c *clause) low(i int) string {
	if i < c.from || i >= c.to {
		return ""
	}
	return c.s.tokens[i].low
}

// copula reports whether the verb is "be" itself.
func (c *clause) copula() bool { return c.lemma == "be" }

// plain reports whether the clause states its verb as a fact: not negated, not possible, not
// wished.
func (c *clause) plain() bool { return !c.negated && c.modal == "" }

// present reports whether the clause states its verb in the present, negated or not.
func (c *clause) present() bool {
	return !c.past && c.modal == "" && !c.perfect && !c.progressive && !c.passive
}

// parse reads the clause of the tokens [from, to). ok is false if no rule can be sure of it.
func parse(doc *document, s *sentence, from, to int) (c clause, ok bool) {
	c = clause{doc: doc, s: s, from: from, to: to, verb: -1}
	for c.to > c.from && !c.s.tokens[c.to-1].word && !strings.Contains(")\"`%€$£", c.s.tokens[c.to-1].low) {
		c.to--
	}
	c.skipOpening()
	for i := c.from; i < c.to; i++ {
		if addressing[c.low(i)] {
			c.addressed = true
		}
	}
	c.subj = c.afterLeadingDate()
	if !c.findSubject() || !c.findVerb() {
		return c, false
	}
	return c, true
}

// addressing words speak to an unknown listener.
var addressing = set(`you your yours yourself yourselves u ur ya y'all`)

// skipOpening moves the beginning past conjunctions, interjections and addressed names: "Hey Bo,
// and".
func (c *clause) skipOpening() {
	for c.from < c.to {
		t := c.s.tokens[c.from]
		next := c.low(c.from + 1)
		_, isDate := c.dateAt(c.from)
		switch {
		case !t.word && t.low != `"` && t.low != "'":
			c.from++
		case isDate:
			return
		case (t.low == "remember" || t.low == "note") && next == "that":
			c.from += 2
		case interjections[t.low] && !(t.low == "thank" || t.low == "please"):
			c.from++
		case t.capital() && next == "," && (c.doc.names[t.low] || c.from > 0 && !determiners[t.low] &&
			interjections[c.s.tokens[c.from-1].low]):
			c.from += 2
		default:
			return
		}
	}
}

// dateAt returns the date expression that begins at a token.
func (c *clause) dateAt(i int) (dated, bool) {
	for _, d := range c.s.dates {
		if d.from == i {
			return d, true
		}
	}
	return dated{}, false
}

// afterLeadingDate returns where the subject begins after "Last week," or "On 3 June".
func (c *clause) afterLeadingDate() int {
	i := c.from
	if l := c.low(i); l == "on" || l == "in" || l == "just" {
		i++
	}
	d, ok := c.dateAt(i)
	if !ok || d.to >= c.to {
		if _, year := yearOf(c.low(i)); year && i > c.from && c.low(c.from) == "in" && i+1 < c.to { // "In 1998 the company …"
			d, ok = dated{to: i + 1}, true
		}
	}
	if low := c.low(i); !ok && (low == "last" || low == "this") && seasons[c.low(i+1)] && i+2 < c.to {
		d, ok = dated{to: i + 2}, true
	}
	if !ok || d.to >= c.to {
		return c.afterOpeningPhrase()
	}
	if c.low(d.to) == "," {
		return d.to + 1
	}
	return d.to
}

var seasons = set(`summer winter spring autumn fall season`)

// afterOpeningPhrase returns where the subject begins after "Per our call on Friday,": after a
// preposition, a few words and a comma.
func (c *clause) afterOpeningPhrase() int {
	switch c.low(c.from) {
	case "per", "during", "after", "before", "since", "at", "in", "according", "following":
	default:
		return c.from
	}
	for i := c.from + 1; i < min(c.to-2, c.from+9); i++ {
		if c.low(i) == "," {
			return i + 1
		}
		if pronouns[c.low(i)] || beForms[c.low(i)] && c.low(i) != "'s" {
			return c.from
		}
	}
	return c.from
}

// findSubject reads the subject.
func (c *clause) findSubject() bool {
	i := c.subj
	switch low := c.low(i); {
	case low == "i":
		c.kind, c.subjEnd = first, i+1
	case low == "we":
		c.kind, c.subjEnd, c.plural = firstPlural, i+1, true
	case low == "my" || low == "our":
		c.kind, c.subjEnd = ours, c.phraseEnd(i+2)
		if c.subjEnd < 0 {
			c.subjEnd = c.apposed(i + 2)
		}
	case low == "the":
		c.kind, c.subjEnd = thing, c.phraseEnd(i+2)
	default:
		return c.findNames()
	}
	if adverbs[c.low(i)] {
		return false
	}
	if c.kind == ours && (c.low(c.subjEnd-2) == "and" || c.low(c.subjEnd-2) == "&") || c.low(i+2) == "and" &&
		c.low(i+3) == "i" {
		c.plural = true
	}
	return c.subjEnd > i && c.subjEnd < c.to
}

// apposed returns the end of a subject with a name between commas, as in "my boss, Leonie,
// resigned"; -1 for others.
func (c *clause) apposed(i int) int {
	for ; i < c.to && c.s.tokens[i].word; i++ {
		if i > c.subj+3 {
			return -1
		}
	}
	if end := nameEnd(c.s.tokens[:c.to], i+1); c.low(i) == "," && end > i+1 && c.low(end) == "," {
		return end + 1
	}
	return -1
}

// findNames reads a subject made of names: "Ana", "Ana Ruiz and Bo", "Bo and I", "Ana's team".
func (c *clause) findNames() bool {
	i := c.subj
	end := nameEnd(c.s.tokens[:c.to], i)
	if end == i {
		return false
	}
	if _, order := is(c.low(i), base); end == i+1 && !c.doc.names[c.low(i)] && !c.doc.capitals[c.low(i)] &&
		(order && !beForms[c.low(end)] || adverbs[c.low(i)] || strings.HasSuffix(c.low(i), "ly")) {
		return false // "Add failed calls to the queue", "Successfully deployed"
	}
	if _, activity := is(c.low(i), gerund); (activity || strings.HasSuffix(c.low(i), "ing")) && end == i+1 {
		return false // "Painting helped": a capital only because the sentence begins
	}
	c.kind = named
	for c.low(end) == "and" || c.low(end) == "," || c.low(end) == "&" {
		next := nameEnd(c.s.tokens[:c.to], end+1)
		if c.low(end+1) == "i" {
			next = end + 2
		}
		if next == end+1 {
			break
		}
		c.plural = true
		end = next
	}
	if c.low(end) == "(" || c.low(end) == "<" { // "Ana (the new lead) moved …"
		for k := end; k < c.to && k < end+8; k++ {
			if c.low(k) == ")" || c.low(k) == ">" {
				end = k + 1
				break
			}
		}
	}
	if c.low(end) == "," && (c.low(end+1) == "aka" || c.low(end+1) == "a.k.a") { // "William Chen, a.k.a. Bill, runs …"
		for k := end + 2; k < c.to && k < end+8; k++ {
			if c.low(k) == "," {
				end = k + 1
				break
			}
		}
	}
	if c.low(end) == "'s" && !c.isVerbS(end) {
		end = c.phraseEnd(end + 2)
	}
	c.subjEnd = end
	return end < c.to
}

// isVerbS reports whether the 's at a token is "is" or "has", not a possessive.
func (c *clause) isVerbS(i int) bool {
	next := c.low(i + 1)
	if _, ok := is(next, gerund); ok && c.low(i+2) != "is" && c.low(i+2) != "was" {
		return true
	}
	return determiners[next] || next == "not" || next == "been" || prepositions[next] || adverbs[next] &&
		next != "first" && next != "last" && next != "long"
}

// phraseEnd returns the end of a noun phrase whose first noun precedes i: the first word that must
// be a verb.
func (c *clause) phraseEnd(i int) int {
	for k := i; k < c.to && k < i+7; k++ {
		t := c.s.tokens[k]
		if !t.word {
			return -1
		}
		if modals[t.low] || t.low != "'s" && beForms[t.low] || haveForms[t.low] && t.low != "having" || doForms[t.low] {
			return k
		}
		if t.low == "'s" {
			if c.isVerbS(k) {
				return k
			}
			k++ // what is possessed is a noun
			continue
		}
		if lemma, ok := is(t.low, third|past); ok {
			_, baseToo := is(t.low, base)
			if baseToo && !c.s.tense.past {
				continue
			}
			// "the release plans changed": before another verb, this one is a noun.
			if next := c.low(k + 1); lemma != "get" { // "my parents got divorced"
				if _, verb := is(next, past); (verb || beForms[next] && next != "'s" || modals[next] || haveForms[next]) &&
					next != "" {
					continue
				}
			}
			return k
		}
		if _, ok := is(t.low, base); ok && c.manyAs(k-1) {
			if next := c.low(k + 1); prepositions[next] || determiners[next] {
				return k
			}
		}
		if adverbs[t.low] && k+1 < c.to {
			if _, ok := is(c.low(k+1), third|past); ok {
				return k
			}
		}
		if conjunctions[t.low] && t.low != "and" || pronouns[t.low] && !(t.low == "i" && c.low(k-1) == "and") {
			return -1 // a relative clause: its verb is not this subject's
		}
	}
	return -1
}

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
