package recall_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
	"golang.org/x/text/unicode/norm"

	"github.com/annals-project/annals/domain/recall"
)

// collection are texts that a small BM25 ranks by terms alone.
type collection struct {
	analyzer *recall.Analyzer
	texts    []string
	terms    [][]string
}

func collectionOf(a *recall.Analyzer, texts []string) *collection {
	c := &collection{analyzer: a, texts: texts}
	for _, text := range texts {
		c.terms = append(c.terms, a.Passages(recall.Document{Content: text})[0].Text)
	}
	return c
}

// scores returns BM25 of each text for a query: a word and its stems are as rare as the most frequent of them.
func (c *collection) scores(query string) []float64 {
	const k1, b = 0.9, 0.4
	length := 0
	for _, terms := range c.terms {
		length += len(terms)
	}
	average := float64(length) / float64(len(c.terms))
	asked := c.analyzer.Query(query)
	frequency := make([]float64, len(asked))
	counts := make([][]float64, len(asked))
	for n, term := range asked {
		counts[n] = make([]float64, len(c.terms))
		found := 0.0
		for i, terms := range c.terms {
			for _, t := range terms {
				if t == term.Text {
					counts[n][i]++
				}
			}
			if counts[n][i] > 0 {
				found++
			}
		}
		frequency[term.For] = max(frequency[term.For], found)
	}
	scores := make([]float64, len(c.terms))
	for n, term := range asked {
		df := frequency[term.For]
		weight := term.Share * math.Log1p((float64(len(c.terms))-df+0.5)/(df+0.5))
		for i, tf := range counts[n] {
			scores[i] += weight * tf * (k1 + 1) / (tf + k1*(1-b+b*float64(len(c.terms[i]))/average))
		}
	}
	return scores
}

// first returns the text with the highest score, "" if several have it or none matches.
func (c *collection) first(query string) string {
	scores := c.scores(query)
	best := slices.Max(scores)
	if best <= 0 || slices.Index(scores, best) != len(scores)-1-slices.Index(reversed(scores), best) {
		return ""
	}
	return c.texts[slices.Index(scores, best)]
}

func reversed(list []float64) []float64 {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

// plain are texts among which others are looked for.
var plain = []string{
	"The ferry to the island leaves at noon.", "Omar painted the mast of the cutter.", "Two seals sleep on the slipway.",
	"The office closes early on Fridays.", "Lin counted 38 crates in shed 7.", "The generator was serviced in March.",
	"Somebody left an umbrella in the canteen.", "It rained on us all day.", "The Baltic pilots meet on Tuesday.",
}

// TestScripts: in every script and spelling, the text that holds the words is first.
func TestScripts(t *testing.T) {
	texts := []string{
		"Đặng Thùy giữ bản đồ của bến cảng.", "Þóra Łukasz façade naïve Ærøskøbing", "Jürgen prüft die Bojen für Österreich.",
		"Ёжик чинит зелёный якорь у Йемена.", "Ὁ Ἀχιλλεύς ἔχει τὸν χάρτη τῆς Ἰθάκης.", "הַשּׁוֹמֵר שָׁכַח אֶת הַפָּנָס",
		"وَضَعَ أحمدُ المِفتاحَ في المدرسةِ", "부산 사무실은 동쪽에 있다.", "인천 사무실의 전화는 고장이다.",
		"名古屋支店の小さな倉庫は二階にあります。", "京都支店の窓口の笛は金庫にあります。", "整理番号ＸＹＺ－７８９は完了です。", "我们决定把打印机搬到北京办公室。",
		"ボートのプロペラは右側です。", "ポートの灯台は白い。", "กุญแจอยู่ในลิ้นชักที่สอง", "ขั้นตอนนี้ไม่มีใคร",
	}
	c := collectionOf(recall.NewAnalyzer(), append(slices.Clone(plain), texts...))
	for _, q := range []struct{ query, part string }{
		{"Đặng Thùy bản đồ", "Đặng"},
		{"dang thuy ban do", "Đặng"},
		{"thora lukasz facade", "Þóra"},
		{"ÆRØSKØBING", "Þóra"},
		{"prüfte Jürgen Boje", "Jürgen"},
		{"juergen boje osterreich", "Jürgen"},
		{"ежик йемен", "Ёжик"},
		{"зеленые якоря", "Ёжик"},
		{"αχιλλευσ", "Ἀχιλ"},
		{"ΧΆΡΤΗΣ ΙΘΆΚΗΣ", "Ἀχιλ"},
		{"השומר פנס", "הַשּׁוֹמֵר"},
		{"שכח", "הַשּׁוֹמֵר"},
		{"احمد المفتاح", "أحمد"},
		{"المدرسه", "أحمد"},
		{"부산 사무실", "부산"},
		{"부산에 사무실이", "부산"},
		{"전화", "인천"},
		{"名古屋の倉庫", "名古屋"},
		{"笛", "京都"},
		{"笛はどこ？", "京都"},
		{"XYZ-789", "ＸＹＺ"},
		{"北京打印机", "我们"},
		{"打印机放在哪里", "我们"},
		{"ボート", "ボート"},
		{"ポート", "ポート"},
		{"ﾎﾟｰﾄ", "ポート"},
		{"ลิ้นชัก", "กุญแจ"},
		{"ที่สอง", "กุญแจ"},
		{"ขั้น", "ขั้น"},
	} {
		for _, form := range []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD} {
			for _, query := range []string{q.query, cases.Upper(language.Und).String(q.query)} {
				if first := c.first(form.String(query)); !strings.Contains(first, q.part) {
					t.Errorf("%q (form %d): %q is first", query, form, first)
				}
			}
		}
	}
}

// TestIdentifiers: ids, names of programs and numbers are found in any of their spellings, before those like them.
func TestIdentifiers(t *testing.T) {
	texts := []string{
		"OutOfRangeError in InvoiceMailer.sendWeekly since build 733.", "The C++ tests need Ninja 1.11.", "The C# tests need .NET 9.",
		"The C tests need make.", "Never run dd if=/dev/zero of=/srv/tide on the pump.", "Users saw E_DISK_FULL on the pump.",
		"Order XK-31-508 is the bent rudder.", "Order XK-31-805 is the torn sail.", "Order XK-315-08 is the wet map.",
		"We set min_pool_size = 64 in quay.yaml.", "The lease costs 75,000 crowns.", "The lease of the shed costs 75 crowns.",
		"Release v3.20.4 fixed the radar.", "Release v3.4.20 broke the radar.", "Host 10.7.1.31 is the printer.",
		"Host 10.7.13.1 is the scanner.", "Call the diver at +44 20 7946 0018.", "Call the baker at +44 20 7946 0081.",
		"The K-77 engine is spare.", "The fee is €1.250,50.", "Reading list: The Tower. By: Ines.",
		"The tower fell; a tower is new; the tower company called.", "Film night: It, then Them.",
	}
	c := collectionOf(recall.NewAnalyzer(), append(slices.Clone(plain), texts...))
	for query, part := range map[string]string{
		"out of range error in the invoice mailer": "OutOfRange", "invoice_mailer send weekly": "OutOfRange", "outOfRangeError": "OutOfRange",
		"what do the C# tests need?": "C# tests", "what do the C++ tests need?": "C++ tests", "what do the C tests need?": "C tests",
		"C++": "C++", "c#": "C#", ".net": ".NET", "disk full": "E_DISK", "dd if": "dd if", "XK-31-508": "508 is", "xk-31-805": "805 is",
		"XK-315-08": "wet map", "XK31508": "", "minPoolSize": "min_pool", "MIN_POOL_SIZE": "min_pool", "75000": "75,000", "75 000 crowns": "75,000",
		"75.000": "75,000", "v3.20.4": "v3.20.4 f", "3.4.20": "v3.4.20 b", "10.7.1.31": "printer", "10.7.13.1": "scanner",
		"+442079460018": "diver", "44 20 7946 0081": "baker", "K77": "K-77", "k-77": "K-77", "1250.50": "€1.250", "€1,250.50": "€1.250",
		`"The Tower" by Ines`: "Ines", "Order XK-31-805 is the torn sail.": "805 is",
	} {
		first := c.first(query)
		if part == "" && first != "" || part != "" && !strings.Contains(first, part) {
			t.Errorf("%q: %q is first", query, first)
		}
	}
	for query, part := range map[string]string{"The Tower": "tower company", "It": "Film night", "Them": "Film night"} {
		scores := c.scores(query)
		if i := slices.IndexFunc(c.texts, func(text string) bool { return strings.Contains(text, part) }); scores[i] <= 0 {
			t.Errorf("%q does not find %q", query, c.texts[i])
		}
	}
	for query, apart := range map[string]string{"75 000": "The ferry", "C#": "C tests", "C": "C++ tests", "75,000": "costs 75 crowns"} {
		scores := c.scores(query)
		if i := slices.IndexFunc(c.texts, func(text string) bool { return strings.Contains(text, apart) }); scores[i] != 0 {
			t.Errorf("%q finds %q", query, c.texts[i])
		}
	}
}
