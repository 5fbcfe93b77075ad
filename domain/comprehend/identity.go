package comprehend

import (
	"strings"

	"github.com/annals-project/annals/domain/memory"
)

// identityRules read names, aliases, handles and addresses of one entity.
var identityRules = []reader{
	{"goes by", goesBy},
	{"known as", knownAs},
	{"name is", nameIs},
	{"called", calledBy},
}

func (c *clause) identity() []draft {
	line := c.line()
	if line == "" {
		return nil
	}
	return []draft{c.draft(memory.Identity, line)}
}

// nameAt reports whether token i begins a name or a handle.
func (c *clause) nameAt(i int) bool {
	for c.low(i) == `"` || c.low(i) == "'" || c.low(i) == "name" || c.low(i) == "the" &&
		(c.low(i+1) == "name" || i+1 < c.to && isName(c.s.tokens[i+1])) {
		i++
	}
	if i >= c.to {
		return false
	}
	t := c.s.tokens[i]
	return isName(t) || handleLike(t.text)
}

// handleLike reports whether a word is written like a handle, an address or a number.
func handleLike(word string) bool {
	return strings.HasPrefix(word, "@") || strings.ContainsAny(word, "@_") || len(word) > 2 &&
		strings.ContainsAny(word, "0123456789")
}

// goesBy: "Ana Ruiz goes by aruiz", "I go by Annie".
func goesBy(c *clause) []draft {
	if c.lemma != "go" || !c.present() || !c.plain() || c.low(c.rest) != "by" || c.kind == thing {
		return nil
	}
	at := c.rest + 1
	if at >= c.to || c.to-at > 8 || determiners[c.low(at)] && c.low(at) != "the" || c.kind != named && !c.nameAt(at) ||
		vagueObjects[c.low(at)] {
		return nil
	}
	if _, ok := is(c.low(at), base); ok && !c.nameAt(at) {
		return nil
	}
	return c.identity()
}

// knownAs: "Ana is also known as Annie", "the API is called Hermes", "Bo is nicknamed Speedy".
func knownAs(c *clause) []draft {
	if c.negated || c.modal != "" || c.past && c.kind != named {
		return nil
	}
	at := c.rest
	switch {
	case (c.passive || c.copula()) && c.lemma == "know", c.copula() && c.low(at) == "known":
		if c.copula() {
			at++
		}
		if c.low(at) == "to" { // "to friends as"
			for at < c.to && c.low(at) != "as" {
				at++
			}
		}
		if c.low(at) != "as" {
			return nil
		}
		at++
	case c.passive && (c.lemma == "call" || c.lemma == "name"), c.copula() &&
		(c.low(at) == "called" || c.low(at) == "named" || c.low(at) == "nicknamed" || c.low(at) == "aka"):
		if c.copula() {
			at++
		}
		if c.past {
			return nil
		}
	case c.copula() && c.low(at) == "short" && c.low(at+1) == "for":
		at += 2
		if c.kind != named {
			return nil
		}
		if c.low(at) == `"` {
			return c.identity()
		}
	default:
		return nil
	}
	if !c.nameAt(at) {
		return nil
	}
	return c.identity()
}

// nameWords are names and addresses of which an entity has one.
var nameWords = set(`name nickname surname alias handle username login email e-mail mail address phone number mobile extension id userid pronouns github gitlab twitter instagram linkedin discord slack skype telegram
	mastodon matrix callsign pseudonym initials aliases website homepage url`)

// nameIs: "My name is Ana Ruiz", "Ana's GitHub handle is aruiz", "Bo's email is bo@example.com".
func nameIs(c *clause) []draft {
	owner, attribute, ok := c.owned()
	if !ok || !c.copula() || !c.plain() || c.past || owner == "" || !c.hasValue() {
		return nil
	}
	words := strings.Fields(strings.ToLower(attribute))
	if len(words) == 0 || len(words) > 3 || !nameWords[words[len(words)-1]] {
		return nil
	}
	head := words[len(words)-1]
	value := c.s.tokens[c.rest]
	switch head {
	case "address", "website", "homepage", "url", "pronouns", "id", "number", "phone", "mobile", "extension", "email",
		"e-mail", "mail":
		if !handleLike(value.text) && !strings.ContainsAny(value.text, ".:") && head != "pronouns" && head != "address" &&
			value.low != "+" && value.low != "(" {
			return nil
		}
	case "name", "nickname", "surname", "alias", "pseudonym", "initials":
		if !c.nameAt(c.rest) {
			return nil
		}
	default:
		if adverbs[value.low] || determiners[value.low] || len(c.s.tokens[c.rest:c.to]) > 4 && !c.nameAt(c.rest) {
			return nil
		}
	}
	return c.identity()
}

// calledBy: "Everyone calls me Annie", "My friends call me Bo". The name belongs to the object, not
// the subject.
func calledBy(c *clause) []draft {
	if c.lemma != "call" || !c.present() || c.low(c.rest) != "me" || c.kind != ours || !c.nameAt(c.rest+1) {
		return nil
	}
	return c.identity()
}

// readHandles reads aliases outside of the grammar of a clause: "Ana Ruiz (aka aruiz)", "Ana a.k.a.
// Annie", "call me Annie", "everyone calls me Annie", "Ana Ruiz <ana@example.com>", "you can reach
// me at ana@example.com".
func readHandles(s *sentence) []draft {
	if s.question {
		return nil
	}
	var drafts []draft
	add := func(line string, names ...string) {
		if line = trimLine(line); line != "" {
			drafts = append(drafts, draft{kind: memory.Identity, line: line, entities: names})
		}
	}
	tokens := s.tokens
	for i := range tokens {
		switch low := tokens[i].low; {
		case low == "aka" || low == "a.k.a":
			if left, right := nameBefore(tokens, i), nameAfter(s, i+1); left >= 0 && right != "" {
				name := flat(s.text[tokens[left].at:lastWord(tokens, left, i).end()])
				add(name+" is also known as "+right, name, right)
			}
		case low[0] == '@' && len(low) > 2 && lowAt(tokens, i-1) == "(" && lowAt(tokens, i+1) == ")":
			if left := nameBefore(tokens, i); left >= 0 {
				name := flat(s.text[tokens[left].at:lastWord(tokens, left, i).end()])
				add(possessive(name)+" handle is "+tokens[i].text, name)
			}
		case (low == "call" || low == "calls") && i+2 < len(tokens) && tokens[i+1].low == "me" && s.who.name != "":
			if before := lowAt(tokens, i-1); low == "call" && i > 0 && before != "please" && before != "just" &&
				before != "can" && before != "everyone" && before != "friends" && before != "people" && before != "," {
				continue
			}
			if right := nameAfter(s, i+2); right != "" && isName(tokens[i+2]) && endsAfter(s, right, i+2) {
				add(s.who.name+" goes by "+right, s.who.name, right)
			}
		case strings.Contains(low, "@") && low[0] != '@' && strings.Contains(low[strings.IndexByte(low, '@'):], "."):
			if who := addressee(tokens, i, s.who.name); who != "" {
				add(who+"'s email is "+tokens[i].text, who)
			} else if left := nameBefore(tokens, i); left >= 0 && (tokens[i-1].low == "<" || tokens[i-1].low == "(") {
				name := flat(s.text[tokens[left].at:lastWord(tokens, left, i).end()])
				add(name+"'s email is "+tokens[i].text, name)
			}
		}
	}
	return drafts
}

func lowAt(tokens []token, i int) string {
	if i < 0 || i >= len(tokens) {
		return ""
	}
	return tokens[i].low
}

// addressee returns the speaker if the words before an address are "reach me at" or "email me at".
func addressee(tokens []token, i int, speaker string) string {
	if speaker == "" || i < 3 {
		return ""
	}
	switch tokens[i-1].low {
	case "at", "on", "via", "under":
	default:
		return ""
	}
	if tokens[i-2].low != "me" {
		return ""
	}
	switch tokens[i-3].low {
	case "reach", "email", "mail", "contact", "write", "ping":
		return speaker
	}
	return ""
}

// nameBefore returns where the name before token i begins, skipping an opening bracket and a comma;
// -1 for none.
func nameBefore(tokens []token, i int) int {
	k := i - 1
	for k >= 0 && !tokens[k].word {
		k--
	}
	if k < 0 || !isName(tokens[k]) {
		return -1
	}
	for k > 0 && isName(tokens[k-1]) && tokens[k].gap {
		k--
	}
	return k
}

// lastWord returns the last word before token i, from token left on.
func lastWord(tokens []token, left, i int) token {
	for k := i - 1; k > left; k-- {
		if tokens[k].word {
			return tokens[k]
		}
	}
	return tokens[left]
}

// nameAfter returns the name or handle that begins at token i, "" for none.
func nameAfter(s *sentence, i int) string {
	for i < len(s.tokens) && !s.tokens[i].word {
		i++
	}
	if i >= len(s.tokens) {
		return ""
	}
	if end := nameEnd(s.tokens, i); end > i {
		return flat(s.text[s.tokens[i].at:s.tokens[end-1].end()])
	}
	if handleLike(s.tokens[i].text) || lowAt(s.tokens, i+1) == ")" {
		return s.tokens[i].text
	}
	return ""
}

// endsAfter reports whether the statement ends after the name at token i.
func endsAfter(s *sentence, name string, i int) bool {
	end := nameEnd(s.tokens, i)
	return name != "" && (end >= len(s.tokens) || !s.tokens[end].word || conjunctions[s.tokens[end].low])
}

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
