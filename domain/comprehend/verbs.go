package comprehend

import "strings"

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
