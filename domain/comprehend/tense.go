package comprehend

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
