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
