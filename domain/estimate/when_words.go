package estimate

import (
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

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
