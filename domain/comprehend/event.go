package comprehend

import (
	"slices"
	"strings"
	"unicode"

	"github.com/annals-project/annals/domain/memory"
)

// eventVerbs describe events. Verbs of feeling, thinking and being are not among them.
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
	diagnose onboard offboard provision decommission patch archive revoke roll study divorce expire hold demo deprecate suggest recommend sprain twist fracture carpool hitchhike snorkel repaint adjourn tell say ask agree escalate audit audition ban block sculpt`)

// vagueEvents are verbs that describe an event only together with an object. With "to" and an
// infinitive, or with a bare preposition, they describe none.
var vagueEvents = set(`get make take see come go try set turn give hear find say tell ask show help start begin stop end keep put let become back hit pass change learn notice decide agree leave run lead play check improve`)

// readObservation states an event that the clause describes as done: in the past or the perfect,
// active or passive.
func readObservation(c *clause) []draft {
	if !(eventVerbs[c.lemma] || c.lemma == "have" && c.past && c.occasion()) {
		return nil
	}
	if doubtful(c) {
		head, ok := c.firstOfMany()
		if !ok || doubtful(&head) {
			return nil
		}
		c = &head
	}
	line := c.line()
	if line == "" {
		return nil
	}
	return []draft{c.draft(memory.Observation, line)}
}

// doubt is one reason.
type doubt struct {
	name  string
	holds func(*clause) bool
}

func doubtful(c *clause) bool {
	return slices.ContainsFunc(doubts, func(d doubt) bool { return d.holds(c) })
}

// firstOfMany returns the clause up to a comma that the next event follows: the first part of "we
// drove across Iceland in a van, slept in it, and saw …" can be understood alone.
func (c *clause) firstOfMany() (head clause, ok bool) {
	for i := c.rest + 1; i < c.to-1; i++ {
		if c.low(i) != "," {
			continue
		}
		if _, tells := is(c.low(i+1), past); tells {
			head = *c
			head.to = i
			return head, true
		}
	}
	return *c, false
}

// doubts are the reasons why a clause with the verb of an event states no event, or none that can
// be understood alone.
var doubts = []doubt{
	{"not done", func(c *clause) bool { return !c.plain() || c.progressive || !c.past && !c.perfect }},
	{"cut off", func(c *clause) bool {
		low := c.low(c.to - 1)
		return determiners[low] && low != "all" && low != "both" || low == "to" || low == "of"
	}},
	{"hedged", hedged},
	{"before another event", func(c *clause) bool { return c.perfect && c.past }},
	{"has got", func(c *clause) bool {
		return c.perfect && vagueEvents[c.lemma] && c.lemma != "leave" && c.lemma != "agree" && c.lemma != "decide"
	}},
	{"got nothing", func(c *clause) bool { return c.lemma == "get" && !c.acquires() }},
	{"was taken", func(c *clause) bool {
		return c.passive && (c.kind == first || c.kind == firstPlural) && vagueEvents[c.lemma]
	}},
	{"says too little", func(c *clause) bool { return !c.passive && !c.becomes() && !c.concrete() }},
	{"points elsewhere", (*clause).refersOutside},
	// "Yoga helped" is a judgement, not an event.
	{"was good for", func(c *clause) bool { return c.lemma == "help" && (c.kind == thing || c.kind == named) }},
	{"says of somebody", func(c *clause) bool { return reports[c.lemma] && c.kind != named && c.mentionsOther() }},
	{"of another verb", func(c *clause) bool { return c.infinitive() && !resolves[c.lemma] }},
}

// resolves are verbs whose infinitive is the decision: "decided to postpone the release".
var resolves = set(`decide agree volunteer`)

// hedged reports whether words of the clause revoke the event, or make it a condition or a wish.
func hedged(c *clause) bool {
	for i := c.from; i < c.to; i++ {
		if hedges[c.low(i)] || c.low(i) == "like" && i <= c.verb {
			return true
		}
	}
	return false
}

var hedges = set(`if almost nearly wish hardly barely unless nothing nobody supposedly allegedly maybe perhaps ever`)

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
