package comprehend

import "github.com/annals-project/annals/domain/memory"

// eventVerbs tell that something happened. Verbs of feeling, thinking and being are not among them.
var eventVerbs = set(`accept accompany achieve acquire adopt announce appear apply appoint approve arrange arrive assemble assign attend audit back bake ban become begin book
	break bring build buy call camp cancel carve catch celebrate change chat check choose clean climb close code collaborate collapse collect come commit complete compose conduct configure
	connect contribute convert cook coordinate crash create cross cure cut cycle dance debug decide decorate delay delete deliver deploy design destroy develop die dig
	discover discuss dive donate download draw drive drop earn eat edit elect email end enroll enter escape establish exhibit expand explain explore fail fall
	feed file film find finish fire fish fix fly form found gather get give go graduate grill grow hand hang harvest hear help hike hire hit host hug hunt hurt implement improve injure inherit install
	interview introduce invent invest invite join kayak kick kiss knit land launch lead learn leave lend lift light list load lose make map mark marry master meet mentor merge migrate miss mix
	move notice offer open order organize organise pack paint park participate pass pay perform photograph pick pitch plant play postpone pour practice practise prepare present print produce promote propose protest
	publish pull purchase push quit race raise reach read receive record recover recruit redesign reduce refactor register reject release relocate remodel remove rename renew renovate rent reopen repair
	replace report request rescue reschedule research reserve resign resolve restart restore resume retire return reunite reveal revert review revise ride roast run sail save schedule score see sell send
	serve set settle sew share ship shoot show shut sign sing ski sketch skip snow speak spend split sponsor spot start steal stop submit surf survive swap swim switch take teach tear test throw tour train
	transfer translate travel trek try turn undergo unveil update upgrade upload vacation visit volunteer vote walk wander wash watch win withdraw wrap write rebuild rewrite reset resend restock
	diagnose onboard offboard provision decommission patch archive revoke sprain twist fracture carpool hitchhike snorkel repaint adjourn tell say ask agree escalate audit audition ban block sculpt`)

// objectless verbs tell an event only together with what it concerned; with "to" and an infinitive, or with a bare
// preposition, they tell nothing.
var vagueEvents = set(`get make take see come go try set turn give hear find say tell ask show help start begin stop end keep put let become back hit pass change learn notice decide agree leave run lead play check improve`)

// readObservation states an event that the clause tells of as done: in the past or the perfect, active or passive.
func readObservation(c *clause) []draft {
	if !(eventVerbs[c.lemma] || c.lemma == "have" && c.past && c.occasion()) || c.negated || c.modal != "" || c.progressive || !(c.past || c.perfect) || hedged(c) {
		return nil
	}
	if c.perfect && (c.past || vagueEvents[c.lemma]) { // "had done" sets the scene of another event, "has got" is "has"
		return nil
	}
	if c.lemma == "get" && !c.acquires() {
		return nil
	}
	if c.passive && (c.kind == first || c.kind == firstPlural) && vagueEvents[c.lemma] {
		return nil
	}
	if !c.passive && !(c.lemma == "get" && gotDone[c.low(c.rest)]) && !c.concrete() || c.dangles() {
		return nil
	}
	if c.lemma == "help" && (c.kind == thing || c.kind == named) {
		return nil // "Yoga helped": that something was good, not that it happened
	}
	if c.low(c.rest) == "to" && isBase(c.low(c.rest+1)) && c.lemma != "decide" && c.lemma != "agree" && c.lemma != "volunteer" {
		return nil
	}
	line := c.line()
	if line == "" {
		return nil
	}
	return []draft{c.draft(memory.Observation, line)}
}

// occasion reports whether "had" tells of an event: "had a picnic", "had surgery on Monday".
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

// dangles reports whether the clause points at something that only the words around it show: "this one", "about it".
func (c *clause) dangles() bool {
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

// acquires reports whether "got" tells of an event: "got a new job", "got promoted", not "got the idea", "got to", "got lost in it".
func (c *clause) acquires() bool {
	low := c.low(c.rest)
	if gotDone[low] {
		return true
	}
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
	empty   = set(`idea chance feeling point lot bit point sense kick blast hang best back hold taste time way urge impression minute opportunity`)
)

// hedged reports whether words of the clause take the event back, or make it a condition or a wish.
func hedged(c *clause) bool {
	for i := c.from; i < c.to; i++ {
		switch c.low(i) {
		case "if", "almost", "nearly", "wish", "hardly", "barely", "unless", "nothing", "nobody", "supposedly", "allegedly", "maybe", "perhaps", "like", "ever":
			if c.low(i) != "like" || i <= c.verb {
				return true
			}
		}
	}
	return false
}

// concrete reports whether what follows the verb can be understood alone: a noun that is no bare pronoun, and for verbs that
// say little by themselves more than one word of it.
func (c *clause) concrete() bool {
	i := c.rest
	for i < c.to && (adverbs[c.low(i)] || particlesOf[c.low(i)] && !determiners[c.low(i+1)]) {
		i++
	}
	if i < c.to && vagueObjects[c.low(i)] && c.low(i) != "us" && !(c.low(i) == "that" && reports[c.lemma]) {
		return false
	}
	switch c.low(i) {
	case "his", "their", "its":
		return false
	}
	nouns := 0
	for k := c.rest; k < c.to; k++ {
		low := c.low(k)
		if _, verb := is(low, participle); verb {
			continue
		}
		if c.s.tokens[k].word && !adverbs[low] && !prepositions[low] && !determiners[low] && !vagueObjects[low] && !pronouns[low] && !c.dateWord(k) {
			nouns++
		}
	}
	if nouns == 0 {
		// "The server crashed", "Ana resigned yesterday": with a named subject the verb is enough.
		return (c.kind == named || c.kind == thing || c.kind == ours) && !vagueEvents[c.lemma] && !transitive[c.lemma]
	}
	return !vagueEvents[c.lemma] || nouns >= 1
}

// reports are verbs that tell what somebody else stated.
var reports = set(`say tell announce report explain reveal decide agree notice hear learn discover`)

// particlesOf are words that belong to the verb before them.
var particlesOf = set(`up out off down away over back in on around together forward`)

// transitive verbs say nothing without an object.
var transitive = set(`accept achieve acquire adopt appoint assign attend bring build buy carve catch choose collect create discover discuss donate enter feed file film hand host implement
	install introduce invent invite join knit lend lift list load lose master meet mention miss mix offer order photograph pick plant postpone propose purchase raise reach receive record reduce replace
	request rescue reserve restore reveal score sell send share sign spend throw wrap sculpt review refactor deploy verify test complete fix merge update configure improve design publish submit approve`)

// dateWord reports whether token i is part of a date expression.
func (c *clause) dateWord(i int) bool {
	for _, d := range c.s.dates {
		if i >= d.from && i < d.to {
			return true
		}
	}
	return false
}
