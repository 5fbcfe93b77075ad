package comprehend

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"

	lists "github.com/annals-project/annals/domain/lexicon"
)

// calendarTable is the words of time of a language, as calendarTables has them.
type calendarTable struct {
	// days are expressions of a day, each with its distance from today; parts may follow one and change nothing.
	days, parts string
	// months and short are from January on, weekdays from Sunday on. A short form counts only after a day.
	months, short, weekdays string
	// The units of time, and numbers from one on.
	day, week, weekend, month, quarter, year, numbers string
	// last, this and next come before a unit, a weekday or a month, or after it but for this; after and nextAfter come
	// after it alone, and after also between an article, the, and the noun.
	last, this, next, the, after, nextAfter string
	// of is between a day, its month and its year. inMonth, onDay and inYear come before a month, a weekday, a year.
	of, inMonth, onDay, inYear string
	// alone: a weekday needs no word before it, unless notAfter or notBefore is next to it.
	alone               bool
	notAfter, notBefore string
	// agoBefore comes before a span that has passed, agoAfter after it.
	agoBefore, agoAfter string
	// since begins a period up to now, joins is between the ends of one. firstDay is how the first of a month is written.
	since, joins, firstDay string
	// future are auxiliaries of the future.
	future string
	// isFrench: its "hier" is yesterday unless the question has a German or Dutch word.
	isFrench bool
}

// calendar is a calendarTable as it is read.
type calendar struct {
	calendarTable

	// starts are the first words of the expressions that begin with a word.
	starts                                      map[string]bool
	days                                        map[string]int
	parts                                       map[string]bool
	months, short, weekdays, numbers            map[string]int
	units                                       map[string]string
	last, this, next, the, after, nextAfter, of map[string]bool
	inMonth, onDay, inYear, notAfter, notBefore map[string]bool
	agoBefore, agoAfter, since, joins           map[string]bool
}

// articles may come before a day.
var articles = set(`den dem der le el il o a`)

// calendars are those of all languages but English.
var calendars = func() (all []calendar) {
	for _, t := range calendarTables {
		c := calendar{
			calendarTable: t, days: map[string]int{}, parts: phrasesOf(t.parts), months: numbered(t.months, 1),
			short: numbered(t.short, 1), weekdays: numbered(t.weekdays, 0), numbers: numbered(t.numbers, 1),
			units: map[string]string{}, last: phrasesOf(t.last), this: phrasesOf(t.this), next: phrasesOf(t.next),
			the: phrasesOf(t.the), after: phrasesOf(t.after), nextAfter: phrasesOf(t.nextAfter), of: phrasesOf(t.of),
			inMonth: phrasesOf(t.inMonth), onDay: phrasesOf(t.onDay), inYear: phrasesOf(t.inYear),
			notAfter: phrasesOf(t.notAfter), notBefore: phrasesOf(t.notBefore), agoBefore: phrasesOf(t.agoBefore),
			agoAfter: phrasesOf(t.agoAfter), since: phrasesOf(t.since), joins: phrasesOf(t.joins),
		}
		for day := range strings.FieldsSeq(t.days) {
			name, offset, _ := strings.Cut(day, "=")
			n, err := strconv.Atoi(offset)
			if err != nil {
				panic(err) // the table is wrong
			}
			for _, form := range formsOf(name) {
				c.days[form] = n
			}
		}
		for name, list := range map[string]string{
			"day": t.day, "week": t.week, "weekend": t.weekend, "month": t.month, "quarter": t.quarter, "year": t.year,
		} {
			for form := range numbered(list, 0) {
				c.units[form] = name
			}
		}
		c.starts = startsOf(c.last, c.this, c.next, c.after, c.agoBefore)
		maps.Copy(c.starts, startsOf(c.units))
		maps.Copy(c.starts, startsOf(c.days, c.months, c.weekdays, c.numbers))
		all = append(all, c)
	}
	return all
}()

// startsOf returns the first words of the phrases of tables.
func startsOf[V any](tables ...map[string]V) map[string]bool {
	starts := map[string]bool{}
	for _, table := range tables {
		for phrase := range table {
			first, _, _ := strings.Cut(phrase, " ")
			starts[first] = true
		}
	}
	return starts
}

// formsOf returns a word of a table with spaces, and without its marks.
func formsOf(word string) []string {
	word = strings.ReplaceAll(word, "_", " ")
	plain := strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, norm.NFD.String(word))
	if plain == word || strings.ContainsFunc(word, func(r rune) bool { return unicode.Is(unicode.Cyrillic, r) }) ||
		len(plain) < 3 {
		return []string{word}
	}
	return []string{word, plain}
}

func phrasesOf(list string) map[string]bool {
	phrases := map[string]bool{}
	for word := range strings.FieldsSeq(list) {
		for _, form := range formsOf(word) {
			phrases[form] = true
		}
	}
	return phrases
}

// numbered numbers the words of a list, all forms of a word alike.
func numbered(list string, first int) map[string]int {
	numbers := map[string]int{}
	for n, word := range strings.Fields(list) {
		for form := range strings.SplitSeq(word, "|") {
			for _, f := range formsOf(form) {
				numbers[f] = first + n
			}
		}
	}
	return numbers
}

// asksAhead reports whether a question has an auxiliary of the future in another language than English.
func asksAhead(tokens []token) bool {
	return slices.ContainsFunc(tokens, func(t token) bool { return futures[t.low] })
}

var futures = func() map[string]bool {
	all := map[string]bool{}
	for _, t := range calendarTables {
		maps.Copy(all, phrasesOf(t.future))
	}
	return all
}()

// longestPhrase is the most tokens of a phrase of a table.
const longestPhrase = 4

// plainWord returns token i in lower case, without an article before an apostrophe.
func (r *dateReader) plainWord(i int) string {
	low := r.low(i)
	if before, rest, ok := strings.Cut(low, "'"); ok && len(before) <= 4 && before != "aujourd" && rest != "" {
		return rest
	}
	return low
}

// phrase returns the longest phrase of a table that begins with token i, and where it ends; 0 for none.
func phrase[V any](r *dateReader, i int, table map[string]V) (found V, to int) {
	text := r.plainWord(i)
	if v, ok := table[text]; ok {
		found, to = v, i+1
	}
	if !longPhrases[text] {
		return found, to
	}
	for k := i + 1; k < len(r.tokens) && k < i+longestPhrase; k++ {
		text += " " + r.plainWord(k)
		if v, ok := table[text]; ok {
			found, to = v, k+1
		}
	}
	return found, to
}

// longPhrases are the first words of the phrases of several words, of all tables.
var longPhrases = func() map[string]bool {
	first := map[string]bool{}
	for _, t := range calendarTables {
		for _, list := range []string{t.days, t.parts, t.weekend, t.nextAfter, t.agoBefore} {
			for phrase := range strings.FieldsSeq(strings.ReplaceAll(list, "|", " ")) {
				if word, _, several := strings.Cut(phrase, "_"); several {
					for _, form := range formsOf(word) {
						first[form] = true
					}
				}
			}
		}
	}
	return first
}()

// has reports whether a word of a table is right before token i.
func has(r *dateReader, i int, table map[string]bool) bool { return table[r.low(i-1)] }

// at reads the date expression of the language that begins with token i, the longest.
func (c *calendar) at(r *dateReader, i int) (best dated, ok bool) {
	if t := r.tokens[i]; !t.word || !t.numeric() && !c.starts[r.plainWord(i)] {
		return dated{}, false // true for nearly all tokens
	}
	for _, read := range []func(*dateReader, int) (dated, bool){
		c.nearDay, c.dayOfMonth, c.monthAlone, c.weekday, c.unitOf, c.rolling, c.ago, c.yearAlone,
	} {
		if d, found := read(r, i); found && d.to > best.to {
			best, ok = d, true
		}
	}
	return best, ok
}

// nearDay reads "gestern", "ayer por la tarde".
func (c *calendar) nearDay(r *dateReader, i int) (dated, bool) {
	offset, to := phrase(r, i, c.days)
	if to == 0 || r.inOtherName(i, to) || c.isFrench && r.plainWord(i) == "hier" && to == i+1 && r.speaksGerman(i) {
		return dated{}, false
	}
	return oneDay(i, c.afterPart(r, to), r.day(offset), true), true
}

// inOtherName reports whether the tokens from i up to another are a name: a word with a capital after another word, as
// in "Maison Hier".
func (r *dateReader) inOtherName(i, to int) bool {
	return to == i+1 && i > 0 && r.tokens[i-1].word && r.tokens[i].capital() && !r.shouted
}

// afterPart returns the token after a part of the day.
func (c *calendar) afterPart(r *dateReader, i int) int {
	if _, to := phrase(r, i, c.parts); to > 0 {
		return to
	}
	return i
}

// germanic are the function words of German and Dutch that are none of French or English.
var germanic = func() map[string]bool {
	words := map[string]bool{}
	for _, language := range []string{"de", "nl"} {
		for word := range lists.StopWords(language) {
			words[word] = true
		}
	}
	for _, language := range []string{"fr", "en"} {
		for word := range lists.StopWords(language) {
			delete(words, word)
		}
	}
	return words
}()

// speaksGerman reports whether a word of the question besides token i is of German or Dutch: a function word, a word of
// time, or one with a letter that French has not.
func (r *dateReader) speaksGerman(i int) bool {
	for k, t := range r.tokens {
		if k == i || !t.word {
			continue
		}
		if t.low != "hier" && germanic[t.low] || strings.ContainsAny(t.low, "äöß") || germanWords[t.low] {
			return true
		}
	}
	return false
}

// germanWords are days and words of asking of German and Dutch that are none of another language.
var germanWords = set(`heute gestern vorgestern vandaag gisteren eergisteren morgen
	waar wanneer waarom hoe wie welk welke wer wann warum woher wohin`)

// dayNumber reads the number of a day with what may follow it: "11.", "1er", "3º".
func (c *calendar) dayNumber(r *dateReader, i int) (day, to int, ok bool) {
	low := r.low(i)
	if low == "" || low[0] < '0' || low[0] > '9' {
		return 0, 0, false
	}
	if low == c.firstDay {
		return 1, i + 1, true
	}
	digits := strings.TrimRight(low, "ºª°er")
	if day, ok = dayOfMonth(digits); !ok || len(digits) > 2 {
		return 0, 0, false
	}
	if to = i + 1; r.low(to) == "." && !r.tokens[to].gap {
		to++
	}
	return day, to, true
}

// monthNamed reads the name of a month, or its short form, after a day.
func (c *calendar) monthNamed(r *dateReader, i int) (month time.Month, to int) {
	low := r.plainWord(i)
	if m, ok := c.months[low]; ok {
		return time.Month(m), i + 1
	}
	if m, ok := c.short[low]; ok {
		if r.low(i+1) == "." && i+2 < len(r.tokens) {
			return time.Month(m), i + 2
		}
		return time.Month(m), i + 1
	}
	return 0, 0
}

func (c *calendar) passOf(r *dateReader, i int) int {
	if c.of[r.low(i)] {
		return i + 1
	}
	return i
}

// dayOfMonth reads "11. Mai", "el 3 de mayo de 2025", "3 bis 5 Juni", "Montag, den 12. Mai".
func (c *calendar) dayOfMonth(r *dateReader, i int) (dated, bool) {
	at := i
	if _, weekday := c.weekdays[r.low(i)]; weekday {
		if at++; r.low(at) == "," {
			at++
		}
		if articles[r.low(at)] {
			at++
		}
	}
	first, to, ok := c.dayNumber(r, at)
	if !ok {
		return dated{}, false
	}
	last := first
	if c.joins[r.low(to)] || r.low(to) == "-" || r.low(to) == "–" {
		end, after, ok := c.dayNumber(r, to+1)
		if !ok || end <= first {
			return dated{}, false
		}
		last, to = end, after
	}
	named := c.passOf(r, to)
	month, end := c.monthNamed(r, named)
	if _, english := months[r.low(named)]; end == 0 || english && named == at+1 {
		return dated{}, false // what English can read, it has read
	}
	to = end
	if year, ok := yearOf(r.low(c.passOf(r, to))); ok {
		a, ok1 := r.calendar(year, month, first)
		b, ok2 := r.calendar(year, month, last)
		return dated{from: i, to: c.passOf(r, to) + 1, start: a, end: b.AddDate(0, 0, 1)}, ok1 && ok2
	}
	a, ok := r.nearest(i, month, first)
	if !ok {
		return dated{}, false
	}
	b, ok := r.calendar(a.Year(), month, last)
	return dated{from: i, to: to, start: a, end: b.AddDate(0, 0, 1), relative: true}, ok
}

// monthAlone reads "im Mai", "mai 2025", "letzten März".
func (c *calendar) monthAlone(r *dateReader, i int) (dated, bool) {
	at, sign := i, 0
	before, to := c.before(r, i)
	if to > 0 {
		at, sign = to, before
	}
	month, ok := c.months[r.plainWord(at)]
	if !ok {
		return dated{}, false
	}
	if year, ok := yearOf(r.low(c.passOf(r, at+1))); ok && to == 0 {
		return r.monthOf(i, c.passOf(r, at+1)+1, year, time.Month(month), false), true
	}
	if to == 0 {
		after, end := c.afterNoun(r, at+1)
		switch {
		case end > 0:
			d, ok := r.namedMonth(i, end, time.Month(month), after)
			return d, ok
		case !has(r, i, c.inMonth):
			return dated{}, false
		}
		if sign = -1; r.tense.future {
			sign = 1
		}
		if time.Month(month) == r.today.Month() {
			sign = 0
		}
	}
	return r.namedMonth(i, at+1, time.Month(month), sign)
}

// calendarTables are the words of time of the languages that have stems, besides English. Words of one column are
// separated by spaces, forms of one word by |, and an underscore stands for a space. Marks may be left out.
//
// What also means something else is not here: "morgen" is a morning and a name, "mañana" a morning, and "sett" a
// form of a verb. Names of months and weekdays, which are also names of people, need a word before them that makes
// them days.
var calendarTables = []calendarTable{
	{
		days:      `heute=0 gestern=-1 vorgestern=-2 übermorgen=2`,
		parts:     `morgen vormittag mittag nachmittag abend nacht früh`,
		months:    `januar|jänner februar|feber märz april mai juni juli august september oktober november dezember`,
		short:     `jan feb mär|mrz apr mai jun jul aug sep|sept okt nov dez`,
		weekdays:  `sonntag montag dienstag mittwoch donnerstag freitag samstag|sonnabend`,
		day:       `tag|tage|tagen`,
		week:      `woche|wochen`,
		weekend:   `wochenende|wochenenden`,
		month:     `monat|monate|monaten|monats`,
		quarter:   `quartal|quartals`,
		year:      `jahr|jahre|jahren|jahres`,
		numbers:   `ein|eine|einem|einer|einen zwei drei vier fünf sechs sieben acht neun zehn elf zwölf`,
		last:      `letzte letzten letzter letztes letztem vorige vorigen voriger voriges vergangene vergangenen vergangenes`,
		this:      `diese diesen dieser dieses diesem`,
		next:      `nächste nächsten nächster nächstes nächstem kommende kommenden kommendes`,
		inMonth:   `im in seit bis ab anfang mitte ende`,
		onDay:     `am seit bis ab vom vor nach`,
		inYear:    `jahr jahre seit`,
		agoBefore: `vor`,
		since:     `seit ab`,
		joins:     `bis und`,
		future:    `wird werden werde wirst`,
	},
	{
		days:   `aujourd'hui=0 hier=-1 avant-hier=-2 demain=1 après-demain=2 ce_matin=0 ce_soir=0 cet_après-midi=0`,
		parts:  `matin midi après-midi soir nuit au_matin au_soir`,
		months: `janvier février mars avril mai juin juillet août septembre octobre novembre décembre`,
		short:  `janv févr mars avr mai juin juil août sept oct nov déc`, weekdays: `dimanche lundi mardi mercredi jeudi vendredi samedi`,
		day: `jour|jours`, week: `semaine|semaines`, weekend: `week-end|weekend`, month: `mois`, quarter: `trimestre`,
		year: `an|ans|année|années`, numbers: `un|une deux trois quatre cinq six sept huit neuf dix onze douze`,
		last: `dernier dernière derniers dernières`, after: `passé passée précédent précédente`,
		this: `ce cet cette`, next: `prochain prochaine prochains prochaines`,
		inMonth: `en depuis dès début fin mi`, onDay: `depuis dès avant après jusqu'à ce`, inYear: `en depuis l'an`,
		alone: true, notAfter: `le les chaque tous un du au des mercredis`, notBefore: `gras saint`,
		agoBefore: `il_y_a y_a`, since: `depuis dès`, joins: `à au et`, firstDay: `1er`, isFrench: true,
	},
	{
		days:   `hoy=0 ayer=-1 anteayer=-2 antier=-2 anoche=-1 pasado_mañana=2`,
		parts:  `por_la_mañana por_la_tarde por_la_noche a_la_noche en_la_noche en_la_mañana al_mediodía`,
		months: `enero febrero marzo abril mayo junio julio agosto septiembre|setiembre octubre noviembre diciembre`,
		short:  `ene feb mar abr may jun jul ago sept|sep oct nov dic`, weekdays: `domingo lunes martes miércoles jueves viernes sábado`,
		day: `día|días`, week: `semana|semanas`, weekend: `fin_de_semana|finde`, month: `mes|meses`, quarter: `trimestre`,
		year: `año|años`, numbers: `un|una dos tres cuatro cinco seis siete ocho nueve diez once doce`,
		last: `último última últimos últimas`, the: `el la los las del`, after: `pasado pasada pasados pasadas anterior`,
		this: `este esta`, next: `próximo próxima próximos próximas`, nextAfter: `que_viene siguiente`,
		of: `de del`, inMonth: `en desde hasta durante`, onDay: `el del desde al hasta`, inYear: `en desde año`,
		agoBefore: `hace`, since: `desde`, joins: `al a y hasta`,
	},
	{
		days:   `oggi=0 ieri=-1 altro_ieri=-2 altroieri=-2 avantieri=-2 domani=1 dopodomani=2 stamattina=0 stasera=0`,
		parts:  `mattina pomeriggio sera notte`,
		months: `gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre`,
		short:  `gen feb mar apr mag giu lug ago set ott nov dic`, weekdays: `domenica lunedì martedì mercoledì giovedì venerdì sabato`,
		day: `giorno|giorni`, week: `settimana|settimane`, weekend: `fine_settimana|weekend`, month: `mese|mesi`, quarter: `trimestre`,
		year: `anno|anni`, numbers: `un|uno|una due tre quattro cinque sei sette otto nove dieci undici dodici`,
		last: `scorso scorsa scorsi scorse ultimo ultima ultimi ultime`, after: `passato passata`,
		this: `questo questa`, next: `prossimo prossima prossimi prossime`,
		inMonth: `in a ad nel da dal`, onDay: `da dal dalla entro prima dopo`, inYear: `nel dal`,
		alone: true, notAfter: `il la ogni di del le`, agoAfter: `fa`, since: `da dal dalla`, joins: `al a e`,
	},
	{
		days:     `hoje=0 ontem=-1 anteontem=-2 amanhã=1 depois_de_amanhã=2`,
		parts:    `de_manhã à_noite à_tarde`,
		months:   `janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro`,
		short:    `jan fev mar abr mai jun jul ago set out nov dez`,
		weekdays: `domingo segunda-feira terça-feira quarta-feira quinta-feira sexta-feira sábado`,
		day:      `dia|dias`, week: `semana|semanas`, weekend: `fim_de_semana|final_de_semana`, month: `mês|meses`, quarter: `trimestre`,
		year: `ano|anos`, numbers: `um|uma dois|duas três quatro cinco seis sete oito nove dez onze doze`,
		last: `último última últimos últimas`, after: `passado passada anterior`,
		this: `este esta neste nesta esse essa`, next: `próximo próxima próximos próximas`, nextAfter: `que_vem seguinte`,
		of: `de`, inMonth: `em desde até durante`, onDay: `no na desde até`, inYear: `em desde ano`,
		agoBefore: `há faz`, agoAfter: `atrás`, since: `desde`, joins: `a ao e até`,
	},
	{
		days:   `vandaag=0 gisteren=-1 eergisteren=-2 overmorgen=2 gisteravond=-1 vanochtend=0 vanmorgen=0 vanmiddag=0 vanavond=0`,
		parts:  `ochtend morgen middag avond nacht`,
		months: `januari februari maart april mei juni juli augustus september oktober november december`,
		short:  `jan feb mrt apr mei jun jul aug sep|sept okt nov dec`, weekdays: `zondag maandag dinsdag woensdag donderdag vrijdag zaterdag`,
		day: `dag|dagen`, week: `week|weken`, weekend: `weekend|weekeinde`, month: `maand|maanden`, quarter: `kwartaal`,
		year: `jaar|jaren`, numbers: `een|één twee drie vier vijf zes zeven acht negen tien elf twaalf`,
		last: `vorige vorig afgelopen laatste voorbije`, this: `deze dit`, next: `volgende volgend komende komend aanstaande`,
		inMonth: `in sinds tot begin eind vanaf`, onDay: `op sinds vanaf tot van`, inYear: `sinds jaar`,
		agoAfter: `geleden`, since: `sinds vanaf`, joins: `tot en t/m`, future: `zal zullen`,
	},
	{
		days:   `idag=0 i_dag=0 igår=-1 i_går=-1 förrgår=-2 imorgon=1 i_morgon=1 övermorgon=2 ikväll=0 i_kväll=0 imorse=0 i_morse=0`,
		parts:  `morse kväll förmiddag eftermiddag natt`,
		months: `januari februari mars april maj juni juli augusti september oktober november december`,
		short:  `jan feb mars apr maj jun jul aug sep|sept okt nov dec`,
		weekdays: `söndag|söndags|söndagen måndag|måndags|måndagen tisdag|tisdags|tisdagen onsdag|onsdags|onsdagen ` +
			`torsdag|torsdags|torsdagen fredag|fredags|fredagen lördag|lördags|lördagen`,
		day: `dag|dagen|dagar|dagarna`, week: `vecka|veckan|veckor|veckorna`, weekend: `helg|helgen`,
		month: `månad|månaden|månader|månaderna`, quarter: `kvartal|kvartalet`, year: `år|året|åren`,
		numbers: `en|ett två tre fyra fem sex sju åtta nio tio elva tolv`,
		last:    `förra senaste föregående`, this: `denna detta`, next: `nästa kommande`,
		inMonth: `i under sedan till`, onDay: `i på sedan från`, inYear: `år under sedan`,
		agoAfter: `sedan`, since: `sedan`, joins: `till och`, future: `ska`,
	},
	{
		days: `сегодня=0 вчера=-1 позавчера=-2 завтра=1 послезавтра=2`, parts: `утром днём днем вечером ночью`,
		months: `январь|января|январе февраль|февраля|феврале март|марта|марте апрель|апреля|апреле май|мая|мае июнь|июня|июне ` +
			`июль|июля|июле август|августа|августе сентябрь|сентября|сентябре октябрь|октября|октябре ` +
			`ноябрь|ноября|ноябре декабрь|декабря|декабре`,
		short: `янв фев мар апр мая июн июл авг сен|сент окт ноя|нояб дек`,
		weekdays: `воскресенье|воскресенья понедельник|понедельника вторник|вторника среду|среды четверг|четверга ` +
			`пятницу|пятницы субботу|субботы`,
		day: `день|дня|дней|дни`, week: `неделя|неделю|неделе|недели|недель`, weekend: `выходные|выходных`,
		month: `месяц|месяца|месяце|месяцев`, quarter: `квартал|квартале|квартала`, year: `год|года|году|лет`,
		numbers: `один|одну|одна два|две три четыре пять шесть семь восемь девять десять`,
		last: `прошлый прошлая прошлую прошлой прошлом прошлого прошлое прошлые последний последнюю последние последних ` +
			`минувший минувшую`,
		this: `этот эта эту этой этом`, next: `следующий следующую следующей следующем ближайшие`,
		inMonth: `в с со до`, onDay: `в во с со до`, inYear: `в с`, agoAfter: `назад`, since: `с со`, joins: `по до и`,
		future: `будет будем будут`,
	},
}
