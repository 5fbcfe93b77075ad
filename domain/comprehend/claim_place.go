package comprehend

// home: "Ana lives in Berlin", "I'm based in Lisbon", "I'm from Sweden".
func home(c *clause) []draft {
	next := c.low(c.rest)
	if c.kind == thing || sites[c.low(c.subjEnd-1)] {
		return c.location()
	}
	if !(c.present() || c.progressive && !c.past || c.perfect && !c.past && c.lasting()) || c.modal != "" {
		return nil
	}
	switch {
	case c.lemma == "live" && (next == "in" || next == "at" || next == "near" || next == "on"):
		if _, _, ok := c.object(c.rest + 1); ok {
			return c.claim(c.subjectKey(), "home")
		}
	case c.lemma == "live" && next == "with":
		if _, _, ok := c.object(c.rest + 1); ok {
			return c.claim(c.subjectKey(), "lives with")
		}
	case c.copula() && next == "based" && (c.low(c.rest+1) == "in" || c.low(c.rest+1) == "at"), c.copula() &&
		next == "located" && c.low(c.rest+1) == "in":
		return c.claim(c.subjectKey(), "home")
	case (c.copula() || c.lemma == "come") && next == "from" && c.rest+1 < c.to && isName(c.s.tokens[c.rest+1]):
		return c.claim(c.subjectKey(), "origin")
	}
	return nil
}

// location: "The search index lives in Frankfurt", "the office is located in Ghent".
func (c *clause) location() []draft {
	at := c.rest
	switch next := c.low(at + 1); {
	case c.lemma == "live" && c.present() && c.low(at) == "in":
	case c.copula() && !c.past && c.plain() && sites[c.low(c.subjEnd-1)] && (c.low(at) == "in" || c.low(at) == "at"):
	case c.copula() && !c.past && c.plain() && (c.low(at) == "based" || c.low(at) == "located") &&
		(next == "in" || next == "at"):
		at++
	default:
		return nil
	}
	if at+1 >= c.to || !isName(c.s.tokens[at+1]) {
		return nil
	}
	return c.claim(c.subjectKey(), "location")
}

// sites are things that stay at a place.
var sites = set(`headquarters headquarter office offices warehouse factory datacenter datacentre server servers branch store shop studio lab laboratory school clinic`)

// lasting reports whether the clause describes something of long duration: "for ten years", "since
// 2019", "all my life".
func (c *clause) lasting() bool {
	for i := c.rest; i < c.to; i++ {
		switch next := c.low(i + 1); c.low(i) {
		case "since":
			return true
		case "for":
			if _, count := number(next); count || next == "years" || next == "over" || next == "many" {
				return true
			}
		case "my", "her", "his", "their":
			if next == "whole" || next == "entire" || next == "life" && c.low(i-1) == "all" {
				return true
			}
		}
	}
	return false
}

// work: "Ana works at Acme", "I work as a nurse", "I'm studying law".
func work(c *clause) []draft {
	if c.kind == thing || !(c.present() || c.progressive && !c.past || c.perfect && !c.past && c.lasting()) ||
		c.modal != "" {
		return nil
	}
	next := c.low(c.rest)
	if c.lemma == "study" {
		text, _, ok := c.object(c.rest)
		if !ok || prepositions[next] && next != "at" {
			return nil
		}
		if next == "at" {
			text = "place"
		}
		return c.claim(c.subjectKey(), "studies "+trimAttribute(text))
	}
	if c.lemma != "work" {
		return nil
	}
	object := c.rest + 1
	switch next {
	case "as":
		if _, _, ok := c.object(object); ok {
			return c.claim(c.subjectKey(), "occupation")
		}
	case "at", "for":
		if object < c.to && (nameEnd(c.s.tokens[:c.to], object) > object || determiners[c.low(object)] &&
			c.low(object) != "this" && c.low(object) != "that") && !c.dateWord(object) {
			return c.claim(c.subjectKey(), "employer")
		}
	case "in", "from":
		if text, _, ok := c.object(object); ok && !c.dateWord(object) {
			return c.claim(c.subjectKey(), "works "+next+" "+trimAttribute(text))
		}
	}
	return nil
}
