package comprehend

import (
	"slices"
	"strings"

	"github.com/annals-project/annals/domain/memory"
)

// readRules reads a permanent instruction: an order that is not about a single occasion, or what
// all of a kind must or must not do.
func readRules(d *document, s *sentence) []draft {
	if s.question || len(s.tokens) < 3 || len(s.tokens) > maxClause || quotesSpeech(s) {
		return nil
	}
	i := ruleStart(s.tokens)
	announced := i > 0 && s.tokens[i-1].low == ":" && announcing[lowAt(s.tokens, i-2)]
	if !isStandingOrder(s.tokens, i, announced) && !obliges(s, i) && !bans(s, i, announced) {
		return nil
	}
	c := clause{doc: d, s: s, from: i, to: len(s.tokens), subj: i, subjEnd: i}
	line := c.say(i, len(s.tokens))
	if line == "" {
		return nil
	}
	return []draft{c.draft(memory.Rule, line)}
}

// announcing words announce an instruction with a colon.
var announcing = set(`rule remember reminder note policy important guideline instruction`)

// ruleStart returns where the instruction begins after "Rule:", "Remember:", "and", "ok,".
func ruleStart(tokens []token) int {
	i := 0
	for i < len(tokens)-1 {
		low := tokens[i].low
		switch {
		case !tokens[i].word, interjections[low] && low != "please" && !(low == "no" && tokens[i+1].word) &&
			low != "see" && low != "look":
		case low == "new" && announcing[tokens[i+1].low] && lowAt(tokens, i+2) == ":":
		case announcing[low] && (tokens[i+1].low == ":" || tokens[i+1].low == "," || tokens[i+1].low == "-"):
		default:
			return i
		}
		i++
	}
	return i
}

// isStandingOrder reports whether the tokens from i on are an order for every occasion: "Never
// deploy on Fridays", "Always run the tests", "Don't push to main", "From now on, answer in
// French", "Please always call me Ana".
func isStandingOrder(tokens []token, i int, announced bool) bool {
	begins := i
	low := func(k int) string {
		if k < 0 || k >= len(tokens) {
			return ""
		}
		return tokens[k].low
	}
	i, forever := skipOpening(tokens, i)
	for low(i) == "please" || low(i) == "," && forever {
		i++
	}
	if low(i) == "you" && (low(i+1) == "must" || low(i+1) == "should" || low(i+1) == "have" && low(i+2) == "to") {
		i += 2
		if low(i) == "to" {
			i++
		}
		if low(i) != "always" && low(i) != "never" && !forever {
			return false
		}
	}
	switch {
	case low(i) == "always" && low(i+1) == "give" && low(i+2) == "me":
		return i+3 < len(tokens)
	case low(i) == "never" || low(i) == "always" || low(i) == "only" && len(tokens) > i+3:
		return orders(tokens, i+1)
	case low(i) == "do" && low(i+1) == "not" && low(i+2) == "ever":
		return orders(tokens, i+3)
	case low(i) == "do" && low(i+1) == "not" && personal[low(i+2)] && !forever && !announced:
		return false // "don't tell Bo"
	case low(i) == "do" && low(i+1) == "not":
		return orders(tokens, i+2) && !occasion(tokens, i+3) && (forever || announced || general(tokens, i+2))
	case (low(i) == "when" || low(i) == "if" || low(i) == "before" || low(i) == "after") && !forever:
		// "When deploying, always tag the commit."
		for k := i + 1; k < len(tokens)-2; k++ {
			if tokens[k].low == "," {
				if low(i) == "when" && low(i+1) == "you" && tasks[low(i+2)] && !occasion(tokens, i) {
					return orders(tokens, k+1)
				}
				return (low(k+1) == "always" || low(k+1) == "never") && orders(tokens, k+2)
			}
		}
		return false
	case forever:
		return orders(tokens, i) || granted[low(i)] && i+2 < len(tokens)
	case low(i) == "avoid":
		_, activity := is(low(i+1), gerund)
		return (activity || i+2 < len(tokens) && !determiners[low(i+1)]) && !vagueObjects[low(i+1)] && !occasion(tokens, i)
	}
	// "Run the tests before every merge", "Call me Ana from now on".
	if low(i) == "make" && low(i+1) == "sure" && low(i+2) == "to" {
		i += 3
	}
	return orders(tokens, i) && (tokens[begins].capital() || announced) &&
		(everyTime(tokens, i+1) || low(i) != "let" && repeated(tokens, i+1) || choices[low(i)] && chooses(tokens, i+1) ||
			yours(tokens, i))
}

// openings are the words before an order that make it permanent.
var openings = [][]string{
	{"from", "now", "on"},
	{"going", "forward"},
	{"in", "future"},
	{"in", "the", "future"},
	{"whenever"},
	{"every", "time"},
}

// skipOpening returns the token after an opening at token i, and whether there is one. "Whenever" and
// "every time" reach to the next comma.
func skipOpening(tokens []token, i int) (next int, forever bool) {
	for _, open := range openings {
		if i+len(open) > len(tokens) ||
			!slices.EqualFunc(open, tokens[i:i+len(open)], func(w string, t token) bool { return t.low == w }) {
			continue
		}
		i += len(open)
		if open[0] == "whenever" || open[0] == "every" {
			for i < len(tokens) && tokens[i].low != "," {
				i++
			}
		}
		if i < len(tokens) && tokens[i].low == "," {
			i++
		}
		return i, true
	}
	return i, false
}

// orders reports whether token i is the verb of an order with an object, and neither a phrase
// without an order ("never mind", "never heard of it", "don't worry") nor a noun ("exercise and
// nature").
func orders(tokens []token, i int) bool {
	if i >= len(tokens)-1 || idle[tokens[i].low] {
		return false
	}
	if !isBase(tokens[i].low) {
		return commands(tokens, i)
	}
	if next := tokens[i+1].low; conjunctions[next] && next != "as" && next != "before" && next != "after" ||
		beForms[next] || modals[next] || haveForms[next] {
		return false
	}
	if _, also := is(tokens[i].low, past|participle); also && i > 0 && tokens[i-1].low == "never" &&
		tokens[i].low != "put" && tokens[i].low != "run" && tokens[i].low != "set" && tokens[i].low != "let" {
		return false
	}
	return tokens[i+1].word && !vagueObjects[tokens[i+1].low] || tokens[i+1].low == "me" || tokens[i+1].low == "it" &&
		i+2 < len(tokens) && prepositions[tokens[i+2].low]
}

// commands reports whether a word outside of the lexicon is a verb: between "never" or "always" and
// an article, as in "Always salt the water".
func commands(tokens []token, i int) bool {
	t := tokens[i]
	before := lowAt(tokens, i-1)
	if before != "never" && before != "always" || lexicon[t.low] != nil || t.capital() || adverbs[t.low] ||
		determiners[t.low] || prepositions[t.low] || pronouns[t.low] || i+2 >= len(tokens) {
		return false
	}
	switch tokens[i+1].low {
	case "the", "a", "an", "any", "your", "my":
		return true
	}
	return false
}

// idle verbs make no instruction after "never", "always" and "don't".
var idle = set(`mind worry know think forget hear feel want get see hesitate look seem remember understand give stop underestimate lose say believe doubt wait judge love enjoy hope dream wish be have believe miss try make need like`)

// occasion reports whether the tokens name a single time or thing: "today", "this one", "yet".
func occasion(tokens []token, i int) bool {
	for ; i < len(tokens); i++ {
		switch tokens[i].low {
		case "today", "tonight", "tomorrow", "yet", "this", "that", "now", "here", "these", "those", "anymore", "there",
			"him", "her", "them", "too", "much":
			return true
		}
	}
	return false
}

// general reports whether the tokens hold something for every case: a plural, a name, "without".
func general(tokens []token, i int) bool {
	for k := i + 1; k < len(tokens); k++ {
		low := tokens[k].low
		if low == "without" || low == "on" || low == "after" || low == "before" || low == "in" || low == "to" ||
			low == "ever" || low == "unless" || low == "any" || low == "word" || low == "words" || low == "term" ||
			low == "phrase" || isName(tokens[k]) {
			return true
		}
		if len(low) > 3 && strings.HasSuffix(low, "s") && !strings.HasSuffix(low, "ss") && k == len(tokens)-2 {
			return true
		}
	}
	return false
}

// everyTime reports whether the tokens make an order hold each time.
func everyTime(tokens []token, i int) bool {
	for ; i+1 < len(tokens); i++ {
		next := tokens[i+1].low
		switch tokens[i].low {
		case "every", "each", "any", "all":
			if before := tokens[i-1].low; before == "before" || before == "after" || before == "on" || before == "for" ||
				before == "in" || before == "at" || before == "with" || next == "time" {
				return true
			}
		case "from":
			if next == "now" && i+2 < len(tokens) && tokens[i+2].low == "on" {
				return true
			}
		case "whenever":
			return true
		case "before", "after", "when":
			if lemma, activity := is(next, gerund); activity && tasks[lemma] || next == "you" && tasks[lowAt(tokens, i+2)] {
				return true // "before you push", "before merging"
			}
		}
	}
	return false
}

// repeated reports whether the tokens give a frequency: "every 90 days", "every night".
func repeated(tokens []token, i int) bool {
	for ; i+1 < len(tokens); i++ {
		if tokens[i].low != "every" {
			continue
		}
		if _, count := number(tokens[i+1].low); count || timeUnits[tokens[i+1].low] || tokens[i+1].low == "other" {
			return true
		}
	}
	return false
}

var (
	// personal verbs address one person once.
	personal = set(`tell ask invite remind`)
	// granted verbs make an order in "whenever I ask for a recipe, give me metric units", but not
	// alone.
	granted = set(`give keep make try remember`)
	// tasks are recurring: "when you summarise, use bullet points".
	tasks    = set(`write answer reply respond summarise summarize review deploy commit merge refactor test translate explain format quote list release code ship cite draft name add change push create`)
	answers  = set(`answers replies responses messages summaries emails e-mails code output text`)
	speaking = set(`answer reply respond write speak talk`)
)

// yours reports whether an order is about how somebody always writes or answers: "Keep your answers
// short", "Answer in French", "Use my first name in e-mails".
func yours(tokens []token, i int) bool {
	if occasion(tokens, i) {
		return false
	}
	for k := i + 1; k < len(tokens); k++ {
		switch next := lowAt(tokens, k+1); tokens[k].low {
		case "your":
			if answers[next] || answers[lowAt(tokens, k+2)] {
				return true
			}
		case "in":
			if nations[next] && speaking[tokens[i].low] || tokens[i].low == "use" && answers[next] {
				return true
			}
		}
	}
	return false
}

// choices are verbs of an order that chooses one of two ways, both of which its tokens name: "Use
// tabs, not spaces, in Makefiles".
var choices = set(`use prefer write say name put spell format`)

func chooses(tokens []token, i int) bool {
	if occasion(tokens, i) {
		return false
	}
	for ; i+1 < len(tokens); i++ {
		next := tokens[i+1].low
		switch tokens[i].low {
		case ",":
			if next == "not" || next == "never" {
				return true
			}
		case "instead":
			return next == "of"
		case "rather":
			return next == "than"
		}
	}
	return false
}

// bans reports whether the sentence forbids without a verb: "No deployments after 16:00 on
// Fridays", "No merges without a review".
func bans(s *sentence, i int, announced bool) bool {
	tokens := s.tokens
	if tokens[i].low != "no" || i+2 >= len(tokens) || !tokens[i+1].word || s.tense != (tense{}) ||
		hasFinite(tokens[i+1:]) {
		return false
	}
	for k := i + 2; k < len(tokens)-1; k++ {
		next := tokens[k+1].low
		switch tokens[k].low {
		case "on", "at":
			if day, ok := strings.CutSuffix(next, "s"); ok && (timeUnits[day] || weekdays[day] != 0 || day == "weekend") {
				return true
			}
		case "without":
			if next == "a" || next == "an" || next == "prior" || next == "written" {
				return true
			}
		case "after", "before":
			if _, _, clock := (&dateReader{tokens: tokens}).clock(k + 1); clock {
				return true
			}
		}
	}
	return announced
}

// hasFinite reports whether one of the tokens can only be a verb that agrees with a subject.
func hasFinite(tokens []token) bool {
	for _, t := range tokens {
		if beForms[t.low] && t.low != "'s" || modals[t.low] || haveForms[t.low] || doForms[t.low] || pronouns[t.low] &&
			t.low != "one" {
			return true
		}
	}
	return false
}

// generic reports whether a sentence is about all of a kind, at no particular time: its subject has
// no article and is not a name.
func generic(s *sentence, i int) bool {
	return !determiners[s.tokens[i].low] && len(s.dates) == 0 && !occasion(s.tokens, i) && !s.tokens[i+1].capital()
}

// beDone reports whether "be" and a participle begin at token i, perhaps after "to".
func beDone(tokens []token, i int) bool {
	if lowAt(tokens, i) == "to" {
		i++
	}
	return lowAt(tokens, i) == "be" && isPast(lowAt(tokens, i+1)) && lowAt(tokens, i+1) != "done" &&
		lowAt(tokens, i+1) != "fixed"
}

// isPast reports whether a word can be the participle in "must have gone".
func isPast(low string) bool {
	_, ok := is(low, participle)
	return ok || low == "been"
}

// obliges reports whether the sentence states what all of a kind must or must not do: "All pull
// requests must be reviewed", "Nobody may deploy on Fridays", "Deployments are not allowed on
// Fridays", "Secrets must never be committed".
func obliges(s *sentence, i int) bool {
	tokens := s.tokens
	// but "tickets labelled urgent must …"
	if s.tense.past && !(isPast(lowAt(tokens, i+1)) && strings.HasSuffix(tokens[i].low, "s")) {
		return false
	}
	if tokens[i].low == "it" && beForms[lowAt(tokens, i+1)] { // "It is forbidden to share …"
		k := i + 2
		not := lowAt(tokens, k) == "not"
		if not || lowAt(tokens, k) == "strictly" {
			k++
		}
		low := lowAt(tokens, k)
		return lowAt(tokens, k+1) == "to" && (not && (low == "allowed" || low == "permitted") ||
			!not && (low == "forbidden" || low == "prohibited" || low == "mandatory"))
	}
	switch tokens[i].low {
	case "i", "you", "it", "he", "she", "that", "this", "there", "they", "we", "what", "which", "if", "someone",
		"something":
		return false
	}
	all := false
	switch tokens[i].low {
	case "all", "every", "each", "any", "no", "nobody", "everyone", "everybody", "anyone", "anybody", "only":
		all = true
	}
	for k := i + 1; k < len(tokens)-1 && k < i+8; k++ {
		low, next := tokens[k].low, tokens[k+1].low
		// "Tickets labelled …"
		plural := k > i+1 && strings.HasSuffix(tokens[i].low, "s") && len(tokens[i].low) > 3 &&
			(isPast(tokens[i+1].low) || prepositions[tokens[i+1].low]) ||
			strings.HasSuffix(tokens[k-1].low, "s") && len(tokens[k-1].low) > 3 || tokens[k-1].low == "data"
		switch {
		case (low == "must" || low == "shall") && (all || plural || tokens[i].low == "the") && next != "of" &&
			!(next == "have" && (isPast(lowAt(tokens, k+2)) || !all && !plural)):
			return true
		case low == "may" && (all || next == "not" && plural):
			return tokens[k].text == "may"
		case (low == "should" || low == "can" || low == "cannot") &&
			(tokens[i].low == "nobody" || tokens[i].low == "no" || tokens[i].low == "only") && k+1 < len(tokens) && isBase(next):
			return true
		case (low == "should" || (low == "have" || low == "need") && next == "to") && plural && generic(s, i) &&
			beDone(tokens, k+1):
			return true
		case (low == "needs" || low == "requires") && (tokens[i].low == "every" || tokens[i].low == "each") &&
			(determiners[next] || next == "to"):
			return true
		case low == "should" && (next == "always" || next == "never" || all && next == "be"):
			return true
		case (low == "is" || low == "are") && (tokens[i].low == "nobody" || tokens[i].low == "no" ||
			tokens[i].low == "only") && (next == "allowed" || next == "permitted"):
			return true
		case low == "are" && next == "not" && k+2 < len(tokens) &&
			(tokens[k+2].low == "allowed" || tokens[k+2].low == "permitted"), (low == "is" || low == "are") &&
			(next == "forbidden" || next == "prohibited" || next == "mandatory"):
			return true
		case !tokens[k].word && low != "'" && low != `"` && low != "(" && low != ")" && low != "/":
			return false
		}
	}
	return false
}
