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
