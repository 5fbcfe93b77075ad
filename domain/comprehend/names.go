package comprehend

import (
	"slices"
	"strings"

	"github.com/annals-project/annals/domain/memory"
)

// neverNames are lower-case forms of words that are capitalised without being names.
var neverNames = set(`i ok okay tv dvd pc usa uk eu us faq asap fyi btw lol omg wtf imo idk diy am pm bc ad ceo cto cfo coo hr pr qa ui ux api url http https json xml sql html css
	christmas easter thanksgiving halloween hanukkah ramadan xmas god gosh jesus lord heaven mom mum dad mommy daddy mama papa grandma grandpa granny auntie uncle aunt
	today tomorrow yesterday tonight morning afternoon evening night spring summer autumn fall winter north south east west
	mr mrs ms dr prof sir madam king queen ma'am buddy pal dear hugs xoxo
	english american british french german italian spanish chinese japanese korean indian russian mexican canadian australian european african asian irish scottish welsh dutch
	swedish norwegian danish finnish polish turkish greek portuguese brazilian thai vietnamese arabic hebrew latin hindi ukrainian swiss austrian belgian egyptian
	christian jewish muslim catholic buddhist hindu lgbt lgbtq lgbtqia bbq bff irl diy covid ptsd adhd phd mba gps wifi usb pdf
	monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thur thurs fri sat sun jan feb mar apr jun jul aug sep sept oct nov dec january february march april may june july august september october november december
	mondays tuesdays wednesdays thursdays fridays saturdays sundays new day week month year hour yours sincerely regards best love kind warm looking let don't
	never always everyone nobody somebody anyone things stuff people life time work school home family friends kids nature music art food dinner lunch breakfast
	cannot how what when where who why which whose whom whether can could would should will shall may might must do does did is are was were be been has have had am
	yes no not none only just even still also too very really quite more most less least much many some any all both each every other another such same than then
	there here now again once twice soon later ever else maybe perhaps hopefully please thanks thank sorry welcome congrats congratulations
	good great nice awesome amazing cool wow wonderful fantastic perfect lovely beautiful happy glad excited sure right true real keep hope guess sounds seems looks feels
	being having doing going getting making taking seeing image photo picture video link here's
	usually often sometimes rarely recently lately finally basically apparently obviously absolutely definitely totally certainly exactly indeed instead overall meanwhile
	first second third fourth next last another both either neither nothing something anything everything several few plenty lots part due given based according makefile makefiles dockerfile dockerfiles readme changelog`)

// nations begin the names of institutions, and organs are what such names end with.
var (
	nations = set(`american british french german italian spanish chinese japanese korean indian russian mexican canadian australian european african asian irish scottish welsh dutch
	swedish norwegian danish finnish polish turkish greek portuguese brazilian thai vietnamese ukrainian swiss austrian belgian egyptian`)
	organs = set(`museum library airlines airways bank club parliament embassy institute academy association society council navy army school university red`)
)

var compass = set(`north south east west new san los las el la santa saint st great lake mount mt fort cape port`)

// commonNouns often begin sentences and are not names there.
var commonNouns = set(`temperature temperatures work sales revenue traffic production service services students customers users prices price tests builds deployments deployment dinner school class classes
	children parents friends teachers doctors engineers developers managers employees members management support marketing engineering finance legal security operations research data code software hardware
	water rain snow weather health money music food coffee tea breakfast lunch exercise yoga meditation pottery gardening hiking travel tickets orders order payment payments invoices invoice meetings
	version task tasks item items step steps option options team teams staff everyone others society science technology politics history nature progress success failure error errors issue issues bug bugs
	latency throughput uptime downtime timeout timeouts bandwidth capacity availability onboarding compliance procurement logistics attendance turnout enrolment enrollment registration parking catering
	sugar salt bread milk butter cheese meat beef pork chicken fish rice pasta fruit wine beer alcohol smoke air fire ice gold silver steel wood plastic paper cotton wool leather glass
	luck hope faith fear anger joy grief pain stress advice news information knowledge wisdom beauty truth justice peace war crime poverty wealth fame power energy oil gas electricity
	math maths physics chemistry biology geography literature philosophy poetry homework housework luggage furniture equipment jewellery clothing cash money tax rent debt credit
	daylight sunlight moonlight darkness noise silence dust mud sand grass hair skin blood sweat weight height speed heat cold sunshine thunder lightning jazz rock pop rap classical
	rumour rumor word legend tradition someone somebody santa nature mankind humanity society daddy mommy baby doctor nurse teacher coach boss chef brother sister cousin hubby dude folks guys gang crew
	email mail text code data content context feedback input output spam malware source target root cache index queue disk cpu ram node cluster prod dev main master head trunk
	churn retention adoption engagement conversion documentation infrastructure backend frontend staging checkout login billing shipping delivery recruiting hiring accounting purchasing facilities
	groceries laundry breathing sleep breakfasts dinners meals temperatures humidity wind fog traffic construction repairs maintenance negotiations talks discussions feedback approval approvals nothing
	response responses request requests access status performance quality memory storage application applications system systems server servers database databases network file files user customer manager
	profits inflation demand supply interest rates stocks shares unemployment costs growth police firefighters workers scientists researchers experts critics voters residents neighbors neighbours volunteers
	dogs cats animals birds plants trees flowers books movies games sports soccer football basketball tennis chess art love life death time progress packages email emails messages calls`)

// isName reports whether a token inside a sentence can be a word of a name.
func isName(t token) bool {
	return t.word && t.capital() && !neverNames[t.low] && !pronouns[t.low] && !determiners[t.low] &&
		!prepositions[t.low] &&
		!conjunctions[t.low] && !interjections[t.low] && !strings.HasPrefix(t.low, "@") && len(t.low) > 1
}

// nameEnd returns the end of the name that begins at token i, i if there is none.
func nameEnd(tokens []token, i int) int {
	if i < 0 || i >= len(tokens) {
		return i
	}
	end := i + 1
	if after := titleEnd(tokens, i); after > i {
		end = after // "Dr. Berg"
	} else if nations[tokens[i].low] && tokens[i].capital() && i+2 < len(tokens) && tokens[i+1].gap &&
		isName(tokens[i+1]) && (isName(tokens[i+2]) || organs[tokens[i+1].low]) {
		end++ // "Dutch Alpine Club", though "Dutch" alone is no name
	} else if compass[tokens[i].low] && tokens[i].capital() && end < len(tokens) && tokens[end].gap &&
		isName(tokens[end]) {
		end++ // "East Coast", though "East" alone is no name
	} else if !isName(tokens[i]) {
		return i
	}
	for end < len(tokens) && tokens[end].word {
		t := tokens[end]
		switch {
		case isName(t), t.numeric() && len(t.low) <= 2 && !t.possessive() && end-i == 1 && t.gap && dateless(tokens, end):
			end++
		case joins(tokens, end):
			end += 2
			if !isName(tokens[end-1]) {
				end++
			}
		default:
			return end
		}
	}
	return end
}

// titleEnd returns the end of the word that a title at token i precedes, i for other words.
func titleEnd(tokens []token, i int) int {
	if !titles[tokens[i].low] || !tokens[i].capital() {
		return i
	}
	k := i + 1
	if k < len(tokens) && tokens[k].low == "." {
		k++
	}
	if k < len(tokens) && isName(tokens[k]) {
		return k + 1
	}
	return i
}

// joins reports whether a small word is part of a name: "Bank of America", "Ludwig van Beethoven",
// "Lord of the Rings".
func joins(tokens []token, i int) bool {
	if i+1 >= len(tokens) {
		return false
	}
	switch low := tokens[i].low; {
	case low == "of" || particles[low] && low != "do":
		if isName(tokens[i+1]) {
			return true
		}
		return low == "of" && tokens[i+1].low == "the" && i+2 < len(tokens) && isName(tokens[i+2])
	}
	return false
}

// dateless reports whether the number at token i belongs to a name ("Apollo 11") and does not count
// what follows.
func dateless(tokens []token, i int) bool {
	if i+2 < len(tokens) && tokens[i+1].low == "." && !tokens[i+2].capital() {
		return false // "click Save 3. nothing happens"
	}
	return i+1 >= len(tokens) || !tokens[i+1].word || prepositions[tokens[i+1].low] || beForms[tokens[i+1].low]
}

// entity is a name in a sentence.
type entity struct {
	from, to int
	text     string
}

// entities finds the names in the tokens [from, to) of a sentence. A capital at the beginning of a
// sentence or in a headline is ambiguous: there a name counts only if it is known from elsewhere or
// has at least two words.
func (d *document) entities(s *sentence, from, to int) []entity {
	if !d.english || headline(s.tokens) {
		return nil
	}
	var found []entity
	for i := from; i < to; {
		end := nameEnd(s.tokens[:to], i)
		if end == i {
			i++
			continue
		}
		if (!opens(s.tokens, i) || slices.Contains(s.named, s.tokens[i].at) || d.surely(s.tokens, i, end)) &&
			s.tokens[end-1].end()-s.tokens[i].at <= maxName {
			found = append(found, entity{i, end, flat(s.text[s.tokens[i].at:s.tokens[end-1].end()])})
		} else if _, order := is(s.tokens[i].low, base); order && end > i+1 {
			end = i + 1 // "Tell Mei": an order and a name
		}
		i = end
	}
	return found
}

// opens reports whether token i begins a sentence, or a quotation or clause whose first word is
// capitalised.
func opens(tokens []token, i int) bool {
	for i--; i >= 0; i-- {
		if tokens[i].word {
			return false
		}
		if strings.ContainsAny(tokens[i].low, `.:!?…"*-–—([`) {
			return true
		}
		if tokens[i].low == "," {
			return false
		}
	}
	return true
}

// properName reports whether the single capitalised subject of a statement without an article is a
// name: not a plural, not a verb, and not uncountable ("Latency went up", "Registration closes").
func properName(t token) bool {
	if commonNouns[t.low] || bareWords[t.low] || commonGround[t.low] || games[t.low] || len(t.low) < 3 ||
		adverbs[t.low] || t.shouted() || strings.HasSuffix(t.low, "s") && !strings.HasSuffix(t.low, "as") &&
		!strings.HasSuffix(t.low, "is") && !strings.HasSuffix(t.low, "us") {
		return false
	}
	if _, verb := is(t.low, base|third|past|participle|gerund); verb {
		return false
	}
	return !slices.ContainsFunc(abstract, func(ending string) bool {
		return len(t.low) > len(ending)+2 && strings.HasSuffix(t.low, ending)
	})
}

// bareWords begin statements without an article, in general statements or notes.
var bareWords = set(`standup retro sync kickoff recap little small big large huge tiny old young new good bad great long short high low early late full free open close hard soft easy difficult simple strong weak happy sad tough true real whole half
	red green blue yellow orange purple pink brown black white grey gray gold silver gonna gotta wanna kinda sorta ain't till til cuz coz thx pls bro sis hon babe sweetie
	clay paint wood stone metal storm storms hurricane flood earthquake drought summer winter autumn spring weekend breakfast brunch lunch dinner supper dessert cake pizza pasta soup salad coffee tea
	painting photography pottery dance ballet theatre theater cinema film television radio internet school college university church work home bed town hospital prison court class practice training
	family marriage divorce childhood motherhood fatherhood parenthood pregnancy birth life death youth age time money travel sport art craft design science history nature beauty memory imagination
	hiking camping cooking baking reading writing running cycling swimming sleep rest fun joy laughter kindness love hope courage support respect trust patience gratitude self-care self-love mindfulness
	karma fate destiny fortune gossip traffic transport public private local global human animal cat dog bird horse baby mother father mom dad uncle aunt grandma grandpa
	chapter page part section figure table appendix exercise question problem level phase stage round sprint epic story bug defect patch build release version branch commit merge review sign-off
	check today's tomorrow's yesterday's monday's friday's lots tons heaps loads dozens hundreds thousands millions half most everyone's nobody's someone's whoever whatever whichever`)

// abstract are endings of nouns that need no article.
var abstract = []string{
	"tion", "sion", "ment", "ness", "ity", "ism", "ing", "ance", "ence", "ency", "ancy", "ship", "hood", "ware", "work", "time", "age", "ure", "logy", "graphy", "ics", "dom", "body", "thing",
	"where", "ery", "ful", "cy", "ty", "phy", "ble", "al", "ive", "ous", "less", "wise", "ward", "ly",
}

// surely reports whether the words [i, end) at the beginning of a sentence are a name despite that
// position.
func (d *document) surely(tokens []token, i, end int) bool {
	low := tokens[i].low
	if d.names[low] || d.capitals[low] {
		return true
	}
	if _, verb := is(low, base|third|past|participle|gerund); verb || commonNouns[low] {
		return false
	}
	return end-i >= 2 && !adverbs[low]
}

// headline reports whether most words of a sentence are capitalised, so that capitals do not mean
// names.
func headline(tokens []token) bool {
	words, capitals, shouts := 0, 0, 0
	stated := false // titles have no "was" and no full stop at the end
	for _, t := range tokens {
		stated = stated || t.low == "was" || t.low == "were" || t.low == "is" || t.low == "are"
		if t.shouted() {
			shouts++
		}
		if t.word && !t.numeric() && len(t.low) > 3 {
			words++
			if t.capital() {
				capitals++
			}
		}
	}
	stated = stated && tokens[len(tokens)-1].low == "."
	return shouts >= 3 && shouts >= words/2 || words >= 5 && capitals*4 >= words*3 && !stated
}

// readMentions states the names in a sentence, except of the person it addresses ("Thanks, Bo!")
// and of its speaker.
func readMentions(d *document, s *sentence) []draft {
	var drafts []draft
	for _, e := range d.entities(s, 0, len(s.tokens)) {
		if e.to == e.from+1 && s.department(e.from) || called(s.tokens, e) || e.to == e.from+1 && s.technical(e.from) ||
			sameName(e.text, s.who.name) {
			continue
		}
		line := e.text + " is mentioned"
		if s.who.name != "" {
			line = s.who.name + " mentions " + e.text
		}
		drafts = append(drafts, draft{kind: memory.Mention, line: line, entities: []string{e.text}, named: true})
	}
	return drafts
}

// technical reports whether a single word is capitalised without being a name: an abbreviation
// (MVP, URLs), which is far more frequent than a name like NASA; a word quoted from a program
// ('Submit', `Request`); a status after its number.
func (s *sentence) technical(i int) bool {
	t := s.tokens[i]
	if short := strings.TrimSuffix(t.text, "s"); t.shouted() || len(short) > 1 && strings.ToUpper(short) == short {
		return true
	}
	if i == 0 {
		return false
	}
	before := s.tokens[i-1]
	return before.numeric() && len(before.text) == 3 || pressed[before.low] || !before.word &&
		strings.Contains("`'\"‘“<{[/#.", before.text) && !t.gap || strings.HasSuffix(t.text, "Error") ||
		strings.HasSuffix(t.text, "Exception")
}

// department reports whether a common noun has its capital as a field of work: "Head of Data", "the
// Marketing team".
func (s *sentence) department(i int) bool {
	if !commonNouns[s.tokens[i].low] {
		return false
	}
	before := lowAt(s.tokens, i-1)
	return before == "of" || determiners[before] || groups[lowAt(s.tokens, i+1)]
}

// pressed are words before the text of a screen.
var pressed = set(`click press tap select grep`)

// called reports whether a name only addresses somebody: alone at an end of the sentence or between
// commas, after a greeting or before the message.
func called(tokens []token, e entity) bool {
	before, after := "", ""
	if e.from > 0 {
		before = tokens[e.from-1].low
	}
	if e.to < len(tokens) {
		after = tokens[e.to].low
	}
	closed := e.to >= len(tokens) || !tokens[e.to].word && after != "(" && after != `"`
	switch {
	case interjections[before] && before != "and" && before != "but" && before != "also" && before != "plus" &&
		before != "see" && before != "then":
		return closed
	case e.from == 0:
		return closed
	case before == ",":
		if e.from >= 2 && isName(tokens[e.from-2]) {
			return false // one of a list
		}
		return closed && (after != "," || !introduces(tokens, e.from-1))
	}
	return !tokens[e.from-1].word && closed && (after == "!" || after == "?") && before != `"`
}

// introduces reports whether the words before the comma at i describe the name that follows, as in
// "my sister, Dee, …".
func introduces(tokens []token, i int) bool {
	for k := i - 1; k >= 0 && k >= i-4; k-- {
		if determiners[tokens[k].low] {
			return true
		}
	}
	return false
}

// sameName reports whether two names can be of one person by their first words.
func sameName(a, b string) bool {
	return b != "" && (normalize(a) == normalize(b) || hasFirst(a, b) || hasFirst(b, a))
}
