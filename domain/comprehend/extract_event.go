package comprehend

import "slices"

// occasion reports whether "had" describes an event: "had a picnic", "had surgery on Monday".
func (c *clause) occasion() bool {
	for i := c.rest; i < min(c.to, c.rest+6); i++ {
		if occasions[c.low(i)] {
			return true
		}
		if prepositions[c.low(i)] || conjunctions[c.low(i)] {
			return false
		}
	}
	return false
}

var occasions = set(`picnic party meeting baby surgery accident breakthrough conversation interview appointment wedding dinner lunch breakfast brunch barbecue bbq call setback injury session class
	lesson exam operation outage incident demo workshop concert gig performance recital ceremony reunion date checkup check-up scan crash fight argument celebration retreat sleepover`)

// refersOutside reports whether the clause refers to something outside of it: "this one", "about
// it".
func (c *clause) refersOutside() bool {
	for i := c.rest; i < c.to; i++ {
		if c.dateWord(i) {
			continue
		}
		switch next := c.low(i + 1); c.low(i) {
		case "this", "these", "those":
			return true
		case "that":
			if prepositions[c.low(i-1)] || next == "" {
				return true
			}
		case "it", "one", "them":
			if next == "" || !c.s.tokens[i+1].word || conjunctions[next] || c.low(i) == "it" && prepositions[c.low(i-1)] {
				return true
			}
		}
	}
	return false
}

// mentionsOther reports whether a pronoun for another person follows the verb: "the vet said that
// she needs rest".
func (c *clause) mentionsOther() bool {
	for i := c.rest; i < c.to; i++ {
		switch c.low(i) {
		case "he", "she", "they", "it", "him", "her":
			return true
		}
	}
	return false
}

// becomes reports whether the clause is "got promoted", "got married" and the like.
func (c *clause) becomes() bool { return c.lemma == "get" && gotDone[c.low(c.rest)] }

// acquires reports whether "got" describes an event: "got a new job", "got promoted", not "got the
// idea", "got to", "got lost in it".
func (c *clause) acquires() bool {
	if c.becomes() {
		return true
	}
	low := c.low(c.rest)
	if _, count := number(low); !count && low != "my" && low != "our" && low != "another" && low != "the" {
		return false
	}
	for i := c.rest; i < min(c.to, c.rest+4); i++ {
		if empty[c.low(i)] {
			return false
		}
	}
	return true
}

var (
	gotDone = set(`married engaged divorced promoted fired hired accepted rejected injured hurt sick elected nominated certified vaccinated licensed invited robbed laid`)
	empty   = set(`idea chance feeling point lot bit sense kick blast hang best back hold taste time way urge impression minute opportunity`)
)

// concrete reports whether the words after the verb can be understood alone: a noun that is not a
// bare pronoun, and for verbs of little meaning more than one word.
func (c *clause) concrete() bool {
	i := c.rest
	for i < c.to && (adverbs[c.low(i)] || particlesOf[c.low(i)] && !determiners[c.low(i+1)]) {
		i++
	}
	switch low := c.low(i); low {
	case "his", "their", "its":
		if c.kind != named || c.plural != (low == "their") { // "Globex renewed its contract"
			return false
		}
	case "that":
		if !reports[c.lemma] {
			return false
		}
	default:
		if vagueObjects[low] && low != "us" {
			return false
		}
	}
	nouns := 0
	for k := c.rest; k < c.to; k++ {
		low := c.low(k)
		if _, verb := is(low, participle); verb {
			continue
		}
		if c.s.tokens[k].word && !adverbs[low] && !prepositions[low] && !determiners[low] && !vagueObjects[low] &&
			!pronouns[low] && !c.dateWord(k) {
			nouns++
		}
	}
	if nouns == 0 {
		// "The server crashed", "Ana resigned yesterday": with a named subject the verb is enough.
		return (c.kind == named || c.kind == thing || c.kind == ours) && !vagueEvents[c.lemma] && !transitive[c.lemma]
	}
	return !vagueEvents[c.lemma] || nouns >= 1
}

// reports are verbs that report a statement of another person.
var reports = set(`say tell announce report explain reveal decide agree notice hear learn discover`)

// particlesOf are words that belong to the verb before them.
var particlesOf = set(`up out off down away over back in on around together forward`)

// transitive verbs have no meaning without an object.
var transitive = set(`write read accept achieve acquire adopt appoint assign attend bring build buy carve catch choose collect create discover discuss donate enter feed file film hand host implement
	install introduce invent invite join knit lend lift list load lose master meet mention miss mix offer order photograph pick plant postpone propose purchase raise reach receive record reduce replace
	request rescue reserve restore reveal score sell send share sign spend throw wrap sculpt review refactor deploy verify test complete fix merge update configure improve design publish submit approve`)

// dateWord reports whether token i is part of a date expression.
func (c *clause) dateWord(i int) bool {
	return slices.ContainsFunc(c.s.dates, func(d dated) bool { return i >= d.from && i < d.to })
}
