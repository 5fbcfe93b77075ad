package comprehend

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
)

// claimRules read what somebody holds or what is so. The first rule that matches a clause decides,
// so narrow rules come first.
//
// If a thing can have one value only (a favourite, a home, a date), the attribute names the thing:
// a later value supersedes the earlier one. If it can have many (likes, possessions, plans), the
// attribute includes the value, so that only a contradiction ("no longer likes tea") supersedes it.
var claimRules = []reader{
	{"favourite", favourite},
	{"inverted favourite", invertedFavourite},
	{"relation", relation},
	{"date of something", dateOf},
	{"time of something", timeOf},
	{"birth", born},
	{"attribute", attributeIs},
	{"home", home},
	{"work", work},
	{"preference", preference},
	{"opinion", opinion},
	{"trait", trait},
	{"occupation", occupation},
	{"weight", weight},
	{"absence", absence},
	{"recurrence", recurs},
	{"possession", possession},
	{"ownership", owns},
	{"plan", plan},
	{"pursuit", pursuit},
	{"former habit", formerHabit},
	{"practice", practice},
	{"habit", habit},
	{"definition", definition},
	{"works with", worksWith},
}

// favourite: "Ana's favourite editor is now Zed", "my favourite colour is green".
func favourite(c *clause) []draft {
	owner, attribute, ok := c.owned()
	if !ok || !c.copula() || c.past {
		return nil
	}
	what := favoured(attribute)
	if what == "" || !c.hasValue() {
		return nil
	}
	return c.claim(owner, "favourite "+what)
}

// favoured returns the kind of thing of a favourite: "editor" for "favourite editor", "preferred
// editor", "go-to editor" and "editor of choice". All of them are one attribute. It returns "" for
// other attributes.
func favoured(attribute string) string {
	low := strings.ToLower(attribute)
	if what, ok := strings.CutSuffix(low, " of choice"); ok {
		return what
	}
	first, rest, _ := strings.Cut(low, " ")
	if favours[first] {
		return rest
	}
	return ""
}

var favours = set(`favourite favorite fave fav preferred go-to`)

// invertedFavourite: "Helix is Ana's favourite editor", "Green is my favourite colour".
func invertedFavourite(c *clause) []draft {
	if !c.copula() || c.past || c.kind != named && c.kind != thing {
		return nil
	}
	for i := c.rest; i < c.to-1; i++ {
		if !favours[c.low(i)] {
			continue
		}
		end := i + 1
		for end < c.to && c.s.tokens[end].word && !determiners[c.low(end)] && !prepositions[c.low(end)] &&
			!conjunctions[c.low(end)] && !adverbs[c.low(end)] {
			end++
		}
		switch {
		case end == i+1:
			return nil
		case c.low(i-1) == "my" && i-1 == c.rest:
			who := cmp.Or(normalize(c.s.who.name), "i")
			return c.claim(who, "favourite "+c.text(i+1, end))
		case c.low(i-1) == "'s":
			return c.claim(c.foldTokens(c.rest, i-1), "favourite "+c.text(i+1, end))
		}
	}
	return nil
}

// relation: "Alice is Bob's manager", "Bo is my dentist", "Alice reports to Bob".
func relation(c *clause) []draft {
	if c.kind != named || c.past || c.plural {
		return nil
	}
	if c.lemma == "report" && c.present() && c.low(c.rest) == "to" &&
		(nameEnd(c.s.tokens[:c.to], c.rest+1) > c.rest+1 || determiners[c.low(c.rest+1)] && roles[c.low(c.to-1)] &&
			c.to-c.rest < 7) {
		return c.claim(c.subjectKey(), "manager")
	}
	if !c.copula() || !c.plain() && !c.ended() {
		return nil
	}
	owner, at := "", c.rest
	if c.low(at) == "my" || c.low(at) == "our" {
		owner = c.ownerAt(at)
		at++
	} else if end := nameEnd(c.s.tokens[:c.to], at); end > at && c.low(end) == "'s" {
		owner = c.foldTokens(at, end)
		at = end + 1
	}
	end := c.to
	for end > at && adverbs[c.low(end-1)] {
		end-- // "my doctor now"
	}
	if relatives[c.low(at)] && (at+1 >= end || prepositions[c.low(at+1)] && end-at < 8) {
		return c.claim(c.subjectKey(), "relation to "+owner) // one can have many of them
	}
	if owner == "" || at != end-1 || !attributes[c.low(at)] {
		return nil
	}
	return c.claim(owner, c.low(at))
}

// relatives are relations that one can have several of.
var relatives = set(`contact friend colleague coworker co-worker neighbour neighbor cousin uncle aunt nephew niece brother sister son daughter father mother dad mum mom grandfather grandmother roommate flatmate
	landlord landlady client customer supplier vendor classmate teammate tenant accountant lawyer tutor babysitter`)

// born: "Our daughter was born on 3 March 2021", "Bo was born in Oslo".
func born(c *clause) []draft {
	if !c.copula() || !c.past || !c.plain() || c.kind == thing || c.low(c.rest) != "born" || c.rest+2 >= c.to {
		return nil
	}
	_, dated := c.dateAt(c.rest + 2)
	switch next := c.low(c.rest + 1); {
	case next == "on" && dated:
		return c.claim(c.subjectKey(), "birthday")
	case next == "in" && isName(c.s.tokens[c.rest+2]):
		return c.claim(c.subjectKey(), "place of birth")
	case next == "in" && (dated || len(c.low(c.rest+2)) == 4 && c.s.tokens[c.rest+2].numeric()):
		return c.claim(c.subjectKey(), "year of birth")
	}
	return nil
}

// hasValue reports whether "is" is followed by words that can be understood alone.
func (c *clause) hasValue() bool {
	one := c.low(c.rest) == "one" && c.rest+1 < c.to // "one hour"
	if c.rest >= c.to || vagueObjects[c.low(c.rest)] && !one || c.to-c.rest > 16 {
		return false
	}
	first := c.low(c.rest)
	return c.s.tokens[c.rest].word || first == `"` || strings.Contains("+($€£", first) && c.rest+1 < c.to &&
		c.s.tokens[c.rest+1].numeric()
}

// dateOf: "the launch is on 3 June", "the launch is scheduled for next Tuesday", "Ana's birthday
// party starts tomorrow".
func dateOf(c *clause) []draft {
	if c.kind != thing && c.kind != named && c.kind != ours || c.past || c.modal != "" && c.modal != "will" {
		return nil
	}
	i := c.rest
	settled := c.copula() || c.passive && dateSettings[c.lemma]
	if c.copula() && (c.low(i) == "due" || c.low(i) == "set" || c.low(i) == "planned" || c.low(i) == "scheduled") {
		i++
	}
	happens := happenings[c.lemma]
	if c.lemma == "take" && c.low(i) == "place" {
		happens = true
		i++
	}
	if !settled && !happens {
		return nil
	}
	for i < c.to {
		if _, ok := c.dateAt(i); ok || !beforeDates[c.low(i)] {
			break
		}
		// "at 6:40 am on 3 October"
		if _, to, clock := (&dateReader{tokens: c.s.tokens[:c.to]}).clock(i + 1); clock && c.low(i) == "at" {
			i = to
			continue
		}
		i++
	}
	if _, ok := c.dateAt(i); !ok {
		return nil
	}
	subject, attribute := c.subjectKey(), "date"
	if owner, what, ok := c.owned(); ok && (strings.EqualFold(what, "date") || strings.EqualFold(what, "deadline") ||
		strings.EqualFold(what, "birthday")) {
		subject, attribute = owner, what
	} else if happenings[c.lemma] && c.lemma != "happen" && c.lemma != "launch" && c.lemma != "take" {
		attribute = c.lemma + " date"
	}
	return c.claim(subject, attribute)
}

// timeOf: "our standup is at 9:30 now".
func timeOf(c *clause) []draft {
	if c.kind != thing && c.kind != named && c.kind != ours || c.past || !c.copula() || !c.plain() ||
		c.low(c.rest) != "at" {
		return nil
	}
	_, end, ok := (&dateReader{tokens: c.s.tokens[:c.to]}).clock(c.rest + 1)
	if !ok && strings.Contains(c.low(c.rest+1), ":") { // "9:30" may be morning or evening
		end, ok = c.rest+2, c.s.tokens[c.rest+1].numeric()
	}
	if !ok || end < c.to && !c.isTimeOfState(end) {
		return nil
	}
	return c.claim(c.subjectKey(), "time")
}

var (
	dateSettings = set(`schedule plan set book move postpone delay arrange`)
	happenings   = set(`start begin end open close launch ship leave arrive happen expire depart finish land`)
)

// attributeIs: "Ana's manager is Bo", "the launch date is 3 June 2025", "the capital of France is
// Paris", for attributes with one value at a time.
func attributeIs(c *clause) []draft {
	owner, attribute, ok := c.owned()
	if ok && c.passive && c.rest == c.to && !c.past && c.plain() && strings.EqualFold(attribute, "status") {
		return c.claim(owner, attribute) // "the status of the migration is blocked"
	}
	if !ok || !c.copula() || c.past || !c.hasValue() || c.modal != "" {
		return nil
	}
	words := strings.Fields(strings.ToLower(attribute))
	if len(words) == 0 || len(words) > 4 || !c.measured() && !attributes[words[len(words)-1]] &&
		!(possessed[words[len(words)-1]] && c.identified()) &&
		!strings.HasSuffix(strings.Join(words, " "), "blood type") &&
		!strings.HasSuffix(strings.Join(words, " "), "blood group") &&
		!strings.HasSuffix(strings.Join(words, " "), "shoe size") || c.low(c.rest) == "to" && !aims[words[len(words)-1]] {
		return nil
	}
	if len(words) > 1 && (words[0] == "new" || words[0] == "current" || words[0] == "present") {
		attribute = strings.Join(words[1:], " ") // the new boss is the boss
	}
	if aims[words[len(words)-1]] { // one can have many
		attribute += " " + trimAttribute(c.text(c.rest, c.to))
	}
	return c.claim(owner, attribute)
}

// measured reports whether the clause gives a number for a thing: "The SLA for Globex is 99.95%".
func (c *clause) measured() bool {
	if c.kind != thing || c.rest >= c.to || c.to-c.rest > 6 {
		return false
	}
	if _, dated := c.lastDate(); dated {
		return false
	}
	at := c.rest
	if low := c.low(at); (low == "$" || low == "€" || low == "£") && at+1 < c.to {
		at++
	}
	for i := at; i < c.to; i++ {
		switch c.low(i) {
		case "away", "late", "old", "ago", "left", "long", "behind", "ahead":
			return false
		}
	}
	return c.s.tokens[at].numeric()
}

var attributes = set(`sla date deadline birthday anniversary age budget owner port version price capital limit status region goal dream hobby hobbies job title occupation profession
	manager boss mentor spouse husband wife partner girlfriend boyfriend fiance fiancé diet hometown timezone zone salary size height weight breed motto specialty speciality passion
	major degree nationality religion employer domain endpoint database provider supplier vendor rate schedule location venue threshold quota capacity default timeout cost fee
	doctor dentist therapist teacher coach lead leader captain ceo cto allergy allergies`)

// possessed are things of which somebody has one at a time. Only a name or a number identifies
// one: "my car is a Golf", but not "my car is dirty".
var possessed = set(`address number email nickname car bike laptop phone computer bank insurer landlord gym school university college club neighbourhood neighborhood vet hairdresser barber
	accountant tutor trainer supervisor handle browser shell pin`)

// identified reports whether a name or a number follows the verb: "is a Golf", "is 12 Mill Lane".
func (c *clause) identified() bool {
	at := c.rest
	for at < c.to && adverbs[c.low(at)] {
		at++
	}
	if low := c.low(at); low == "a" || low == "an" || low == "the" {
		at++
	}
	return at < c.to && (c.s.tokens[at].numeric() || nameEnd(c.s.tokens[:c.to], at) > at ||
		strings.IndexFunc(c.s.tokens[at].text, unicode.IsUpper) > 0) // an iPhone
}

var aims = set(`goal dream hobby hobbies job plan passion motto`)

// preference: "Ana prefers Helix over Vim", "I prefer Zed for Go".
func preference(c *clause) []draft {
	if c.lemma != "prefer" || !c.present() {
		return nil
	}
	text, end, ok := c.object(c.rest)
	if !ok {
		return nil
	}
	for i := c.rest + 1; i < end; i++ {
		switch c.low(i) {
		case "over", "to":
			if c.low(i) == "to" && isBase(c.low(i+1)) {
				continue
			}
			pair := []string{c.foldTokens(c.rest, i), c.foldTokens(i+1, end)}
			slices.Sort(pair)
			return c.claim(c.subjectKey(), "preference between "+pair[0]+" and "+pair[1])
		case "for":
			return c.claim(c.subjectKey(), "preferred for "+c.text(i+1, end))
		}
	}
	return c.claim(c.subjectKey(), "opinion of "+strings.TrimPrefix(trimAttribute(strings.ToLower(text)), "to "))
}

var opinionVerbs = set(`love like enjoy adore hate dislike`)

// beforeDates are words that may come between "is" and a date.
var beforeDates = set(`on for at by the in from between until end beginning start middle of late early`)

// opinion: "Ana loves tea", "Bo no longer likes coffee", "I can't stand mornings", "I'm a big fan
// of jazz", "I'm into chess".
func opinion(c *clause) []draft {
	if c.kind == thing || c.past {
		return nil
	}
	at := c.rest
	switch {
	case opinionVerbs[c.lemma] && c.present():
	case c.lemma == "stand" && (c.modal == "can" || c.modal == "cannot") && c.negated:
	case c.copula() && c.modal == "" && (c.low(at) == "into" ||
		(c.low(at) == "fond" || c.low(at) == "tired" || c.low(at) == "afraid" || c.low(at) == "scared" ||
			c.low(at) == "terrified") && c.low(at+1) == "of"):
		at++
		if c.low(at) == "of" {
			at++
		}
	case c.copula() && c.modal == "" && (c.low(at) == "passionate" || c.low(at) == "crazy") && c.low(at+1) == "about":
		at += 2
	case c.copula() && c.modal == "" && c.low(at) == "interested" && c.low(at+1) == "in":
		at += 2
	case c.copula() && c.modal == "" && c.low(at) == "a" &&
		(c.low(at+1) == "fan" && c.low(at+2) == "of" || c.low(at+2) == "fan" && c.low(at+3) == "of"):
		for c.low(at) != "of" {
			at++
		}
		at++
	default:
		return nil
	}
	text, _, ok := c.object(at)
	if !ok || c.low(at) == "to" && vagueWishes[c.low(at+1)] || prepositions[c.low(at)] && c.low(at) != "to" {
		return nil
	}
	return c.claim(c.subjectKey(), "opinion of "+strings.TrimPrefix(trimAttribute(strings.ToLower(text)), "to "))
}

// vagueWishes are verbs after "like to", "want to", "hope to" that only address the listener.
var vagueWishes = set(`say know thank ask tell see hear think share be have get do go come make let talk believe imagine mention point add help give keep show take start try check hope wish put`)

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
