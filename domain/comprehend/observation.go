package comprehend

import (
	"slices"

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
