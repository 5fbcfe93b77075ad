package comprehend

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kljensen/snowball/english"
)

// document is one revision that is being read.
type document struct {
	content    string
	label      string
	metadata   []byte
	occurredAt time.Time       // OccurredAt
	author     speaker         // the sender
	names      map[string]bool // lower-case first words of names, known from author, label and chat lines
	chat       bool            // the content is a written dialogue
	speakers   map[string]bool // the normalized names that begin its turns
	english    bool            // the content looks like English, so capitals mean names
	capitals   map[string]bool // words with a capital inside a sentence
	excerpt    string          // the excerpt of memories from label, metadata and author
	share      float64         // the part of the content to read, 1 unless it is longer than maxRead
	credit     float64         // bytes that may still be read
	tokens     []token         // a buffer, nil while it is in use
}

// sampleBytes is how many bytes of the content are sampled for its language and its capitals.
const sampleBytes = 64 << 10

func newDocument(in Input) *document {
	doc := &document{
		share:   min(1, maxRead/float64(max(len(in.Content), 1))),
		content: in.Content, label: flat(in.Label), occurredAt: in.OccurredAt,
		names: map[string]bool{}, speakers: map[string]bool{}, capitals: map[string]bool{},
	}
	if len(in.Metadata) <= maxMetadata {
		doc.metadata = in.Metadata
	}
	doc.author = authorOf(in.Author, doc.label)
	doc.know(doc.author.name)
	doc.findSpeakers()
	doc.sample()
	doc.excerpt = doc.firstSentence()
	return doc
}

// know records the first word of a name.
func (d *document) know(name string) {
	if first, _, _ := strings.Cut(name, " "); first != "" {
		d.names[strings.ToLower(first)] = true
	}
}

// sample reads the beginning of the content to find its language and the words that have a capital
// inside sentences.
func (d *document) sample() {
	words, common, known, foreign := 0, 0, 0, 0
	tokens := d.tokens
	text := d.content
	if len(text) > sampleBytes {
		text = text[:sampleBytes]
	}
	for line := range strings.Lines(text) {
		if len(line) > 4*maxSentence {
			line = line[:4*maxSentence]
		}
		tokens = tokenize(mask(line), tokens[:0])
		for i, t := range tokens {
			if !t.word || t.numeric() {
				continue
			}
			words++
			switch {
			case englishWords[t.low]:
				common++
			case foreignWords[t.low]:
				foreign++
			case lexicon[t.low] != nil || adverbs[t.low] || determiners[t.low]:
				known++
			}
			if i > 0 && t.capital() && !t.shouted() && tokens[i-1].word && !tokens[i-1].capital() {
				d.capitals[t.low] = true
			}
		}
	}
	d.tokens = tokens
	// A short text may contain none of the common words.
	d.english = foreign <= common && (words <= 4 || common*8 >= words || words <= 16 && common+known > 0)
}

// firstSentence returns the first sentence of the content, cut at MaxExcerpt code points.
func (d *document) firstSentence() string {
	first := ""
	d.eachSpan(func(start, end int, _ speaker) bool {
		first = d.content[start:end]
		return first == ""
	})
	if first == "" {
		first = strings.TrimSpace(d.content)
	}
	n := 0
	for i := range first {
		if n++; n > MaxExcerpt {
			return strings.TrimSpace(first[:i])
		}
	}
	return first
}

// mask replaces every control character by a space and keeps the length in bytes.
func mask(text string) string {
	for i := 0; i < len(text); i++ {
		if text[i] < ' ' || text[i] == 0x7f {
			b := []byte(text)
			for ; i < len(b); i++ {
				if b[i] < ' ' || b[i] == 0x7f {
					b[i] = ' '
				}
			}
			return string(b)
		}
	}
	return text
}

// flat returns text on one line: white space and control characters as single spaces, none at the
// ends, valid UTF-8.
func flat(text string) string {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "")
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r <= 0x9f || r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == '\u200b' {
			return ' '
		}
		return r
	}, text)
	return strings.Join(strings.Fields(text), " ")
}

// set returns the words of a text as a set.
func set(words string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		m[w] = true
	}
	return m
}

// The word lists of the grammar, which are read-only tables.
var (
	// englishWords tell English from other languages: none of them is common in another.
	englishWords = set(`the and is of my with that for are it this you have i to a was not be by or at from we he she they has had on in
		but so do your his her our their there what when who how just like love think about would will can if up out been
		'm 's 're 've 'll me as an all its more one get`)
	// foreignWords are common words of other languages that are not English words.
	foreignWords = set(`der das und ich nicht ist ein eine mit von den dem zu auf für sich auch wir sie le les des et est je il elle une du que qui dans pour pas nous vous el los las un una es por con
		para del se su lo che di il per non è sono och att det är jag som på het een van dat ik je niet zijn op voor um uma não`)
	// machines are roles of speakers that generate words.
	machines = set(`assistant ai bot system chatbot copilot chatgpt gpt claude gemini model tool function developer`)
	// people are roles that stand for the author.
	people = set(`user human me customer client`)
	// notNames are words before a colon that head a section or a field, never a turn of a dialogue.
	notNames = set(`note notes warning todo fixme subject from to date time location agenda summary action actions decision decisions question answer q a
		example examples tip tips important update updates re fwd fw cc bcc attendees participants topic topics title name address phone email
		status priority error info debug trace fatal warn step steps result results output input usage description details context background
		goal goals risk risks issue issues problem solution reason reasons conclusion next previous today tomorrow yesterday monday tuesday
		wednesday thursday friday saturday sunday january february march april may june july august september october november december
		what when where why how who which pros cons version release author authors owner reviewer assignee due deadline start end total
		price cost budget team project company role department group ingredients directions instructions requirements introduction overview
		abstract references links link source sources url http https file files path key value type format default option options the this
		that these those it he she they we you i my our your his her in on at for of and or but if so also not no yes ok okay well hi hello hey
		thanks thank please remember reminder rule rules policy fact facts fyi ps nb edit caution danger hint see image photo picture
		session meeting minutes call chat conversation interview message draft report plan review retro standup kickoff release sprint weekly daily`)
	particles = set(`de da di van von der den la le el bin ibn al y e du dos`)
	// titles and abbreviations end with a full stop that does not end a sentence, abbreviations
	// only if no capital follows; in lower case and without the full stop.
	titles        = set(`mr mrs ms dr prof st vs e.g i.e a.k.a gen col lt sgt capt hon rev`)
	abbreviations = set(`sr jr etc eg ie no nos vol fig approx dept inc ltd co corp
		jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thurs fri sat sun a.m p.m u.s u.k cf al`)

	// adverbs may come between a subject, its auxiliaries and its verb.
	adverbs = set(`really just also always never usually still actually finally recently already often sometimes even only both all now currently
		absolutely totally definitely probably certainly truly simply quickly suddenly eventually once twice generally normally typically mostly
		mainly especially particularly honestly personally officially successfully rarely hardly barely almost nearly kinda sorta
		then later soon first last today yesterday lately previously originally initially formerly ever long too much so very
		completely fully partly slowly happily sadly luckily unfortunately again back together not accidentally randomly basically
		genuinely literally obviously clearly strongly deeply mutually kindly secretly briefly temporarily permanently immediately`)
	modals    = set(`will would can could should might may must shall 'd ought cannot`)
	beForms   = set(`am is are was were be been being 's`)
	haveForms = set(`have has had having`)
	doForms   = set(`do does did`)

	pronouns      = set(`i we you he she it they this that these those there someone somebody everyone everybody anyone anybody nobody one`)
	vagueObjects  = set(`myself ourselves yourself himself herself themselves it that this them those these him her us you so one ones something anything everything nothing someone somebody anyone everyone there here what how when where why who which whatever mine yours his hers ours theirs too either both neither same such`)
	determiners   = set(`the a an my our your his her its their this that these those some any every each no another both all many several few most`)
	prepositions  = set(`of in on at to for from with by about into onto over under between among through during after before since until till against without within around near behind beside besides beyond across along towards toward upon per via than as like off out up down`)
	conjunctions  = set(`and but or so yet nor plus because although though while whereas if unless when whenever where which who whom whose that since until after before as than`)
	interjections = set(`oh wow woah whoa yeah agreed indeed yes yep yup no nope nah well ok okay so hey hi hello hiya thanks thank haha hahaha lol omg ah aha aw aww awww hmm hm um uh yay ooh
		cool great nice awesome amazing sure right true exactly absolutely definitely totally indeed sweet good hooray congrats congratulations
		sorry please bye goodbye cheers anyway anyways also plus honestly actually btw fyi luckily fortunately unfortunately sadly frankly
		and but then update ps gosh man dude sounds look listen see and still besides meanwhile though however therefore thus hence personally recently lately finally currently yesterday`)
	weekdays = map[string]int{
		"sunday": 0, "monday": 1, "tuesday": 2, "wednesday": 3, "thursday": 4, "friday": 5, "saturday": 6,
		"sun": 0, "mon": 1, "tue": 2, "tues": 2, "wed": 3, "thu": 4, "thur": 4, "thurs": 4, "fri": 5, "sat": 6,
	}
	months = map[string]int{
		"january": 1, "february": 2, "march": 3, "april": 4, "may": 5, "june": 6, "july": 7, "august": 8, "september": 9,
		"october": 10, "november": 11, "december": 12, "jan": 1, "feb": 2, "mar": 3, "apr": 4, "jun": 6, "jul": 7, "aug": 8, "sep": 9,
		"sept": 9, "oct": 10, "nov": 11, "dec": 12,
	}
	numberWords = map[string]int{
		"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
		"nine": 9, "ten": 10, "eleven": 11, "twelve": 12,
	}
)

// normalize returns a name as it is compared: in lower case, without articles, punctuation and
// double spaces.
func normalize(text string) string { return strings.Join(normalizeWords(text), " ") }

// normalizeAttribute returns the attribute of a claim as it is compared: normalized and stemmed, so
// that "favourite editor" and "favorite editors" are one attribute.
func normalizeAttribute(text string) string {
	words := normalizeWords(text)
	for i, w := range words {
		if s, ok := spellings[w]; ok {
			w = s
		}
		words[i] = english.Stem(w, true)
	}
	return strings.Join(words, " ")
}

// spellings are words with a second spelling or a short form.
var spellings = map[string]string{
	"favorite": "favourite", "fave": "favourite", "fav": "favourite", "color": "colour", "flavor": "flavour", "neighbor": "neighbour",
	"hobbies": "hobby", "birthdate": "birthday", "timezone": "zone", "movie": "film", "movies": "film",
}

func normalizeWords(text string) []string {
	words := strings.FieldsFunc(straight(flat(text)), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && r != '\'' && r != '@' && r != '.' &&
			r != '+' && r != '#' && r != '-' && r != '_'
	})
	kept := words[:0]
	for _, w := range words {
		w = strings.Trim(w, "'.-")
		w = strings.TrimSuffix(w, "'s")
		if w != "" && w != "the" && w != "a" && w != "an" {
			kept = append(kept, w)
		}
	}
	return kept
}

// Subject returns the subject of a claim as claims are compared by it. Every extractor must use
// Subject and Attribute, so that a claim supersedes an earlier one of another extractor.
func Subject(text string) string { return normalize(text) }

// Attribute returns the attribute of a claim as claims are compared by it.
func Attribute(text string) string { return normalizeAttribute(text) }
