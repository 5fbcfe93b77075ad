package comprehend

import (
	"strings"

	"github.com/annals-project/annals/domain/memory"
)

// membershipRules read that somebody or something belongs to a group, a team, a role.
var membershipRules = []reader{
	{"on a team", onTeam},
	{"member of", memberOf},
	{"belongs to", belongsTo},
	{"joined", joined},
	{"leads", leads},
	{"role", hasRole},
	{"consists of", consistsOf},
}

// groups are words that end the name of a group.
var groups = set(`circle team squad group crew department division committee board council guild tribe chapter club band choir orchestra society association union league party
	faculty staff panel program programme cohort unit office workgroup brigade troop regiment battalion collective cooperative union organization organisation community church troupe ensemble alliance coalition network cast class family`)

// member returns a membership whose line is the clause.
func (c *clause) member() []draft {
	line := c.line()
	if line == "" {
		return nil
	}
	return []draft{c.draft(memory.Membership, line)}
}

// group returns the end of a noun phrase at token i that names a group: "the platform team", "our
// book club"; or of a name alone if names is true.
func (c *clause) group(i int, names bool) (end int, ok bool) {
	if vagueObjects[c.low(i)] || i >= c.to {
		return i, false
	}
	start := i
	if names && isName(c.s.tokens[i]) {
		return nameEnd(c.s.tokens[:c.to], i), true
	}
	for k := i; k < c.to && k < start+6 && c.s.tokens[k].word; k++ {
		low := c.low(k)
		if groups[low] && k > start && !(determiners[c.low(k-1)] && low != "board" && low != "council" &&
			low != "committee") && low != "family" && low != "class" {
			return k + 1, true
		}
		if (conjunctions[low] || prepositions[low] || low == "this" || low == "that" || low == "same") &&
			!c.s.tokens[k].capital() {
			return i, false
		}
	}
	if names && c.low(i) == "the" && i+1 < c.to && isName(c.s.tokens[i+1]) {
		return nameEnd(c.s.tokens[:c.to], i+1), true
	}
	return i, false
}

// onTeam: "Ana is on the platform team", "I'm in a book club", "Bo works in the finance
// department".
func onTeam(c *clause) []draft {
	if !c.plain() || c.past || c.perfect && !c.copula() {
		return nil
	}
	switch {
	case c.copula(), c.lemma == "work" && (c.present() || c.progressive), c.lemma == "sing" && c.present(),
		c.lemma == "play" && c.present(), c.lemma == "serve" && c.present(), c.lemma == "sit" && c.present():
	default:
		return nil
	}
	at := c.rest
	if c.copula() && (c.low(at) == "part" || c.low(at) == "back") {
		at++
	}
	// "sings alto in the choir"
	for i := at; (c.lemma == "sing" || c.lemma == "play") && i < at+3 && c.s.tokens[min(i, c.to-1)].word; i++ {
		if low := c.low(i); (low == "in" || low == "for") && i > at {
			at = i
		}
	}
	if low := c.low(at); low != "on" && low != "in" && low != "of" && low != "for" || low == "of" && at == c.rest {
		return nil
	}
	if c.copula() && c.low(at) == "for" {
		return nil
	}
	if _, ok := c.group(at+1, false); !ok {
		return nil
	}
	return c.member()
}

// memberOf: "Ana is a member of the board", "Bo is part of the platform team", "Cy is a founding
// member of Acme".
func memberOf(c *clause) []draft {
	if !c.copula() || !c.plain() || c.past {
		return nil
	}
	for i := c.rest; i+1 < c.to && i < c.rest+4; i++ {
		if low := c.low(i); (low == "member" || low == "members" || low == "part" && i <= c.rest+1) && c.low(i+1) == "of" {
			if _, ok := c.group(i+2, true); ok {
				return c.member()
			}
			return nil
		}
	}
	return nil
}

// belongsTo: "The payments service belongs to the billing group", "Bo reports to the finance team".
func belongsTo(c *clause) []draft {
	if c.lemma != "belong" && c.lemma != "report" || !c.present() || !c.plain() || c.low(c.rest) != "to" {
		return nil
	}
	if _, ok := c.group(c.rest+1, c.lemma == "belong"); !ok {
		return nil
	}
	return c.member()
}

// joined: "Ana joined the platform team" is an event, and makes her a member.
func joined(c *clause) []draft {
	if c.lemma != "join" || !c.past && !c.perfect || c.negated || c.modal != "" || c.passive || c.progressive {
		return nil
	}
	end, ok := c.group(c.rest, true)
	if !ok {
		return nil
	}
	who, group := c.phraseOfSubject(), c.phrase(c.rest, end)
	if who == "" || group == "" {
		return nil
	}
	verb := " is a member of "
	if c.plural || c.kind == firstPlural {
		verb = " are members of "
	}
	d := c.draft(memory.Membership, finishLine(who+verb+group, who))
	d.basis = append(d.basis, c.line())
	return []draft{d}
}

// phraseOfSubject returns the subject in the third person.
func (c *clause) phraseOfSubject() string {
	name := c.s.who.name
	switch {
	case c.kind == first && name == "":
		return "" // "I is" cannot be said
	case c.kind == first:
		return name
	case c.kind == firstPlural && name == "":
		return "We"
	case c.kind == firstPlural:
		return name + " and others"
	}
	v := lineWriter{c: c}
	if !v.write(c.subj, c.subjEnd) {
		return ""
	}
	return trimLine(v.b.String())
}

// leads: "Ana leads the platform team", "I manage the design group".
func leads(c *clause) []draft {
	switch c.lemma {
	case "lead", "manage", "head", "run", "coach", "chair", "captain", "coordinate", "direct", "found":
	default:
		return nil
	}
	if !(c.present() || c.progressive && !c.past) || !c.plain() || c.kind == thing {
		return nil
	}
	if _, ok := c.group(c.rest, false); !ok {
		return nil
	}
	return c.member()
}

// roles are roles in a group.
var roles = set(`lead leader head manager director captain chair chairman chairwoman chairperson president secretary treasurer maintainer admin administrator owner founder co-founder cofounder ceo cto cfo coo vp
	coordinator organizer organiser moderator supervisor sponsor champion delegate ambassador representative principal coach mentor editor-in-chief spokesperson deputy intern apprentice trustee partner shareholder`)

// hasRole: "Ana is the tech lead of platform", "Bo is our product owner", "I'm the captain of the
// team", "Cy is the CTO".
func hasRole(c *clause) []draft {
	if !c.copula() || !c.plain() || c.past || c.kind == thing || c.plural {
		return nil
	}
	begin := c.rest + 1
	switch low := c.low(c.rest); low {
	case "the", "our", "a", "an", "my":
	case "acting", "interim", "deputy", "head", "cto", "ceo", "cfo", "coo", "co-founder", "president", "chair",
		"captain", "treasurer", "secretary":
		begin = c.rest // "Mei is acting head of design"
	default:
		return nil
	}
	for i := begin; i < c.to && i < c.rest+5 && c.s.tokens[i].word; i++ {
		low := c.low(i)
		if (c.low(i+1) == "of" || c.low(i+1) == "in" || c.low(i+1) == "for") && doer(low) {
			if end, ok := c.group(i+2, false); ok && (end >= c.to || !c.s.tokens[end].word || conjunctions[c.low(end)] ||
				prepositions[c.low(end)] || adverbs[c.low(end)]) {
				return c.member() // "the drummer of a punk band"
			}
		}
		if roles[low] {
			next := c.low(i + 1)
			of := next == "of" || next == "at" || next == "for" || next == "on" || next == "in"
			if vagueObjects[c.low(i+2)] || !of && next != "" && c.s.tokens[i+1].word && !conjunctions[next] && !adverbs[next] {
				continue
			}
			if !of && (c.low(c.rest) == "a" || c.low(c.rest) == "an" || low == "champion" || low == "partner" ||
				low == "head" || low == "principal") {
				return nil
			}
			return c.member()
		}
		if prepositions[low] || conjunctions[low] {
			return nil
		}
	}
	return nil
}

// doer reports whether a noun names somebody by what they do: "drummer", "goalkeeper", "pianist".
func doer(noun string) bool {
	if roles[noun] || isOccupation(noun) {
		return true
	}
	return len(noun) > 5 && (strings.HasSuffix(noun, "er") || strings.HasSuffix(noun, "ist") ||
		strings.HasSuffix(noun, "ian")) && noun != "member" && noun != "number" && noun != "center"
}

// consistsOf: "The platform team consists of Ana, Bo and Cy", "the members of the board are Ana and
// Bo".
func consistsOf(c *clause) []draft {
	if !(c.kind == thing || c.kind == ours) || !c.plain() || c.past {
		return nil
	}
	at, group := c.rest, c.text(c.subj, c.subjEnd)
	switch last := c.low(c.subjEnd - 1); {
	case (c.lemma == "consist" || c.lemma == "include") && groups[last]:
		if c.lemma == "consist" {
			if c.low(at) != "of" {
				return nil
			}
			at++
		}
	case c.copula() && c.low(c.subj+1) == "members" && c.low(c.subj+2) == "of":
		group = c.text(c.subj+3, c.subjEnd)
	default:
		return nil
	}
	var drafts []draft
	for at < c.to {
		end := nameEnd(c.s.tokens[:c.to], at)
		if end == at {
			return drafts
		}
		d := c.draft(memory.Membership, c.text(at, end)+" is a member of "+lowerArticle(group))
		d.entities = []string{c.text(at, end)}
		drafts = append(drafts, d)
		for at = end; at < c.to && (c.low(at) == "," || c.low(at) == "and"); at++ {
		}
	}
	return drafts
}

// lowerArticle returns a noun phrase for use inside a line.
func lowerArticle(text string) string {
	text = flat(text)
	if len(text) > 4 && (text[:4] == "The " || text[:4] == "Our ") {
		return "t" + text[1:]
	}
	return text
}
