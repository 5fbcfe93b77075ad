package comprehend

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// easternRule reads an expression of Japanese, Chinese or Korean, where words have no spaces between them or particles
// at their ends. Its groups are the arguments of read.
type easternRule struct {
	pattern *regexp.Regexp
	read    func(r *dateReader, group []string) (start, end time.Time, ok bool)
}

// The words of the patterns. What is part of other words is left out or guarded: 明日香 and 今日子 are names, 以前天
// is no day, and あす is in many words.
const (
	easternDigits = `([0-9０-９]{1,2})`
	easternCount  = `([0-9０-９]{1,2}|[一二三四五六七八九十]{1,3})`
	easternYears  = `([0-9０-９]{4}) ?[年년]`
	easternNumber = `([0-9０-９]{1,3}|[一二两兩三四五六七八九十]|한|두|세|네)`
	easternUnits  = ` ?(日|天|일|週間?|周|个星期|個星期|주일?|[かヶカケ]月|个月|個月|달|개월|年|년)`
	easternWeeks  = `(先々週|先週|今週|来週|來週|上上周|上上週|上周|上週|上个?星期|上個星期|上个?礼拜|上個禮拜|本周|本週|这周|這週|这个?星期|` +
		`這個星期|下周|下週|下个?星期|下個星期|지지난 ?주|지난 ?주|저번 ?주|이번 ?주|금주|다음 ?주)`
	easternNear = `(一昨日|明後日|大前天|おととい|きのう|きょう|今日|本日|今朝|今晩|今夜|昨日|昨夜|昨晩|明日|前天|昨天|昨晚|今天|今早|今晚|` +
		`明天|后天|後天|그저께|그제|어젯밤|어제|오늘|내일|모레)`
	easternDays = `([日月火水木金土])曜日?|(?:星期|礼拜|禮拜|周|週)([一二三四五六日天])|([일월화수목금토])요일`
)

// easternOffsets are days, weeks, months and years by their distance from now.
var easternOffsets = map[string]int{
	"今日": 0, "きょう": 0, "本日": 0, "今朝": 0, "今晩": 0, "今夜": 0, "今天": 0, "今早": 0, "今晚": 0, "오늘": 0,
	"昨日": -1, "きのう": -1, "昨夜": -1, "昨晩": -1, "昨天": -1, "昨晚": -1, "어제": -1, "어젯밤": -1,
	"一昨日": -2, "おととい": -2, "前天": -2, "그저께": -2, "그제": -2, "大前天": -3,
	"明日": 1, "明天": 1, "내일": 1, "明後日": 2, "后天": 2, "後天": 2, "모레": 2,
	"先々週": -2, "先週": -1, "今週": 0, "来週": 1, "來週": 1, "上上周": -2, "上上週": -2, "本周": 0, "本週": 0, "금주": 0,
	"先月": -1, "今月": 0, "来月": 1, "本月": 0, "先々月": -2,
	"去年": -1, "昨年": -1, "今年": 0, "来年": 1, "來年": 1, "明年": 1, "前年": -2, "一昨年": -2,
	"작년": -1, "지난해": -1, "올해": 0, "금년": 0, "내년": 1, "재작년": -2,
}

// easternOffset returns the distance of an expression from now.
func easternOffset(text string) int {
	text = strings.ReplaceAll(text, " ", "")
	if n, ok := easternOffsets[text]; ok {
		return n
	}
	for _, of := range []struct {
		beginning string
		offset    int
	}{{"지지난", -2}, {"지난", -1}, {"저번", -1}, {"이번", 0}, {"다음", 1}, {"上", -1}, {"这", 0}, {"這", 0}, {"下", 1}} {
		if strings.HasPrefix(text, of.beginning) {
			return of.offset
		}
	}
	return 0
}

// eastern compiles a pattern of what a text begins with.
func eastern(pattern string) *regexp.Regexp { return regexp.MustCompile("^(?:" + pattern + ")") }

// easternRules are tried at each place in their order.
var easternRules = []easternRule{
	{eastern(easternYears + ` ?` + easternCount + ` ?[月월] ?` + easternCount + ` ?[日号號일]`), easternDate},
	{eastern(easternYears + ` ?` + easternDigits + ` ?[月월]`), easternMonthOfYear},
	{eastern(easternCount + ` ?[月월] ?` + easternCount + ` ?[日号號일]`), easternDayOfMonth},
	{eastern(easternYears), easternYear},
	{eastern(easternDigits + ` ?[月월]`), easternMonth},
	{eastern(easternWeeks + `[ の的]*(?:` + easternDays + `)`), easternWeekdayOfWeek},
	{eastern(`(上上[周週]|[上本这這下](?:[周週]|[个個]?(?:星期|礼拜|禮拜)))([一二三四五六日天])`), easternWeekdayOfWeek},
	{eastern(easternWeeks), easternUnit("week")},
	{eastern(`(先々月|先月|今月|来月|本月|[上这這下][个個]月|지난 ?달|저번 ?달|이번 ?달|다음 ?달)`), easternUnit("month")},
	{eastern(`(一昨年|去年|昨年|今年|来年|來年|明年|前年|재작년|작년|지난해|올해|금년|내년)`), easternUnit("year")},
	{eastern(easternNear), easternDay},
	{eastern(easternNumber + easternUnits + ` ?(?:前|以前|之前|전)`), easternAgo},
	{eastern(`(?:지난|저번) ?([일월화수목금토])요일`), easternLastWeekday},
	{eastern(easternDays), easternWeekday},
}

// easternStop are letters before or after an expression that make it part of another word.
var easternStop = map[string][2]string{
	"今日": {"", "子香葉頭头"}, "明日": {"", "香葉菜海美奈花太郎"}, "昨日": {"", "香"}, "前天": {"以之目大", ""},
	"后天": {"先以之", ""}, "後天": {"先以之", ""}, "明天": {"光", ""}, "上周": {"晚早马馬以网網线線", ""}, "上週": {"晚早馬以網線", ""},
	"下周": {"以之", ""}, "내일": {"", ""}, "어제": {"", ""}, "그제": {"", "야서"}, "모레": {"", ""},
}

// withEastern adds the expressions of Japanese, Chinese and Korean to those that were found, in their order.
func withEastern(found []Named, question string, r *dateReader) []Named {
	isEastern := false
	for _, c := range question {
		isEastern = isEastern || c >= 0x3000
	}
	if !isEastern {
		return found
	}
	own := len(found)
	for at := 0; at < len(question); {
		named, ok := easternAt(question, at, r)
		if !ok {
			_, size := utf8.DecodeRuneInString(question[at:])
			at += size
			continue
		}
		found, at = append(found, named), named.To
	}
	if own > 0 {
		slices.SortStableFunc(found, func(a, b Named) int { return a.From - b.From })
	}
	joined := found[:0]
	for _, n := range found {
		if last := len(joined) - 1; last >= 0 && joined[last].To <= n.From && joined[last].Start.Before(n.End) &&
			easternJoins[strings.TrimSpace(question[joined[last].To:n.From])] {
			joined[last].End, joined[last].To = n.End, n.To
			continue
		}
		joined = append(joined, n)
	}
	return sinceEastern(joined, question, r)
}

// easternJoins are between the ends of a range, easternSince after a day that begins a period up to now.
var (
	easternJoins = set(`から 到 至 ~ 〜 ～ - – 부터`)
	easternSince = []string{"から", "以来", "以來", "以降", "以后", "以後", "起", "부터", "이후", "이래"}
	// easternParticles follow a word of Korean.
	easternParticles = []string{"에는", "에도", "에", "은", "는", "의", "도", "이", "가", "을", "를", "까지", "부터", "이후"}
)

func sinceEastern(found []Named, question string, r *dateReader) []Named {
	for i := range found {
		n := &found[i]
		for _, since := range easternSince {
			if strings.HasPrefix(strings.TrimLeft(question[n.To:], " "), since) && n.Start.Before(r.day(1)) &&
				n.From >= 0 && isEasternText(question[n.From:n.To]) {
				n.End = r.day(1)
				n.To = strings.Index(question[n.To:], since) + n.To + len(since)
				break
			}
		}
		if !isKoreanEnd(question[:n.To]) {
			continue
		}
		for _, particle := range easternParticles {
			if strings.HasPrefix(question[n.To:], particle) && endsKoreanWord(question[n.To+len(particle):]) {
				n.To += len(particle)
				break
			}
		}
	}
	return found
}

func isEasternText(text string) bool {
	for _, c := range text {
		if c >= 0x3000 {
			return true
		}
	}
	return false
}

func isHangul(c rune) bool { return c >= 0xAC00 && c <= 0xD7A3 }

func isKoreanEnd(text string) bool {
	c, _ := utf8.DecodeLastRuneInString(text)
	return isHangul(c)
}

func endsKoreanWord(rest string) bool {
	c, _ := utf8.DecodeRuneInString(rest)
	return !isHangul(c)
}

// easternAt reads the expression that begins with a byte of a question.
func easternAt(question string, at int, r *dateReader) (n Named, ok bool) {
	c, _ := utf8.DecodeRuneInString(question[at:])
	before, _ := utf8.DecodeLastRuneInString(question[:at])
	digit := unicode.IsDigit(c)
	if !digit && c < 0x3000 || digit && unicode.IsDigit(before) || isHangul(c) && isHangul(before) {
		return n, false
	}
	for _, rule := range easternRules {
		group := rule.pattern.FindStringSubmatchIndex(question[at:])
		if group == nil {
			continue
		}
		end := at + group[1]
		if isPartOfWord(question, at, end) {
			continue
		}
		texts := make([]string, 0, len(group)/2-1)
		for g := 2; g < len(group); g += 2 {
			if group[g] >= 0 {
				texts = append(texts, question[at+group[g]:at+group[g+1]])
			}
		}
		start, until, ok := rule.read(r, texts)
		if !ok || !(dated{start: start, end: until}).inRange() {
			continue
		}
		return Named{Period{start, until}, at, end}, true
	}
	return n, false
}

// isPartOfWord reports whether an expression is part of another word.
func isPartOfWord(question string, from, to int) bool {
	next, _ := utf8.DecodeRuneInString(question[to:])
	if isKoreanEnd(question[:to]) && isHangul(next) {
		rest := question[to:]
		return !slices.ContainsFunc(easternParticles, func(p string) bool {
			return strings.HasPrefix(rest, p) && endsKoreanWord(rest[len(p):])
		})
	}
	stops := easternStop[question[from:to]]
	before, _ := utf8.DecodeLastRuneInString(question[:from])
	return from > 0 && strings.ContainsRune(stops[0], before) || to < len(question) && strings.ContainsRune(stops[1], next)
}

// easternInt reads a number in digits or in words; it is negative for none.
func easternInt(text string) int {
	text = norm.NFKC.String(text)
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	tens, ones, isTens := strings.Cut(text, "十")
	switch {
	case !isTens:
		return easternOne(text)
	case tens == "" && ones == "":
		return 10
	case tens == "":
		return 10 + easternOne(ones)
	case ones == "":
		return 10 * easternOne(tens)
	}
	return 10*easternOne(tens) + easternOne(ones)
}

func easternOne(text string) int {
	n, ok := map[string]int{
		"一": 1, "二": 2, "两": 2, "兩": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9,
		"한": 1, "두": 2, "세": 3, "네": 4,
	}[text]
	if !ok {
		return -100
	}
	return n
}

func easternDate(r *dateReader, g []string) (start, end time.Time, ok bool) {
	start, ok = r.calendar(easternInt(g[0]), time.Month(easternInt(g[1])), easternInt(g[2]))
	return start, start.AddDate(0, 0, 1), ok
}

func easternMonthOfYear(r *dateReader, g []string) (start, end time.Time, ok bool) {
	start, ok = r.calendar(easternInt(g[0]), time.Month(easternInt(g[1])), 1)
	return start, start.AddDate(0, 1, 0), ok
}

func easternDayOfMonth(r *dateReader, g []string) (start, end time.Time, ok bool) {
	month, day := easternInt(g[0]), easternInt(g[1])
	if month < 1 || month > 12 {
		return start, end, false
	}
	start, ok = r.nearest(len(r.tokens), time.Month(month), day)
	return start, start.AddDate(0, 0, 1), ok
}

func easternYear(r *dateReader, g []string) (start, end time.Time, ok bool) {
	year := easternInt(g[0])
	start = r.date(year, time.January, 1)
	return start, start.AddDate(1, 0, 0), year >= 1900 && year <= 2199
}

func easternMonth(r *dateReader, g []string) (start, end time.Time, ok bool) {
	month, sign := time.Month(easternInt(g[0])), -1
	switch {
	case month < 1 || month > 12:
		return start, end, false
	case month == r.today.Month():
		sign = 0
	case r.tense.future:
		sign = 1
	}
	d, ok := r.namedMonth(0, 0, month, sign)
	return d.start, d.end, ok
}

func easternUnit(name string) func(*dateReader, []string) (start, end time.Time, ok bool) {
	return func(r *dateReader, g []string) (start, end time.Time, ok bool) {
		d, ok := r.unit(0, 0, name, easternOffset(g[0]))
		return d.start, d.end, ok
	}
}

func easternDay(r *dateReader, g []string) (start, end time.Time, ok bool) {
	start = r.day(easternOffset(g[0]))
	return start, start.AddDate(0, 0, 1), true
}

// easternDayOfWeek returns the weekday of a name.
func easternDayOfWeek(name string) int {
	for _, names := range []string{"日月火水木金土", "日一二三四五六", "일월화수목금토"} {
		if at := strings.Index(names, name); at >= 0 {
			return at / len("日")
		}
	}
	return 0 // 星期天
}

func easternWeekdayOfWeek(r *dateReader, g []string) (start, end time.Time, ok bool) {
	start = inWeek(r.day(7*easternOffset(g[0])), easternDayOfWeek(g[1]))
	return start, start.AddDate(0, 0, 1), true
}

func easternWeekday(r *dateReader, g []string) (start, end time.Time, ok bool) {
	if start = r.weekday(easternDayOfWeek(g[0]), 0); start.After(r.today) && !r.tense.future {
		start = start.AddDate(0, 0, -7)
	}
	return start, start.AddDate(0, 0, 1), true
}

func easternLastWeekday(r *dateReader, g []string) (start, end time.Time, ok bool) {
	start = r.weekday(easternDayOfWeek(g[0]), -1)
	return start, start.AddDate(0, 0, 1), true
}

func easternAgo(r *dateReader, g []string) (start, end time.Time, ok bool) {
	n := easternInt(g[0])
	if n < 1 {
		return start, end, false
	}
	var d dated
	switch first, _ := utf8.DecodeRuneInString(g[1]); first {
	case '日', '天', '일':
		return r.day(-n), r.day(1 - n), true
	case '週', '周', '주':
		d, ok = r.unit(0, 0, "week", -n)
	case '年', '년':
		d, ok = r.unit(0, 0, "year", -n)
	default:
		name := "month"
		if strings.HasSuffix(g[1], "星期") {
			name = "week"
		}
		d, ok = r.unit(0, 0, name, -n)
	}
	return d.start, d.end, ok
}
