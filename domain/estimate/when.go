package estimate

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/annals-project/annals/domain/instant"
)

const (
	// maxTime is the longest text that is read as a time.
	maxTime = 120
	// The years of times: what is before or after them is an empty value of a program, or of another calendar.
	firstYear, lastYear = 1000, 2200
)

// parseTime reads a time as people and programs write it: ISO 8601, dates in digits, and dates with the names of months
// in the usual languages, with offsets and the usual names of zones. One without a zone is in zone. ok is false for
// other text, also for a time in a zone that is not known: it would be wrong. Dates in digits have the day first,
// unless monthFirst.
func parseTime(text string, zone *time.Location, monthFirst bool) (at time.Time, ok bool) {
	text = strings.TrimSpace(text)
	if len(text) < len("1.1.70") || len(text) > maxTime {
		return time.Time{}, false
	}
	if at, ok = parseISO(text, zone); !ok {
		if inner, wrapped := unwrapTime(text); wrapped {
			if at, ok = parseUnix(inner); !ok {
				at, ok = parseTime(strings.Trim(inner, "\"'"), zone, monthFirst)
			}
			return at, ok
		}
		at, ok = scanTime(text, zone, monthFirst)
	}
	if !ok || at.Year() < firstYear || at.Year() >= lastYear {
		return time.Time{}, false
	}
	return at, true
}

// timeOf reads a field that is named as a time: its text, or a number of seconds since 1970 or parts of them.
func timeOf(text string, zone *time.Location, monthFirst bool) (at time.Time, ok bool) {
	if at, ok = parseTime(text, zone, monthFirst); !ok {
		at, ok = parseUnix(strings.TrimSpace(text))
	}
	return at, ok
}

// unwrapTime returns the number in the forms that JSON of .NET and JavaScript have for a time.
func unwrapTime(text string) (inner string, ok bool) {
	for _, form := range [][2]string{{"/Date(", ")/"}, {`\/Date(`, `)\/`}, {"new Date(", ")"}, {"Date(", ")"}, {"ISODate(", ")"}} {
		if inner, ok = strings.CutPrefix(text, form[0]); ok {
			if inner, ok = strings.CutSuffix(inner, form[1]); ok {
				// The offset is that of the place where the time was shown: the number is in UTC.
				if at := strings.LastIndexAny(inner, "+-"); at > 0 && !strings.ContainsAny(inner, ":\"'") {
					inner = inner[:at]
				}
				return inner, true
			}
		}
	}
	return "", false
}

// parseISO reads ISO 8601 with a date of separated parts.
func parseISO(text string, zone *time.Location) (time.Time, bool) {
	if text[0] < '0' || text[0] > '9' || len(text) < len("2006-01-02") || text[4] != '-' {
		return time.Time{}, false
	}
	at, err := instant.Parse(text)
	if err != nil {
		return time.Time{}, false
	}
	if instant.Zoned(text) {
		return at, true
	}
	return inZone(at, zone), true
}

// inZone reads the wall clock of a UTC time in a zone.
func inZone(at time.Time, zone *time.Location) time.Time {
	y, m, d := at.Date()
	return time.Date(y, m, d, at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), zone)
}

// civil returns a time that is on the calendar.
func civil(year, month, day, hour, minute, second int, zone *time.Location) (time.Time, bool) {
	if year < 1 || year > 9999 || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 60 {
		return time.Time{}, false
	}
	if date := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC); date.Day() != day {
		return time.Time{}, false
	}
	return time.Date(year, time.Month(month), day, hour, minute, second, 0, zone), true
}

// number reads a few digits, "" as 0.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

// The sizes by which a number is taken for a Unix time: below the first one it is none, below the others it is in
// seconds, milliseconds and microseconds, and else in nanoseconds.
const (
	leastUnix   = 1e8
	leastMillis = 1e11
	leastMicros = 1e14
	leastNanos  = 1e17
)

// parseUnix reads a number of seconds since 1970, with a fraction or without, or of parts of seconds. A result before
// 1970 or after 2100 is none.
func parseUnix(text string) (at time.Time, ok bool) {
	if strings.ContainsAny(text, "eE") && len(text) < 32 {
		if f, err := strconv.ParseFloat(text, 64); err == nil && f < math.MaxInt64 {
			text = strconv.FormatFloat(f, 'f', -1, 64)
		}
	}
	whole, part, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n < leastUnix || len(part) > 20 || strings.Trim(part, "0123456789") != "" {
		return time.Time{}, false
	}
	switch {
	case n < leastMillis:
		at = time.Unix(n, int64(number((part + "000000000")[:9])))
	case n < leastMicros:
		at = time.UnixMilli(n)
	case n < leastNanos:
		at = time.UnixMicro(n)
	default:
		at = time.Unix(0, n)
	}
	if at = at.UTC(); at.Year() < 1970 || at.Year() >= 2100 {
		return time.Time{}, false
	}
	return at, true
}

// nameDate is a date in the name of a file, with a time of day or without. What stands directly before or after it may
// be its zone.
var nameDate = regexp.MustCompile(`(?:^|([^0-9]))(\d{4})([-_.]?)(\d{2})[-_.]?(\d{2})` +
	`(?:[Tt _-]+(?:at )?(\d{2})[-_.:h]?(\d{2})[-_.:m]?(\d{2})?)?` +
	`(?:\.\d{1,9})?(?:[ _-]?(Z|UTC|GMT|[+-]\d{2}[:.]?\d{2}))?(?:[^0-9]|$)`)

// dateInName returns the date that the path of a file names, the zero time for none. One that names its zone, as
// GMT20250512-170000 and 20250512T170000Z do, is in that.
func dateInName(path string, zone *time.Location) time.Time {
	path = path[max(0, len(path)-300):]
	found := nameDate.FindAllStringSubmatchIndex(path, 8)
	for i := len(found) - 1; i >= 0; i-- {
		at := found[i]
		group := func(n int) string {
			if at[2*n] < 0 {
				return ""
			}
			return path[at[2*n]:at[2*n+1]]
		}
		year := number(group(2))
		if year < 1900 || year >= lastYear {
			continue
		}
		in := zone
		if group(6) != "" {
			in = nameZone(path[:at[4]], group(9), zone)
		}
		month, day := number(group(4)), number(group(5))
		if at, ok := civil(year, month, day, number(group(6)), number(group(7)), number(group(8)), in); ok {
			return at
		}
		if at, ok := civil(year, month, day, 0, 0, 0, zone); ok {
			return at
		}
	}
	return time.Time{}
}

// nameZone returns the zone that is written around a time in a name.
func nameZone(before, after string, zone *time.Location) *time.Location {
	upper := strings.ToUpper(strings.TrimRight(before, "-_ "))
	switch {
	case after == "Z" || after == "UTC" || after == "GMT":
		return time.UTC
	case strings.HasSuffix(upper, "GMT") || strings.HasSuffix(upper, "UTC"):
		return time.UTC
	case after == "":
		return zone
	}
	if at, err := time.Parse("-0700", strings.NewReplacer(":", "", ".", "").Replace(after)); err == nil {
		return at.Location()
	}
	return zone
}

// dateOrder collects what the dates of a file show of the order of day and month.
type dateOrder struct {
	// dayFirst and monthFirst count dates that have only one reading, halves those with am or pm.
	dayFirst, monthFirst, halves int
	// back counts how often a date is before the one that precedes it, read with the day first and the month first.
	back [2]int
	last [2]int
}

// add looks at the beginning of a text for a date of two numbers and a year.
func (o *dateOrder) add(text string) {
	a, rest, ok := leadingNumber(text)
	if !ok || rest == "" || !strings.Contains("/-", rest[:1]) {
		return
	}
	sep := rest[:1]
	b, rest, ok := leadingNumber(rest[1:])
	if !ok || !strings.HasPrefix(rest, sep) {
		return
	}
	year, rest, ok := leadingNumber(rest[1:])
	if !ok {
		return
	}
	switch {
	case a > 31 || b > 31 || a == 0 || b == 0:
		return
	case a > 12 && b > 12:
		return
	case a > 12:
		o.dayFirst++
	case b > 12:
		o.monthFirst++
	}
	clock := strings.ToLower(rest[:min(len(rest), 24)])
	if strings.Contains(clock, "am") || strings.Contains(clock, "pm") {
		o.halves++
	}
	for i, day := range [2]int{year*10_000 + b*100 + a, year*10_000 + a*100 + b} {
		if day < o.last[i] {
			o.back[i]++
		}
		o.last[i] = day
	}
}

// leadingNumber reads up to four digits.
func leadingNumber(text string) (n int, rest string, ok bool) {
	i := 0
	for i < len(text) && i < 5 && text[i] >= '0' && text[i] <= '9' {
		n = n*10 + int(text[i]-'0')
		i++
	}
	return n, text[i:], i > 0 && i < 5
}

// isMonthFirst decides: by dates that have one reading, else by the order of the file, in which dates seldom go back,
// else by a clock with am or pm, as in the United States.
func (o *dateOrder) isMonthFirst() bool {
	switch {
	case o.dayFirst != o.monthFirst:
		return o.monthFirst > o.dayFirst
	case o.back[0] != o.back[1] && (o.back[0] == 0 || o.back[1] == 0):
		return o.back[1] == 0
	}
	return o.halves > 0
}

// learnOrder reads the order of day and month from all values of a file that begin with a date: at the beginning of a
// line, of a cell, or of a text in quotes.
func (c *cut) learnOrder() bool {
	var o dateOrder
	text := c.text
	for i := 0; i < len(text); i++ {
		if i%checkBytes == 0 && c.over(min(checkBytes, len(text)-i)) {
			break
		}
		if text[i] < '0' || text[i] > '9' || i > 0 && !strings.ContainsRune("\n\t,;|\"'[", rune(text[i-1])) {
			continue
		}
		o.add(text[i:min(len(text), i+40)])
	}
	return o.isMonthFirst()
}

// monthNames are the months in the usual languages, in their order; forms of one month are joined by a slash. Where a
// shortened name is that of two months, the language that stands first decides.
var monthNames = []string{
	"january february march april may june july august september october november december",
	"januar/jänner/jän februar/feber märz/maerz/mrz april mai juni juli august september oktober november dezember",
	"janvier février/fevrier/fév/févr mars avril mai juin juillet/juil août/aout septembre octobre novembre décembre/decembre",
	"enero febrero marzo abril mayo junio julio agosto septiembre/setiembre octubre noviembre diciembre",
	"gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
	"janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
	"januari februari maart/mrt/marts april mei/maj juni juli augustus/augusti september/sept oktober november december",
	"января/январь февраля/февраль марта/март апреля/апрель мая/май июня/июнь июля/июль августа/август сентября/сентябрь октября/октябрь ноября/ноябрь декабря/декабрь",
	"stycznia/styczeń lutego/luty marca/marzec kwietnia/kwiecień maja/maj czerwca/czerwiec lipca/lipiec sierpnia/sierpień września/wrzesień października/październik listopada/listopad grudnia/grudzień",
	"ocak şubat mart nisan mayıs haziran temmuz ağustos eylül ekim kasım aralık",
	"tammikuuta/tammikuu helmikuuta/helmikuu maaliskuuta/maaliskuu huhtikuuta/huhtikuu toukokuuta/toukokuu kesäkuuta/kesäkuu heinäkuuta/heinäkuu elokuuta/elokuu syyskuuta/syyskuu lokakuuta/lokakuu marraskuuta/marraskuu joulukuuta/joulukuu",
	"ledna/leden února/únor března/březen dubna/duben května/květen června/červen července/červenec srpna/srpen září října/říjen listopadu prosince/prosinec",
	"ιανουαρίου/ιανουάριος φεβρουαρίου/φεβρουάριος μαρτίου/μάρτιος απριλίου/απρίλιος μαΐου/μάιος/μαΐ ιουνίου/ιούνιος/ιουν ιουλίου/ιούλιος/ιουλ αυγούστου/αύγουστος/αυγ σεπτεμβρίου/σεπτέμβριος οκτωβρίου/οκτώβριος νοεμβρίου/νοέμβριος/νοε δεκεμβρίου/δεκέμβριος",
	"січня/січень лютого/лютий березня/березень квітня/квітень травня/травень червня/червень липня/липень серпня/серпень вересня/вересень жовтня/жовтень листопада/листопад грудня/грудень",
	"január február március/márc április/ápr május/máj június/jún július/júl augusztus szeptember október november december",
	"ianuarie februarie martie aprilie mai iunie iulie august septembrie octombrie noiembrie decembrie",
	"gener febrer març abril maig juny juliol agost setembre octubre novembre desembre",
	"januari februari maret/mac april mei juni/jun juli/julai agustus/ogos/agt/ags september oktober november/nopember desember/disember",
	"januára/január februára/február marca/marec apríla/apríl mája/máj júna/jún júla/júl augusta/august septembra/september " +
		"októbra/október novembra/november decembra/december",
	"januar februar marec april maj junij julij avgust september oktober november december",
	"jaanuar veebruar märts aprill mai juuni juuli august september oktoober november detsember",
	"януари февруари март април май юни юли август септември октомври ноември декември",
	"јануар фебруар март април мај јун јул август септембар октобар новембар децембар",
	"ינואר/בינואר פברואר/בפברואר מרץ/במרץ/מרס/במרס אפריל/באפריל מאי/במאי יוני/ביוני יולי/ביולי אוגוסט/באוגוסט " +
		"ספטמבר/בספטמבר אוקטובר/באוקטובר נובמבר/בנובמבר דצמבר/בדצמבר",
	"يناير فبراير مارس أبريل/ابريل مايو يونيو يوليو أغسطس/اغسطس سبتمبر أكتوبر/اكتوبر نوفمبر ديسمبر",
	"जनवरी फ़रवरी/फरवरी मार्च अप्रैल मई जून जुलाई अगस्त सितंबर/सितम्बर अक्टूबर/अक्तूबर नवंबर/नवम्बर दिसंबर/दिसम्बर",
	"มกราคม/มค กุมภาพันธ์/กพ มีนาคม/มีค เมษายน/เมย พฤษภาคม/พค มิถุนายน/มิย กรกฎาคม/กค สิงหาคม/สค กันยายน/กย ตุลาคม/ตค พฤศจิกายน/พย ธันวาคม/ธค",
}

// weekdayNames are the days of the week in these languages; they say nothing that the date does not.
const weekdayNames = `monday tuesday wednesday thursday friday saturday sunday montag dienstag mittwoch donnerstag freitag samstag
sonnabend sonntag lundi mardi mercredi jeudi vendredi samedi dimanche lunes martes miércoles miercoles jueves viernes sábado sabado
domingo lunedì martedì mercoledì giovedì venerdì sabato domenica segunda-feira segunda terça terca quarta quinta sexta feira
maandag dinsdag woensdag donderdag vrijdag zaterdag zondag måndag tisdag onsdag torsdag fredag lördag söndag mandag tirsdag lørdag
søndag понедельник вторник среда среду четверг пятница пятницу суббота субботу воскресенье poniedziałek wtorek środa czwartek
piątek sobota niedziela pazartesi salı çarşamba perşembe cuma cumartesi pazar maanantai tiistai keskiviikko torstai perjantai
lauantai sunnuntai maanantaina tiistaina keskiviikkona torstaina perjantaina lauantaina sunnuntaina pondělí úterý středa čtvrtek
pátek neděle δευτέρα τρίτη τετάρτη πέμπτη παρασκευή σάββατο κυριακή понеділок вівторок середа четвер пʼятниця субота неділя
hétfő kedd szerda csütörtök péntek szombat vasárnap luni marți miercuri joi vineri sâmbătă duminică пн вт ср чт пт сб вс
月曜日 火曜日 水曜日 木曜日 金曜日 土曜日 日曜日 星期一 星期二 星期三 星期四 星期五 星期六 星期日 星期天 周一 周二 周三 周四 周五 周六 周日
週一 週二 週三 週四 週五 週六 週日 월요일 화요일 수요일 목요일 금요일 토요일 일요일 วันจันทร์ วันอังคาร วันพุธ วันพฤหัสบดี วันศุกร์ วันเสาร์ วันอาทิตย์ จ อ พ พฤ ศ ส อา
dilluns dimarts dimecres dijous divendres dissabte diumenge senin selasa rabu kamis jumat sabtu minggu isnin khamis jumaat ahad
pondelok utorok streda štvrtok piatok nedeľa ponedeljek torek sreda četrtek petek nedelja понеделник вторник сряда четвъртък петък
събота неделя понедељак уторак среда четвртак петак субота недеља esmaspäev teisipäev kolmapäev neljapäev reede laupäev pühapäev
الأحد الاثنين الإثنين الثلاثاء الأربعاء الخميس الجمعة السبت ראשון שני שלישי רביעי חמישי שישי שבת יום सोमवार मंगलवार बुधवार गुरुवार शुक्रवार
शनिवार रविवार`

// fillers are words between the parts of a date.
var fillers = wordSet(`at on pukul jam pada dan la les of the um uhr am den der à a le el il de del di do da du kl klo kello om o ore alle alla las os às t h
st nd rd th er re e ème º ª de' д в во о об у р г года год р року dnia godz στις kl. και at: yıl saat ora orele v ve d`)

// halves are the marks of the halves of a day, 1 before noon and 2 after it; 3 and 4 are those before the clock.
var halves = map[string]int{
	"am": 1, "pm": 2, "πμ": 1, "μμ": 2, "fm": 1, "em": 2, "ap": 1, "ip": 2, "прoб": 1, "проб": 1, "слоб": 2, "sa": 1, "ch": 2, "öö": 1, "ös": 2, "ص": 1, "م": 2,
	"오전": 3, "오후": 4, "上午": 3, "下午": 4, "午前": 3, "午後": 4, "凌晨": 3, "早上": 3, "清晨": 3, "晚上": 4, "中午": 4,
}

func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		set[w] = true
	}
	return set
}

// shortest is how many letters a shortened name of a month has at least.
const shortest = 3

// monthWords maps each name and each beginning of it to its month.
var monthWords = sync.OnceValue(func() map[string]int {
	table := map[string]int{}
	for _, names := range monthNames {
		for i, forms := range strings.Fields(names) {
			for name := range strings.SplitSeq(forms, "/") {
				for end := range name {
					if _, taken := table[name[:end]]; !taken && utf8.RuneCountInString(name[:end]) >= shortest {
						table[name[:end]] = i + 1
					}
				}
			}
		}
	}
	for _, names := range monthNames { // a whole name is more than the beginning of another
		for i, forms := range strings.Fields(names) {
			for name := range strings.SplitSeq(forms, "/") {
				table[name] = i + 1
			}
		}
	}
	delete(table, "jui") // June or July
	return table
})

func monthOf(word string) (month int, ok bool) {
	month, ok = monthWords()[word]
	return month, ok
}

func isThai(word string) bool {
	r, _ := utf8.DecodeRuneInString(word)
	return r >= 0xe00 && r < 0xe80
}

var weekdayWords = sync.OnceValue(func() map[string]bool {
	table := map[string]bool{}
	for name := range strings.FieldsSeq(weekdayNames) {
		table[name] = true
		for end := range name {
			if utf8.RuneCountInString(name[:end]) >= 2 {
				table[name[:end]] = true
			}
		}
	}
	return table
})

func isWeekday(word string) bool { return weekdayWords()[word] }

// zoneMinutes are the offsets that the names of zones mean: those of RFC 5322, and others that mean one thing in most
// places. What is not here is not known: CST of China and IST of Israel are read by the zone of the request.
var zoneMinutes = map[string]int{
	"z": 0, "ut": 0, "utc": 0, "gmt": 0, "wet": 0, "west": 60, "bst": 60, "cet": 60, "cest": 120, "met": 60, "mest": 120,
	"mez": 60, "mesz": 120, "hnec": 60, "haec": 120, "eet": 120, "eest": 180, "msk": 180, "msd": 240, "trt": 180, "sast": 120,
	"cat": 120, "eat": 180, "wat": 60, "idt": 180, "irst": 210, "pkt": 300, "ist": 330, "npt": 345, "ict": 420, "wib": 420,
	"wita": 480, "wit": 540, "sgt": 480, "hkt": 480, "pht": 480, "awst": 480, "jst": 540, "kst": 540, "acst": 570, "acdt": 630,
	"aest": 600, "aedt": 660, "nzst": 720, "nzdt": 780, "nst": -210, "ndt": -150, "ast": -240, "adt": -180, "brt": -180,
	"art": -180, "clt": -240, "clst": -180, "cot": -300, "pet": -300, "est": -300, "edt": -240, "cst": -360, "cdt": -300,
	"mst": -420, "mdt": -360, "pst": -480, "pdt": -420, "akst": -540, "akdt": -480, "hst": -600, "ут": 0, "мск": 180,
	"samt": 240, "yekt": 300, "omst": 360, "krat": 420, "irkt": 480, "yakt": 540, "vlat": 600, "magt": 660, "pett": 720,
	"gst": 240, "azt": 240, "uzt": 300, "mmt": 390, "myt": 480, "chst": 600, "uyt": -180, "brst": -120, "bot": -240, "vet": -240,
	"wast": 120,
}

// zoneOffset returns the seconds that a zone is east of UTC.
func zoneOffset(name string) (seconds int, ok bool) {
	minutes, ok := zoneMinutes[name]
	return minutes * 60, ok
}

// zoneParts are the zones whose names do not tell whether it is summer.
var zoneParts = map[string]string{
	"et": "America/New_York", "ct": "America/Chicago", "mt": "America/Denver", "pt": "America/Los_Angeles", "akt": "America/Anchorage",
}

// places keeps the zones that were loaded by their names: there are some hundred.
var places sync.Map

// zonePlace returns the zone of a name such as Europe/Rome, nil for another text.
func zonePlace(name string) *time.Location {
	if place, known := zoneParts[name]; known {
		name = place
	}
	area, city, ok := strings.Cut(name, "/")
	if !ok || area == "" || city == "" || len(name) > 40 {
		return nil
	}
	parts := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '/' })
	for i, p := range parts {
		if p == "us" {
			parts[i] = "US"
			continue
		}
		words := strings.Split(p, "_")
		for j, w := range words {
			if w != "" && w != "es" && w != "of" && w != "au" && w != "and" {
				words[j] = strings.ToUpper(w[:1]) + w[1:]
			}
		}
		parts[i] = strings.Join(words, "_")
	}
	name = strings.Join(parts, "/")
	if known, found := places.Load(name); found {
		zone, _ := known.(*time.Location)
		return zone
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil
	}
	places.Store(name, zone)
	return zone
}
