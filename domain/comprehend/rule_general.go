package comprehend

import "strings"

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
