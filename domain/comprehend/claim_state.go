package comprehend

import "strings"

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
