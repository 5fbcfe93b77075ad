package comprehend

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
