package comprehend

import (
	"slices"
	"strings"
)

// findVerb reads auxiliaries and the main verb after the subject.
func (c *clause) findVerb() bool {
	i := c.subjEnd
	c.finite = -1
	for ; i < c.to; i++ {
		low := c.low(i)
		switch {
		case low == "not" || low == "never":
			c.negated = true
			continue
		case low == "no" && c.low(i+1) == "longer":
			c.negated = true
			i++
			continue
		case adverbs[low] && !c.verbHere(i):
			continue
		}
		if c.finite < 0 {
			c.finite = i
		}
		done, ok := c.auxiliary(i)
		if !ok {
			return false
		}
		if done {
			return c.finish()
		}
	}
	return false
}

// verbHere reports whether a word that can be an adverb is the verb ("I last saw", but "I long
// for").
func (c *clause) verbHere(i int) bool {
	_, ok := is(c.low(i), base|third|past)
	return ok && c.finite >= 0
}

// ahead returns the next token after i that is neither an adverb nor "not".
func (c *clause) ahead(i int) int {
	for i++; i < c.to && (adverbs[c.low(i)] || c.low(i) == "not"); i++ {
	}
	return i
}

// auxiliary reads one word of the verb group at i. done is true if that word is the main verb, ok
// is false if it does not fit.
func (c *clause) auxiliary(i int) (done, ok bool) {
	low, ahead := c.low(i), c.ahead(i)
	next := c.low(ahead)
	_, nextBase := is(next, base)
	_, nextPart := is(next, participle)
	_, nextGerund := is(next, gerund)
	nextBase = nextBase || next == "be"
	switch {
	case modals[low]:
		if low == "'d" && (nextPart && !nextBase || next == "been" || next == "better") {
			c.perfect, c.past = true, true
			return false, next != "better"
		}
		c.modal = low
		return false, nextBase || haveForms[next]
	case low == "'s" && (next == "been" || next == "got"):
		c.perfect = true
		return false, true
	case beForms[low]:
		c.past = c.past || low == "was" || low == "were"
		switch {
		case next == "going" && c.low(ahead+1) == "to" && isBase(c.low(ahead+2)):
			c.modal, c.verb = "going to", ahead+2
			c.lemma = c.low(c.verb)
			return true, true
		case nextGerund && (!nounLike[next] || c.acts()):
			c.progressive = true
			return false, true
		case nextPart && !adjectives[next]:
			c.passive = true
			return false, low != "'s"
		case next == "being":
			return false, false
		}
		c.verb, c.lemma = i, "be"
		return true, true
	case haveForms[low] && (nextPart && next != "had" && !determiners[next] || next == "been"):
		c.past = low == "had"
		c.perfect = true
		return false, true
	case doForms[low] && c.finite == i && nextBase && low != "doing":
		c.past = low == "did"
		return false, true
	case low == "used" && c.low(i+1) == "to" && c.finite == i:
		c.modal, c.verb, c.lemma = "used to", i+2, c.low(i+2)
		return true, isBase(c.lemma)
	case low == "been":
		c.verb, c.lemma = i, "be"
		if nextGerund {
			c.progressive = true
			return false, true
		}
		if nextPart && !adjectives[next] {
			c.passive = true
			return false, true
		}
		return true, true
	}
	return true, c.mainVerb(i)
}

// acts reports whether the subject is a person, who does things: "I'm reading Dune". In "my hobby is
// reading" the same word is a noun.
func (c *clause) acts() bool {
	return c.kind == first || c.kind == firstPlural ||
		c.kind == named && nameEnd(c.s.tokens[:c.to], c.subj) == c.subjEnd && c.doc.names[c.low(c.subj)]
}

func isBase(low string) bool {
	_, ok := is(low, base)
	return ok || low == "be"
}

// mainVerb reads the word at i as the main verb, in the form that the words before it require.
func (c *clause) mainVerb(i int) bool {
	c.verb = i
	low := c.low(i)
	var ok bool
	switch {
	case low == "be":
		c.lemma = "be"
		return c.modal != ""
	case c.progressive:
		c.lemma, ok = is(low, gerund)
	case c.passive, c.perfect:
		c.lemma, ok = is(low, participle)
	case c.modal != "", c.finite != i:
		c.lemma, ok = is(low, base)
	case c.kind == first || c.kind == firstPlural || c.plural:
		c.lemma, ok = is(low, past)
		c.past = ok
		if low == "quit" {
			return true // nobody quits as a habit
		}
		if present, can := is(low, base); can && (!ok || !c.s.tense.past && !c.pastDated()) {
			c.lemma, c.past = present, false
			return !ok // "I read" and "we cut" are ambiguous
		}
	default:
		if c.lemma, ok = is(low, third); !ok {
			c.lemma, ok = is(low, past)
			c.past = ok
		}
		if !ok && c.manyAs(c.subjEnd-1) {
			c.lemma, ok = is(low, base)
			c.plural = ok
		}
	}
	return ok
}

// manyAs reports whether the word at token i is a plural noun, as "parents" in "my parents live in
// Ohio".
func (c *clause) manyAs(i int) bool {
	low := c.low(i)
	return low == "children" || low == "people" || len(low) > 3 && strings.HasSuffix(low, "s") &&
		!strings.HasSuffix(low, "ss") && !strings.HasSuffix(low, "us") && !c.s.tokens[i].capital()
}

// pastDated reports whether the sentence names a time before its own.
func (c *clause) pastDated() bool {
	return slices.ContainsFunc(c.s.dates, func(d dated) bool { return d.end.Before(c.doc.occurredAt) })
}

// finish sets the words after the verb.
func (c *clause) finish() bool {
	c.rest = c.verb + 1
	for c.rest < c.to && (c.copula() || c.low(c.rest) == "not") &&
		(adverbs[c.low(c.rest)] && c.low(c.rest) != "back" && c.low(c.rest) != "together" || c.low(c.rest) == "not" ||
			c.low(c.rest) == "never") {
		c.negated = c.negated || c.low(c.rest) == "not" || c.low(c.rest) == "never"
		c.rest++
	}
	if c.copula() && c.low(c.rest) == "no" && c.low(c.rest+1) == "longer" {
		c.negated = true
		c.rest += 2
	}
	return true
}

var (
	// nounLike are gerunds that are nouns after "is".
	nounLike = set(`acting painting building meeting reading writing running swimming cooking baking hiking camping dancing singing fishing gardening`)
	// adjectives are participles that describe a state after "be", not an action.
	adjectives = set(`excited tired interested married divorced engaged worried concerned surprised scared lost done finished known
		allergic retired experienced inspired amazed stressed relaxed pleased blessed bored confused thrilled loved open closed born used supposed involved
		located based related determined dedicated committed limited prepared organized set overwhelmed exhausted convinced disappointed embarrassed
		qualified skilled talented hooked gone due mixed close live clean welcome slow complete dry separate own`)
)

// coordinated cuts a clause with two statements on one subject in the present into two: "Ana lives
// in Berlin and works at Acme". Past events stay together: "Ana went to Rome and saw the Forum" is
// one event.
func coordinated(c clause) []clause {
	since := c.past && !c.passive && c.modal == "" // "Ana left Acme and now works for Globex"
	if !since && (!c.present() && !c.progressive || c.past) || c.negated || c.infinitive() {
		return []clause{c}
	}
	for i := c.rest + 1; i+2 < c.to; i++ {
		if low := c.low(i); low != "and" && low != "but" || c.low(i-1) == "to" {
			continue
		}
		next := i + 1
		for adverbs[c.low(next)] {
			next++
		}
		if since && c.low(i+1) != "now" || !c.agrees(next) {
			continue
		}
		second, ok := c.withSubject(i+1, c.to)
		if !ok {
			return []clause{c}
		}
		head := c
		head.to = i
		for head.to > head.rest && !head.s.tokens[head.to-1].word {
			head.to--
		}
		return append([]clause{head}, coordinated(second)...)
	}
	return []clause{c}
}

// infinitive reports whether the verb takes an infinitive ("hopes to build …"): a verb after "and"
// is then another infinitive.
func (c *clause) infinitive() bool { return c.low(c.rest) == "to" && isBase(c.low(c.rest+1)) }

// agrees reports whether token i is a verb in the present that agrees with the subject of the
// clause, and not a noun.
func (c *clause) agrees(i int) bool {
	low, next := c.low(i), c.low(i+1)
	if next == "not" && (low == "can" || low == "cannot" || low == "do" || low == "does") && isBase(c.low(i+2)) {
		return true
	}
	_, activity := is(next, gerund)
	if c.kind == first || c.kind == firstPlural || c.plural {
		_, ok := is(low, base)
		return low == "am" || low == "have" && determiners[next] ||
			ok && (determiners[next] || prepositions[next] || activity || nounAfter[low] && next != "")
	}
	_, ok := is(low, third)
	return low == "is" || low == "has" || ok && (determiners[next] || prepositions[next] || activity ||
		nounAfter[c.lemmaOf(low)] && next != "")
}

func (c *clause) lemmaOf(low string) string {
	lemma, _ := is(low, third)
	return lemma
}

// nounAfter are verbs that take a bare noun and cannot be nouns.
var nounAfter = set(`hate enjoy prefer speak adore dislike own eat drive teach learn`)

// withSubject returns the tokens [from, to) as a clause of the same subject. Its sentence consists
// of both groups of tokens, which keep their offsets in the text.
func (c *clause) withSubject(from, to int) (clause, bool) {
	s := *c.s
	s.tokens = append(append([]token(nil), c.s.tokens[c.subj:c.subjEnd]...), c.s.tokens[from:to]...)
	if n := c.subjEnd - c.subj; n < len(s.tokens) {
		s.tokens[n].gap = true
	}
	s.dates = nil
	s.dates = findDates(&s, c.doc.occurredAt)
	return parse(c.doc, &s, 0, len(s.tokens))
}

// form is the set of inflections that a word can be, as bits: "read" is base, past and participle.
type form uint8

const (
	base form = 1 << iota
	third
	past
	participle
	gerund
)

// verb is one reading of a word.
type verb struct {
	lemma string
	forms form
}

// irregular are verbs whose past does not end in -ed: base, past, participle; alternatives after a
// slash.
const irregular = `become became become|begin began begun|bend bent bent|bet bet bet|bite bit bitten|blow blew blown|break broke broken|bring brought brought|
build built built|rebuild rebuilt rebuilt|burn burned/burnt burned/burnt|buy bought bought|catch caught caught|choose chose chosen|come came come|cost cost cost|cut cut cut|
deal dealt dealt|dig dug dug|do did done|draw drew drawn|dream dreamed/dreamt dreamed/dreamt|drink drank drunk|drive drove driven|eat ate eaten|fall fell fallen|
feed fed fed|feel felt felt|fight fought fought|find found found|fly flew flown|forget forgot forgotten|forgive forgave forgiven|freeze froze frozen|get got got/gotten|
give gave given|go went gone|grow grew grown|hang hung hung|have had had|hear heard heard|hide hid hidden|hit hit hit|hold held held|hurt hurt hurt|keep kept kept|
know knew known|lay laid laid|lead led led|learn learned/learnt learned/learnt|leave left left|lend lent lent|let let let|light lit lit|lose lost lost|make made made|mean meant meant|
meet met met|overcome overcame overcome|pay paid paid|put put put|quit quit quit|read read read|ride rode ridden|ring rang rung|rise rose risen|run ran run|say said said|
see saw seen|seek sought sought|sell sold sold|send sent sent|resend resent resent|set set set|reset reset reset|sew sewed sewn|shake shook shaken|shoot shot shot|show showed shown|shut shut shut|
sing sang sung|sink sank sunk|sit sat sat|sleep slept slept|speak spoke spoken|spend spent spent|split split split|spread spread spread|stand stood stood|steal stole stolen|
stick stuck stuck|strike struck struck|swear swore sworn|sweep swept swept|swim swam swum|take took taken|teach taught taught|tear tore torn|tell told told|
think thought thought|throw threw thrown|understand understood understood|wake woke woken|wear wore worn|win won won|withdraw withdrew withdrawn|write wrote written|
rewrite rewrote rewritten|undergo underwent undergone|retake retook retaken|forbid forbade forbidden`

// regular are the verbs that are inflected by rule. A verb in neither list is not recognised and
// yields no memory.
const regular = `accept accompany achieve acquire act adapt add admire admit adopt adore advise agree aim allow announce answer apologize appear apply appoint
appreciate approve argue arrange arrive ask assemble assign assist attach attend audit avoid back backpack bake ban bargain bathe believe belong bike bless block
board boil book borrow bother bowl brew bump call camp campaign cancel care carry carve cause celebrate change charge chat chase check cheer chop claim clean clear climb
close coach code collaborate collapse collect comment commit commute compare compete complain complete compose concern conclude conduct configure confirm connect consider
consist consume contact contain continue contribute convert cook coordinate copy correct count cover craft crash create cross crochet cry cure customize cycle dance date debug
decide declare decline decorate dedicate defend delay delegate delete deliver demo deny depart depend deploy describe deserve design destroy detect determine develop die
dine direct disable disagree disappear discover discuss dislike display distribute dive divide divorce document donate double download draft drag drain dress drop dry dump earn edit
elect email embrace emigrate employ enable encounter encourage end endorse engage enjoy enlist enroll ensure enter entertain escalate escape establish evaluate exercise exhibit exist
expand expect experience experiment explain explore export express extend face fail fear file fill film finalize finish fire fish fit fix flip flow focus follow force
format forward foster found frame freelance fry fuel fund garden gather generate graduate grab greet grill guess guide hack handle happen harvest hate head heal help
hike hire honor host hug hunt identify ignore imagine immigrate implement import improve include increase inform inherit injure insist inspect inspire install integrate intend
interview introduce invent invest investigate invite iron isolate issue jog join journal judge juggle jump kayak kick kill kiss knit knock label land last laugh launch lecture license
lift like link list listen live load lock log look love lower mail maintain major manage map mark marry master match matter measure meditate mention mentor merge migrate
mind miss mix model modify monitor mount mourn move mow name need negotiate nominate note notice notify number obtain occur offer open operate oppose order organize organise own
pack paddle paint park participate partner pass pause perform pick pilot pitch place plan plant play point polish post postpone pour practice practise pray prefer prepare present
preserve press prevent print proceed process produce profile program promise promote propose protect prototype protest prove provide publish pull purchase push race rain raise
ramp rate reach react realize rebase receive recommend record recover recruit recycle redesign reduce refactor refer refinish refuse regret reject relate relax release relocate rely remember
remind remodel remove rename renew renovate rent reopen repair repeat replace reply report represent request rescue research reserve resign resolve respond rest restart restore restock
result resume retire retrain retry return reunite reveal reverse revert review revise reward roast rollback rotate ruin rule rush sail sample save scan scare schedule score scrap scream search secure
select separate serve settle sew shadow share shift ship shop sign simplify sketch ski skate skip slip slow smell smile smoke snow solve sort sound spill sponsor spot squash
stage start state stay step stop store stream stretch struggle study subscribe submit succeed suffer suggest support suppose surf surprise survive suspect suspend switch table tackle
talk taste tax test text thank tidy tie toast top touch tour track trade train transfer transform translate transport travel treat trek trim trip triage trust try
turn type undertake unlock unpack unveil update upgrade upload use vacation validate value verify visit volunteer vote wait walk wander want warn wash waste watch water welcome whip wipe
wish wonder work worry wrap yell surprise sprain twist fracture bruise faint recover adjourn onboard offboard provision decommission patch benchmark snapshot archive restrict revoke grant rollout
crochet sculpt doodle captain deprecate chair cite omit paraphrase capitalise capitalize indent abbreviate hardcode ping mute photograph narrate rehearse rap busk strum tutor homeschool hope seem diagnose require register hand swap reschedule advance expire audition form hesitate doubt underestimate zip gain weigh roll compile encrypt sync alert trigger reboot leak
throttle unblock assume estimate scale tag queue kneel carpool hitchhike snorkel kickbox spar sweat stretch rearrange repaint repot rewire `

// doubling verbs repeat their last consonant before -ed and -ing.
var doubling = set(`omit swap tag stop plan ship drop hug chat jog commit refer prefer admit transfer submit ban fit grab knit log map scan skip slip spot step trim trip wrap whip flip 
	chop drag shop strum spar rap travel cancel model label transfer program bet get put run sit swim win cut set hit let quit shut begin forget dig split reset zip forbid`)

// plainEnds are verbs that look as if they doubled but need not (both British and American
// spellings are read).
var plainEnds = set(`travel cancel model label program`)

// lexicon maps every inflected word to its readings.
var lexicon = buildLexicon()

func buildLexicon() map[string][]verb {
	m := map[string][]verb{}
	add := func(word, lemma string, f form) {
		for i, v := range m[word] {
			if v.lemma == lemma {
				m[word][i].forms |= f
				return
			}
		}
		m[word] = append(m[word], verb{lemma, f})
	}
	common := func(lemma string) {
		add(lemma, lemma, base)
		add(thirdPerson(lemma), lemma, third)
		stem := strings.TrimSuffix(lemma, "e")
		switch {
		case strings.HasSuffix(lemma, "ie"):
			add(lemma[:len(lemma)-2]+"ying", lemma, gerund)
		case strings.HasSuffix(lemma, "ee"), lemma == "be":
			add(lemma+"ing", lemma, gerund)
		case doubling[lemma]:
			add(lemma+lemma[len(lemma)-1:]+"ing", lemma, gerund)
			if plainEnds[lemma] {
				add(lemma+"ing", lemma, gerund)
			}
		default:
			add(stem+"ing", lemma, gerund)
		}
	}
	for row := range strings.SplitSeq(irregular, "|") {
		forms := strings.Fields(row)
		common(forms[0])
		for w := range strings.SplitSeq(forms[1], "/") {
			add(w, forms[0], past)
		}
		for w := range strings.SplitSeq(forms[2], "/") {
			add(w, forms[0], participle)
		}
	}
	for lemma := range strings.FieldsSeq(regular) {
		common(lemma)
		for _, w := range regularPast(lemma) {
			add(w, lemma, past|participle)
		}
	}
	return m
}

// regularPast returns the spellings of the past of a regular verb.
func regularPast(lemma string) []string {
	last := lemma[len(lemma)-1]
	switch {
	case last == 'e':
		return []string{lemma + "d"}
	case last == 'y' && !strings.ContainsRune("aeiou", rune(lemma[len(lemma)-2])):
		return []string{lemma[:len(lemma)-1] + "ied"}
	case plainEnds[lemma]:
		return []string{lemma + "ed", lemma + string(last) + "ed"}
	case doubling[lemma]:
		return []string{lemma + string(last) + "ed"}
	}
	return []string{lemma + "ed"}
}

// thirdPerson returns the present of a verb after he, she or a name.
func thirdPerson(lemma string) string {
	switch lemma {
	case "be":
		return "is"
	case "have":
		return "has"
	case "do", "go", "undergo":
		return lemma + "es"
	}
	last := lemma[len(lemma)-1]
	switch {
	case last == 'y' && !strings.ContainsRune("aeiou", rune(lemma[len(lemma)-2])):
		return lemma[:len(lemma)-1] + "ies"
	case last == 's', last == 'x', last == 'z', strings.HasSuffix(lemma, "ch"), strings.HasSuffix(lemma, "sh"):
		return lemma + "es"
	}
	return lemma + "s"
}

// is reports whether a word can be one of these forms of a verb, and returns that verb.
func is(word string, forms form) (lemma string, ok bool) {
	for _, v := range lexicon[word] {
		if v.forms&forms != 0 {
			return v.lemma, true
		}
	}
	return "", false
}

// tense is the time that the verbs of a sentence express.
type tense struct{ past, future bool }

// tenseOf reads the verbs of a sentence. For a participle after a form of "be", that form counts.
func tenseOf(tokens []token) tense {
	var t tense
	be := false // a present form of "be" precedes, perhaps with adverbs after it
	for i, tok := range tokens {
		next := ""
		if i+1 < len(tokens) {
			next = tokens[i+1].low
		}
		switch low := tok.low; {
		case low == "was" || low == "were" || low == "did" || low == "had":
			t.past = true
		case low == "will" || low == "shall" || low == "gonna" || low == "must" || low == "should" || low == "let" &&
			next == "'s":
			t.future = true
		case (low == "plan" || low == "planning" || low == "hope" || low == "hoping" || low == "need" || low == "have" ||
			low == "want") && next == "to":
			t.future = true
		case low == "due" || low == "upcoming" || low == "deadline" || low == "scheduled":
			t.future = t.future || be
		case low == "am" || low == "are" || low == "is" || low == "'s" || low == "be":
			be = true
			continue
		case adverbs[low]:
			continue
		default:
			if _, ok := is(low, gerund); ok && be && i > 0 {
				t.future = true
				// "the attached document" expresses no past
			} else if _, ok := is(low, past); ok && !be && !(i > 0 && determiners[tokens[i-1].low]) {
				if _, present := is(low, base); !present {
					t.past = true
				}
			}
		}
		be = false
	}
	return t
}
