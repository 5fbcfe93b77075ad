package recall_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/kljensen/snowball/english"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/lexicon"
	"github.com/annals-project/annals/domain/recall"
	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
)

func TestTerms(t *testing.T) {
	cases := []struct {
		text string
		want string
	}{
		{"Ana's favourite editor", "ana ~en:ana favourite ~en:favourit editor ~en:editor ~en"},
		{"Ana’s CHILDREN went swimming", "ana ~en:ana children ~en:child went ~en:go swimming ~en:swim ~en"},
		{"We'll not; he'd have don't.", "we not he have do"},
		{"@ana.ruiz@example.com", "ana ~en:ana ruiz ~en:ruiz example ~en:exampl com ~en:com ana.ruiz@example.com ~en"},
		{"7th 1st 2023 at 13:56", "7 1 2023 at 13 56 13:56"},
		{"v2.6.1", "v2 v 2 6 1 v2.6.1 2.6.1"},
		{"snake_case", "snake ~en:snake case ~en:case snake_case snakecase ~en:snakecas ~en"},
		{"café CAFÉ cafe\u0301", "cafe ~en:cafe cafe ~en:cafe cafe ~en:cafe ~en"},
		{"東京都 に", "東 東京 京 京都 都 に"},
		{"who am i", "who am i"},
		{"👍👍 !", "👍"},
		{"!", "!"},
		{"Deploy 👍🏽 went 🇳🇴❤️👨‍👩‍👧 well → ok", "deploy ~en:deploy 👍 went ~en:go 🇳🇴 ❤ 👨 👩 👧 well ~en:well → ok ~en:ok ~en"},
		{"20 °C ─── © ™", "20 c tm ~en:tm ~en"},
		{"ㄓㄨㄛˊ", "ㄓ ㄓㄨ ㄨ ㄨㄛ ㄛ"},
		{"the B.B.C. and bbc", "the bbc ~en:bbc b b c and bbc ~en:bbc ~en"},
		{"U.S.", "us ~en:us u s ~en"},
		{"Т.Е.", "те ~ru:те т е ~ru"},
		{"a.b@c.de", "a b c de ~en:de a.b@c.de ~en"},
		{"가.나 É.U.", "가 ~ko:가 나 ~ko:나 가.나 eu ~en:eu e u ~en ~ko"},
		{"v.2 e.g", "v 2 v.2 eg ~en:eg e g ~en"},
		{"a\x00b\xff\xfec", "a b c"},
		{"", ""},
		{" \n\t", ""},
		{"ｆｕｌｌ　１２", "full ~en:full 12 ~en"},
		{"rock'n'roll", "rocknroll ~en:rocknrol ~en"},
		{"창고는", "창고는 ~ko:창고는 ~ko:창 ~ko:창고 ~ko"},
		{"l'été d'Anne", "lete ~en:lete ete ~en:ete danne ~en:dann anne ~en:ann ~en"},
	}
	a := recall.NewAnalyzer()
	for _, c := range cases {
		if diff := cmp.Diff(c.want, strings.Join(a.Terms(c.text), " ")); diff != "" {
			t.Errorf("%q: %s", c.text, diff)
		}
	}
}

// TestStems_AgreeWithSnowball compares terms with the stems of a library, by words of English
// beginnings and endings.
func TestStems_AgreeWithSnowball(t *testing.T) {
	beginnings := strings.Fields(`relat condit rational valenc digit conform radic differ vile analog vietnam predic oper feudal decis hope call
		form sensit triplic electric good reviv allow infer airlin gyroscop adjust defens irrit replac depend adopt commun activ effect bowdler
		probat ceas control roll fall hopp tann fizz fail fil happ sk cr tr gener arsen plan run program wri paint camp hik support group beaut
		pla enjo stud day toy boy say buy employ cit famil countr agre fre see guarant use us bus class pass kiss gas this`)
	endings := strings.Fields(`- s es ed ing ingly edly eed eedly ies ied y ly ational tional enci anci izer bli alli entli eli ousli ization ation ator
		alism iveness fulness ousness aliti iviti biliti logi fulli lessli icate ative alize iciti ical ful ness al ance ence er ic able ible ant
		ement ment ent ion ism ate iti ous ive ize e l ll i ying ying ement ers ings sses`)
	a := recall.NewAnalyzer()
	stop := strings.Fields("this thing things says saying")
	for _, b := range beginnings {
		for _, e := range endings {
			word := strings.TrimSuffix(b+e, "-")
			if skip(stop, word) {
				continue
			}
			if _, irregular := lexicon.Base(word); irregular || len(word) < 2 {
				continue
			}
			if diff := cmp.Diff([]string{"~en:" + english.Stem(word, true)}, a.Stems(word)); diff != "" {
				t.Errorf("%s: %s", word, diff)
			}
		}
	}
}

func skip(list []string, word string) bool {
	for _, w := range list {
		if w == word {
			return true
		}
	}
	return false
}

func TestSplit(t *testing.T) {
	paragraph := strings.Repeat("A sentence of some forty characters here. ", 20)
	cases := []struct {
		name string
		text string
		want int
	}{
		{"empty", "", 0},
		{"short", "one line", 1},
		{"paragraphs", strings.Repeat(paragraph+"\n\n", 5), 4},
		{"one long line", strings.Repeat("word ", 2000), 9},
		{"no break at all", strings.Repeat("x", 4001), 3},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			spans := collect(c.text)
			if len(spans) != c.want {
				t.Errorf("%d passages, want %d", len(spans), c.want)
			}
		})
	}
}

// TestSplit_Law: passages cover the text without gap or overlap, and none exceeds the limit.
func TestSplit_Law(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.OneOf(rapid.String(),
			rapid.SampledFrom([]string{"\n", "\n\n", ". ", " ", "word", "日本語。", "\x00", "\xff", "\r\n \n"}))
		text := strings.Repeat(strings.Join(rapid.SliceOfN(piece, 0, 40).Draw(t, "pieces"), ""),
			rapid.IntRange(1, 200).Draw(t, "times"))
		checkSpans(t, text)
	})
}

type failer interface {
	Fatalf(format string, args ...any)
}

func checkSpans(t failer, text string) {
	at := 0
	for span := range recall.Split(text) {
		if span.Start != at || span.End <= span.Start {
			t.Fatalf("passage %v after %d", span, at)
		}
		if n := utf8.RuneCountInString(text[span.Start:span.End]); n > 2000 {
			t.Fatalf("a passage of %d characters", n)
		}
		at = span.End
	}
	if at != len(text) {
		t.Fatalf("passages end at %d of %d", at, len(text))
	}
}

func collect(text string) []recall.Span {
	var spans []recall.Span
	for s := range recall.Split(text) {
		spans = append(spans, s)
	}
	return spans
}

// FuzzPassages: any bytes can be analysed; terms fit an index and contain no space.
func FuzzPassages(f *testing.F) {
	for _, seed := range []string{
		"Ana's mail is ana@example.com.", "\x00\xff\xfe", "日本語のテキスト", "don't 1,2.3 a_b-c@d",
		"e\u0301\u200b'", "''s@@..", strings.Repeat("a.", 300),
	} {
		f.Add(seed, "label")
	}
	for _, seed := range alphabets {
		f.Add(seed, strings.Repeat(seed, 20))
	}
	a := recall.NewAnalyzer()
	f.Fuzz(func(t *testing.T, content, label string) {
		checkSpans(t, content)
		for _, p := range a.Passages(recall.Document{Content: content, Label: label, Author: label}) {
			for _, term := range append(p.Text, p.Label...) {
				checkTerm(t, term)
			}
		}
		for i, term := range a.Query(content) {
			checkTerm(t, term.Text)
			if (term.Kind == recall.Whole) != (term.For == i) || term.Share <= 0 || term.Share > 1 {
				t.Fatalf("term %d is %+v", i, term)
			}
			if _, marker := recall.LanguageMarker(term.Text); marker && term.Kind == recall.Whole {
				t.Fatalf("the word %q is tagged", term.Text)
			}
		}
	})
}

// checkTerm checks that a term is one that an index takes.
func checkTerm(t failer, term string) {
	bad := strings.ContainsFunc(term, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
	if term == "" || len(term) > 64 || !utf8.ValidString(term) || bad {
		t.Fatalf("term %q", term)
	}
}

// BenchmarkShort analyses short texts of a few languages, as most data points are.
func BenchmarkShort(b *testing.B) {
	texts := map[string]string{
		"english":  "Noor moved the launch of Helix to the third of June, since the crane at pier 4 isn't ready.",
		"german":   "Zoë trägt die Schlüssel für die große Halle am Gürtel, weil das Tor seit Montag klemmt.",
		"japanese": "東京支社の大きな会議室は三階にあり、鍵は受付にあります。",
	}
	for name, text := range texts {
		a := recall.NewAnalyzer()
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				a.Passages(recall.Document{Content: text})
			}
		})
	}
}

// BenchmarkPassages analyses 16 MiB; its time per byte must not depend on how the text is broken.
func BenchmarkPassages(b *testing.B) {
	texts := map[string]string{
		"sentences": strings.Repeat("Ana moved the launch of Helix to the third of June. ", 16<<20/52),
		"one word":  strings.Repeat("x", 16<<20),
		"dots":      strings.Repeat("a.", 8<<20),
		"newlines":  strings.Repeat("\n", 16<<20),
		"blank":     strings.Repeat("\n ", 8<<20),
		"numbers":   strings.Repeat("123 ", 4<<20),
		"grouped":   strings.Repeat("1'234,", 16<<20/6),
		"marks":     strings.Repeat("ệ\u0301", 16<<20/5),
	}
	a := recall.NewAnalyzer()
	for name, text := range texts {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				a.Passages(recall.Document{Content: text})
			}
		})
	}
}
