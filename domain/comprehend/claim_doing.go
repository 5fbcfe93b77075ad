package comprehend

import (
	"strings"
)

// plan: "I plan to visit Rome", "Ana wants to become a counsellor", "I'm going to start a blog",
// "my goal is to …".
func plan(c *clause) []draft {
	if c.kind == thing || c.past || c.negated && !c.ended() {
		return nil
	}
	at := c.rest
	switch {
	case (c.lemma == "want" || c.lemma == "plan" || c.lemma == "hope" || c.lemma == "intend" || c.lemma == "aim" ||
		c.lemma == "wish") && (c.present() || c.progressive) && c.low(at) == "to":
		at++
	case c.lemma == "plan" && (c.present() || c.progressive) && c.low(at) == "on":
		at++
	case c.lemma == "think" && c.progressive && (c.low(at) == "of" || c.low(at) == "about"):
		at++
		if _, ok := is(c.low(at), gerund); !ok {
			return nil
		}
	case c.lemma == "consider" && c.progressive:
	case c.modal == "going to":
		at = c.verb
	case c.progressive && !c.perfect && !states[c.lemma] && c.ahead(c.rest-1) < c.to && c.comes():
		at = c.verb
	case c.present() && departures[c.lemma] && c.comes():
		at = c.verb // "Bo starts at Acme on Monday"
	case c.modal == "will" && (c.kind == named || c.kind == firstPlural || c.comes()) &&
		(willDo[c.lemma] || c.comes() && eventVerbs[c.lemma]):
		at = c.verb
	default:
		return nil
	}
	for at < c.to && adverbs[c.low(at)] {
		at++
	}
	verb := c.low(at)
	short := c.to-at < 3 && !(c.lemma == "want" && studies[verb] && c.to-at == 2)
	if short || vagueWishes[verb] && verb != "take" && verb != "start" && verb != "try" && verb != "go" &&
		verb != "get" || vagueObjects[c.low(at+1)] {
		return nil
	}
	text, _, ok := c.object(at)
	if !ok || strings.HasSuffix(text, " first") {
		return nil
	}
	return c.claim(c.subjectKey(), "plan "+trimAttribute(text))
}

// ended reports whether something was so before and is no more: "no longer", "not … any more".
func (c *clause) ended() bool {
	for i := c.subjEnd; i < c.to; i++ {
		switch next := c.low(i + 1); c.low(i) {
		case "no":
			if next == "longer" {
				return true
			}
		case "any":
			if next == "more" || next == "longer" {
				return true
			}
		case "anymore":
			return true
		}
	}
	return false
}

// studies are verbs whose object is understood in one word: "study law", "learn Spanish".
var studies = set(`study learn teach visit join`)

// departures are verbs whose present tense speaks of the future.
var departures = set(`start begin leave arrive fly retire graduate travel return join move`)

// willDo are verbs that announce something with "will" even without a date.
var willDo = set(`use launch ship migrate switch lead join deploy release replace host represent own maintain coordinate relocate`)

// comes reports whether the clause names a future time.
func (c *clause) comes() bool {
	date, ok := c.lastDate()
	return ok && date.end.After(c.doc.occurredAt) && !c.doc.occurredAt.After(date.end) &&
		date.start.After(c.doc.occurredAt.AddDate(0, 0, -1))
}

// pursuit: "I'm learning the piano", "Ana is reading Dune", "I'm training for a marathon", "I've
// been practising yoga for two years".
func pursuit(c *clause) []draft {
	if !c.progressive || c.past || c.negated && !c.ended() || c.modal != "" || c.kind == thing {
		return nil
	}
	long := false
	for i := c.rest; c.perfect && i < c.to; i++ {
		long = long || c.low(i) == "for" && i+1 < c.to && (c.s.tokens[i+1].numeric() || numberWords[c.low(i+1)] > 0) ||
			c.low(i) == "since"
	}
	searches := c.lemma == "look" && !c.perfect && (c.low(c.rest) == "for" || c.low(c.rest) == "into")
	if searches && requests[c.low(c.rest+1)] || searches && requests[c.low(c.rest+2)] {
		return nil
	}
	if !(searches || pursuits[c.lemma] && !c.perfect || long && !vagueWishes[c.lemma] && c.lemma != "feel" &&
		c.lemma != "wonder" && c.lemma != "mean" && c.lemma != "look") {
		return nil
	}
	at := c.rest
	if prepositions[c.low(at)] && c.low(at) != "to" {
		at++
	}
	text, _, ok := c.object(at)
	if !ok && !(c.low(at) == "the" && c.lemma == "learn") {
		return nil
	}
	return c.claim(c.subjectKey(), c.lemma+" "+trimAttribute(text))
}

// requests are things that somebody who asks the listener for something looks for.
var requests = set(`advice help tips ways suggestions ideas guidance feedback recommendations more some forward`)

var pursuits = set(`learn read train write build save prepare practice practise work organize organise apply volunteer teach take develop renovate raise run design paint knit campaign recover grow`)

// owns: "Jonas owns the deploy scripts", "Ana maintains the wiki".
func owns(c *clause) []draft {
	team := c.kind == thing && groups[c.low(c.subjEnd-1)]
	if c.kind != named && c.kind != first && !team || !c.present() || c.negated || c.lemma != "own" &&
		c.lemma != "maintain" || c.low(c.rest) != "the" || c.to-c.rest > 7 || c.to-c.rest < 2 {
		return nil
	}
	for i := c.rest; i < c.to; i++ {
		if low := c.low(i); !c.s.tokens[i].word || conjunctions[low] || vagueObjects[low] || low == "one" {
			return nil
		}
	}
	return c.claim(c.subjectKey(), "owns "+trimAttribute(c.text(c.rest, c.to)))
}

// recurs: "The retro takes place every second Thursday at 10:00", "our standup is on Mondays".
func recurs(c *clause) []draft {
	if c.kind != thing && c.kind != ours || !c.plain() || !c.present() {
		return nil
	}
	at := c.rest
	switch {
	case c.copula() || c.lemma == "happen" || c.lemma == "meet" || c.lemma == "start" || c.lemma == "run":
	case c.lemma == "take" && c.low(at) == "place":
		at++
	default:
		return nil
	}
	if c.low(at) == "on" {
		at++
	}
	day, many := strings.CutSuffix(c.low(at), "s")
	if of := c.low(at + 4); c.low(at) == "the" && timeUnits[c.low(at+2)] && c.low(at+3) == "of" &&
		(of == "each" || of == "every" || of == "the") {
		return c.claim(c.subjectKey(), "recurrence") // "on the first Monday of each month"
	}
	if !(many && timeUnits[day]) && !((c.low(at) == "every" || c.low(at) == "each") &&
		repeated(c.s.tokens[:c.to], at) || c.low(at) == "every" && timeUnits[c.low(at+2)]) {
		return nil
	}
	return c.claim(c.subjectKey(), "recurrence")
}

// absence: "Elif will be on parental leave from 1 April to 30 September", "I'm on vacation until
// Friday".
func absence(c *clause) []draft {
	if c.kind == thing || !c.copula() || c.past || c.negated || c.modal != "" && c.modal != "will" {
		return nil
	}
	at := c.rest
	switch c.low(at) {
	case "on":
		if at++; leaveKinds[c.low(at)] {
			at++
		}
		if low := c.low(at); at == c.rest+1 && (low == "call" || low == "duty") {
			if _, ok := c.lastDate(); ok {
				return c.claim(c.subjectKey(), "duty") // "Dana is on call this week"
			}
			return nil
		}
		if low := c.low(at); low != "leave" && low != "vacation" && low != "holiday" && low != "sabbatical" {
			return nil
		}
	case "away", "off", "out":
	default:
		return nil
	}
	if _, ok := c.lastDate(); !ok || !c.comes() {
		return nil
	}
	return c.claim(c.subjectKey(), "absence")
}

var leaveKinds = set(`parental maternity paternity annual sick paid unpaid`)

// practice: "I play the guitar", "Ana speaks French", "Bo drives a Prius", "I don't eat meat".
func practice(c *clause) []draft {
	unable := c.modal == "can" && c.negated && !c.past // "Ana can't eat gluten"
	if c.kind == thing || !c.present() && !unable {
		return nil
	}
	text, end, ok := c.object(c.rest)
	if low := c.low(c.rest); c.lemma == "speak" && (low == "fluent" || low == "good" || low == "some") {
		text, end, ok = c.object(c.rest + 1)
	} else if c.lemma == "speak" && low == "a" && c.low(c.rest+1) == "little" {
		text, end, ok = c.object(c.rest + 2)
	}
	if !ok || unable && c.lemma != "eat" && c.lemma != "drink" {
		return nil
	}
	low := c.low(end - 1)
	switch c.lemma {
	case "play":
		if !commonGround[low] && !games[low] && !games[c.low(c.rest)] {
			return nil
		}
	case "speak":
		if !c.s.tokens[end-1].capital() && !c.s.tokens[c.rest].capital() {
			return nil
		}
	case "drive":
		if !determiners[c.low(c.rest)] || c.low(c.rest) == "my" {
			return nil
		}
	case "eat", "drink", "smoke":
		again := c.low(c.to-1) == "again" // "I eat meat again"
		if !c.negated && !again || determiners[c.low(c.rest)] {
			return nil
		}
	case "wear":
	case "use", "need", "require", "support", "cost", "teach", "coach", "maintain", "manage", "run":
		if c.kind != named || c.lemma == "need" && c.low(c.rest) == "to" {
			return nil
		}
	default:
		return nil
	}
	return c.claim(c.subjectKey(), c.lemma+" "+trimAttribute(text))
}

var games = set(`piano guitar violin cello drums flute trumpet saxophone clarinet ukulele bass harp football soccer basketball baseball tennis golf hockey rugby cricket volleyball badminton chess poker
	squash softball lacrosse bridge go ping-pong pool darts keyboard banjo`)

// habit: "I run every morning", "Ana usually works from home", "Bo goes climbing twice a week".
func habit(c *clause) []draft {
	if c.kind == thing || !c.present() || c.copula() || states[c.lemma] {
		return nil
	}
	often := false
	for i := c.subjEnd; i < c.to; i++ {
		next := c.low(i + 1)
		switch c.low(i) {
		case "usually", "normally", "typically", "always", "never":
			often = often || i < c.verb
		case "every", "each":
			often = often || timeUnits[next] || weekdays[next] != 0
		case "once", "twice", "times":
			often = often || (next == "a" || next == "per") && timeUnits[c.low(i+2)]
		case "mondays", "tuesdays", "wednesdays", "thursdays", "fridays", "saturdays", "sundays", "weekends":
			often = often || c.low(i-1) == "on"
		}
	}
	at := c.rest
	if c.low(at) == "the" {
		at++ // "the train", "the bus": any of them
	}
	text, _, ok := c.object(at)
	if _, activity := is(c.low(c.rest), gerund); c.lemma == "go" && !activity && c.low(c.rest) != "to" {
		return nil
	}
	if !often || !ok && !timeUnits[c.low(c.rest+1)] {
		return nil
	}
	return c.claim(c.subjectKey(), "habit "+c.lemma+" "+trimAttribute(text))
}

var (
	timeUnits = set(`day morning afternoon evening night week weekend month year summer winter spring autumn weekday monday tuesday wednesday thursday friday saturday sunday`)
	states    = set(`think know feel want love hate like need hope guess mean believe remember find make get see hear say tell look seem wish keep help try let have give wonder appreciate forget dream worry end`)
)

// formerHabit: "I used to play football", "Bo used to live in Rome".
func formerHabit(c *clause) []draft {
	if c.modal != "used to" || c.kind == thing || c.negated {
		return nil
	}
	if c.copula() {
		if low := c.low(c.rest); low != "a" && low != "an" || vagueNouns[c.low(c.rest+1)] || c.rest+1 >= c.to {
			return nil
		}
		return c.claim(c.subjectKey(), "used to be "+c.text(c.rest, c.to))
	}
	at := c.rest
	for prepositions[c.low(at)] && at < c.to {
		at++
	}
	if states[c.lemma] && c.lemma != "love" && c.lemma != "hate" || c.lemma == "like" || c.lemma == "do" {
		return nil
	}
	text, _, ok := c.object(at)
	if !ok {
		return nil
	}
	return c.claim(c.subjectKey(), "used to "+c.lemma+" "+trimAttribute(text))
}

// traits are words after "is" that describe somebody, by the attribute that they set: of "vegan"
// and "vegetarian" the later holds.
var traits = map[string]string{
	"vegetarian": "diet", "vegan": "diet", "pescatarian": "diet", "lactose": "intolerance", "gluten-free": "diet", "omnivorous": "diet", "kosher": "diet", "halal": "diet",
	"single": "marital status", "married": "marital status", "divorced": "marital status", "engaged": "marital status", "widowed": "marital status", "separated": "marital status",
	"retired": "employment", "unemployed": "employment", "self-employed": "employment", "freelance": "employment", "pregnant": "pregnancy",
	"left-handed": "handedness", "right-handed": "handedness", "ambidextrous": "handedness", "colorblind": "sight", "colour-blind": "sight", "color-blind": "sight", "nearsighted": "sight",
	"deaf": "hearing", "blind": "sight", "diabetic": "diabetes", "dyslexic": "dyslexia", "asthmatic": "asthma", "transgender": "gender", "nonbinary": "gender", "non-binary": "gender",
	"gay": "orientation", "lesbian": "orientation", "bisexual": "orientation", "adopted": "adoption", "bilingual": "languages", "sober": "drinking", "teetotal": "drinking",
}

// trait: "I'm vegan", "Ana is allergic to nuts", "Bo is 34 years old", "I'm fluent in French".
func trait(c *clause) []draft {
	if c.kind == thing || !c.copula() || c.past || c.modal != "" {
		return nil
	}
	low, next := c.low(c.rest), c.low(c.rest+1)
	if low == "a" || low == "an" {
		low, next = next, c.low(c.rest+2)
		if traits[low] != "diet" || next != "" && !conjunctions[next] && c.s.tokens[c.rest+2].word {
			return nil
		}
	}
	switch {
	case traits[low] != "" && (next == "" || !c.s.tokens[c.rest+1].word || prepositions[next] || conjunctions[next] ||
		next == "again" || c.isTimeOfState(c.rest+1)):
		return c.claim(c.subjectKey(), traits[low])
	case low == "lactose" && next == "intolerant":
		return c.claim(c.subjectKey(), "intolerance of lactose")
	case low == "allergic" && next == "to":
		if text, _, ok := c.object(c.rest + 2); ok {
			return c.claim(c.subjectKey(), "allergy to "+trimAttribute(text))
		}
	case (low == "fluent" || low == "good" || low == "bad" || low == "terrible") && (next == "in" || next == "at"):
		if text, _, ok := c.object(c.rest + 2); ok {
			return c.claim(c.subjectKey(), "skill at "+trimAttribute(text))
		}
	case c.s.tokens[min(c.rest, c.to-1)].numeric() && next == "years" && c.low(c.rest+2) == "old",
		c.s.tokens[min(c.rest, c.to-1)].numeric() && c.rest+1 == c.to && len(low) == 2 && c.kind != ours:
		return c.claim(c.subjectKey(), "age")
	}
	return nil
}

// weight: "I weigh 78 kilos now".
func weight(c *clause) []draft {
	if c.lemma != "weigh" || !c.present() || c.rest >= c.to || !c.s.tokens[c.rest].numeric() {
		return nil
	}
	return c.claim(c.subjectKey(), "weight")
}

// occupation: "I'm a nurse", "Ana is a software engineer".
func occupation(c *clause) []draft {
	if c.kind == thing || c.kind == firstPlural || c.plural || !c.copula() || c.past || c.modal != "" ||
		c.low(c.rest) != "a" && c.low(c.rest) != "an" {
		return nil
	}
	head := c.rest
	for i := c.rest + 1; i < c.to && c.s.tokens[i].word && !prepositions[c.low(i)] && !conjunctions[c.low(i)] &&
		i < c.rest+5 && !c.isTimeOfState(i); i++ {
		head = i
	}
	if !isOccupation(c.low(head)) {
		return nil
	}
	return c.claim(c.subjectKey(), "occupation")
}

// isTimeOfState reports whether "now", "these days", "any more" or the like stands at token i.
func (c *clause) isTimeOfState(i int) bool { return c.low(i) == "now" || c.nowadays(i) }

func isOccupation(word string) bool {
	if occupations[word] {
		return true
	}
	return len(word) > 6 && (strings.HasSuffix(word, "ologist") || strings.HasSuffix(word, "ographer"))
}

var occupations = set(`nurse doctor teacher engineer developer programmer designer lawyer attorney chef cook baker writer author journalist artist painter sculptor musician singer dancer actor actress
	photographer student professor lecturer researcher scientist biologist chemist physicist accountant consultant manager analyst architect carpenter plumber electrician mechanic farmer gardener firefighter
	paramedic officer soldier veteran pilot driver dentist therapist counselor counsellor pharmacist veterinarian vet librarian translator interpreter editor barista bartender waiter waitress server
	realtor entrepreneur freelancer contractor coach trainer instructor tutor surgeon psychologist technician administrator sysadmin secretary receptionist cashier salesperson banker broker
	economist mathematician statistician historian curator filmmaker director producer animator illustrator blogger streamer gamer athlete runner swimmer boxer tailor florist hairdresser stylist electrician`)

// possession: "Ana has two kids", "I have a dog named Rex", "I own a house in Porto".
func possession(c *clause) []draft {
	if c.lemma != "have" && c.lemma != "own" || !c.present() || c.kind == thing {
		return nil
	}
	text, end, ok := c.object(c.rest)
	if c.low(c.rest) == "one" && c.rest+1 < c.to { // "one daughter"
		text, end, ok = c.object(c.rest + 1)
	}
	if !ok {
		return nil
	}
	for i := c.rest; i < end; i++ {
		if low := c.low(i); occasions[low] && c.comes() && determiners[c.low(c.rest)] {
			return c.claim(c.subjectKey(), "has "+trimAttribute(text))
		} else if possessions[low] || possessions[strings.TrimSuffix(low, "s")] {
			if _, count := number(c.low(c.rest)); count && c.low(c.rest) != "a" && c.low(c.rest) != "an" ||
				c.low(c.rest) == "no" {
				return c.claim(c.subjectKey(), "number of "+c.text(c.rest+1, i+1))
			}
			if !determiners[c.low(c.rest)] && c.low(c.rest) != "twins" && !allergies[low] || i > c.rest+4 {
				return nil
			}
			return c.claim(c.subjectKey(), "has "+trimAttribute(text))
		}
		if prepositions[c.low(i)] || conjunctions[c.low(i)] {
			return nil
		}
	}
	return nil
}

var (
	possessions = set(`kid kids child children son daughter brother sister sibling siblings twin twins cat dog puppy kitten pet turtle rabbit bird parrot fish horse goldfish hamster snake lizard husband wife
		partner girlfriend boyfriend roommate niece nephew grandson granddaughter grandkid cousin allergy allergies diabetes asthma degree phd diploma certificate car motorcycle motorbike bike boat house apartment flat
		cottage cabin farm garden studio blog podcast channel business company license tattoo piano guitar violin account subscription phobia condition`)
	allergies = set(`allergies diabetes asthma kids children twins siblings`)
)

// definition: "Helix is a text editor", "Paris is the capital of France".
func definition(c *clause) []draft {
	if c.kind != named || !c.copula() || c.past || c.modal != "" || c.negated || c.plural {
		return nil
	}
	low := c.low(c.rest)
	if low != "a" && low != "an" && low != "the" {
		return nil
	}
	end := c.rest + 1
	of := -1
	for end < c.to && c.s.tokens[end].word && !conjunctions[c.low(end)] {
		if c.low(end) == "of" && of < 0 {
			of = end
		}
		end++
	}
	if end-c.rest < 3 && low == "the" || end-c.rest < 2 || end-c.rest > 14 || vagueNouns[c.low(end-1)] ||
		c.refersBack(c.rest, c.to) || vagueNouns[c.low(c.rest+1)] || superlative(c.low(c.rest+1)) {
		return nil
	}
	if low == "the" {
		if of < 0 || of+1 >= end || c.low(of+1) == "my" || !isName(c.s.tokens[of+1]) && c.low(of+1) != "the" {
			return nil
		}
		return c.claim(c.foldTokens(of+1, end), c.text(c.rest+1, of))
	}
	return c.claim(c.subjectKey(), "is a "+trimAttribute(c.text(c.rest+1, end)))
}

// refersBack reports whether the tokens hold a word that refers to an earlier sentence, or a noun
// with little meaning.
func (c *clause) refersBack(from, to int) bool {
	for i := from; i < to; i++ {
		switch c.low(i) {
		case "this", "that", "it", "these", "those", "way", "thing", "reminder", "lot", "bit":
			return true
		}
	}
	return false
}

var vagueNouns = set(`lot bit thing things one way kind sort blast joy star legend gem treat delight pleasure hit must mess nightmare disaster dream genius hero champ rock sweetheart angel beauty big good great real true
	true huge bad nice such little perfect really very total lovely wonderful cool amazing awesome best worst fan place time pain`)

func superlative(word string) bool {
	return word == "best" || word == "worst" || word == "most" || strings.HasSuffix(word, "est")
}

// worksWith: "the payments service uses Postgres", "we use Helix for Go", "the API requires a key".
func worksWith(c *clause) []draft {
	if c.present() && c.lemma == "run" && c.low(c.rest) == "on" && c.rest+1 < c.to && isName(c.s.tokens[c.rest+1]) &&
		c.kind != first && c.kind != firstPlural {
		return c.claim(c.subjectKey(), "runs on")
	}
	if !c.present() || c.kind == named || !technical[c.lemma] {
		return nil
	}
	if c.kind != thing && c.lemma != "use" && !(c.kind == firstPlural && c.lemma == "store") {
		return nil
	}
	text, end, ok := c.object(c.rest)
	if !ok && c.lemma == "use" { // "for everything" is for no purpose
		for k := c.rest + 1; k < c.to-1 && !ok; k++ {
			if c.low(k) == "for" && vagueObjects[c.low(k+1)] {
				text, end, ok = c.text(c.rest, k), k, !vagueObjects[c.low(c.rest)]
			}
		}
	}
	if !ok || determiners[c.low(c.rest)] && c.low(c.rest) != "a" && c.low(c.rest) != "an" {
		return nil
	}
	for i := c.rest; i < end; i++ {
		if c.low(i) == "for" && i+1 < end {
			return c.claim(c.subjectKey(), c.lemma+" for "+c.text(i+1, end))
		}
		if c.low(i) == "to" {
			return nil
		}
	}
	text, _, _ = strings.Cut(text, " as ") // "use Firefox as my browser"
	return c.claim(c.subjectKey(), c.lemma+" "+trimAttribute(text))
}

var technical = set(`store use require support cost contain include need`)
