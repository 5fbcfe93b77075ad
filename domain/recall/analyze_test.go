package recall_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/kljensen/snowball/english"
	"golang.org/x/text/cases"
	"golang.org/x/text/language"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/lexicon"
	"github.com/annals-project/annals/domain/recall"
	_ "github.com/annals-project/annals/internal/seedtest"
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

// An index is asked with the analysis of its own version, and with the newest if nobody knows that.
func TestAnalyzers(t *testing.T) {
	a := recall.NewAnalyzers(recall.Analysis{Version: 1, Word: func(word string) string { return "x" + word }})
	for version, want := range map[int][]string{
		a.Newest().Version(): {"teapot", "~en:teapot", "~en"}, 1: {"xteapot", "~en:xteapot", "~en"},
		99: {"teapot", "~en:teapot", "~en"},
	} {
		terms := a.Of(version).Terms("the Teapot")
		asked := a.Of(version).Query("the Teapot")
		for _, term := range want {
			if !slices.Contains(terms, term) {
				t.Errorf("version %d: a text has %q, want %q", version, terms, term)
			}
		}
		if len(asked) == 0 || asked[0].Text != want[0] {
			t.Errorf("version %d: a query asks for %+v, want %q", version, asked, want[0])
		}
	}
	if got := a.Of(1).Version(); got != 1 {
		t.Errorf("version %d, want 1", got)
	}
	if got := a.Of(99); got != a.Newest() {
		t.Errorf("version %d, want the newest", got.Version())
	}
}

// TestQuery_ContractionsHideNoWord: a stop word with an apostrophe is no reason to leave out a word that has the same
// letters without it.
func TestQuery_ContractionsHideNoWord(t *testing.T) {
	a := recall.NewAnalyzer()
	for _, word := range []string{"shed", "ill", "hell", "shell", "well", "wed", "id"} {
		text := "Which one is the " + word + " of the year?"
		if terms := a.Query(text); !slices.ContainsFunc(terms, func(term recall.Term) bool { return term.Text == word }) {
			t.Errorf("%q is not asked for: %+v", word, terms)
		}
	}
	for _, text := range []string{"Is it what she'd like?", "What can't the man like?", "Here's what they don’t like"} {
		var words []string
		for _, term := range a.Query(text) {
			if term.Kind == recall.Whole {
				words = append(words, term.Text)
			}
		}
		words = slices.DeleteFunc(words, func(word string) bool { return word == "man" })
		if !slices.Equal(words, []string{"like"}) {
			t.Errorf("%q asks for %q", text, words)
		}
	}
	// Letters that are stop words by themselves stay so.
	if terms := a.Query("Est-ce que tu m as donné le vélo dans la rue"); slices.ContainsFunc(terms, func(term recall.Term) bool {
		return term.Text == "m" || term.Text == "tu"
	}) {
		t.Errorf("a stop word of one letter is asked for: %+v", terms)
	}
}

// TestTerms_NounOrVerb: a form that is an irregular noun and a regular verb is found as either.
func TestTerms_NounOrVerb(t *testing.T) {
	a := recall.NewAnalyzer()
	for asked, text := range map[string]string{
		"leave": "The flight leaves at noon", "leaf": "The leaves are red", "live": "Petra lives in Lund",
		"life": "Both lives were long", "wolf": "The wolves are grey",
	} {
		terms := a.Terms(text)
		if !slices.ContainsFunc(a.Query(asked), func(term recall.Term) bool {
			return term.Kind == recall.Stem && slices.Contains(terms, term.Text)
		}) {
			t.Errorf("%q is not found in %q", asked, terms)
		}
	}
}

// alphabets are letters, marks and signs of many scripts, from which texts are made.
var alphabets = []string{
	"abcxyzABCXYZ0123456789", "äöüßÄÖÜẞéèêñçãõåæøłđðþœħıİŉŀĿǆǅﬁﬀſ", "ạệễữơưĐ\u0301\u0302\u0308\u0323\u031b", "ΑΒΣσςάΰῷᾳᾼὈ\u0345",
	"йёЙЁїґўабвАБВ", "שלום\u05b8\u05bc\ufb2a\ufb4f", "\u0643\u0650\u062a\u0627\u0628آأإؤئةىیکگ\u0640\ufefb\ufdfa", "한강창고는\u1112\u1161\u11ab\u3131",
	"東京都鍵〆々", "ガラスカーハバパｶﾞﾗｽ\u3099\u309a", "ชั้นสำ\u0e33", "ກຳໜ", "ភាសា\u17d2", "မြန်မာ", "हिन्दी\u095cक\u093c", "１２３ＡＢＣ－，．＃＋", "٤٢१२൪", "½²①⑴℀№™㍿",
	" \n\t\u00a0\u2009\u202f\u3000", ".,-_:/+@'’#!?()$€·‐⁄", "\u00ad\u200b\u200d\ufe0f\u2060", "\xff\xc3",
}

func anyText() *rapid.Generator[string] {
	piece := rapid.Custom(func(t *rapid.T) string {
		letters := []rune(rapid.SampledFrom(alphabets).Draw(t, "alphabet"))
		return string(rapid.SliceOfN(rapid.SampledFrom(letters), 1, 5).Draw(t, "letters"))
	})
	return rapid.Map(rapid.SliceOfN(rapid.OneOf(piece, piece, piece, rapid.String()), 0, 8),
		func(pieces []string) string { return strings.Join(pieces, "") })
}

// TestTerms_NormalForms: each normal form of a text has the same terms, and asks for the same.
func TestTerms_NormalForms(t *testing.T) {
	a := recall.NewAnalyzer()
	rapid.Check(t, func(t *rapid.T) {
		text := anyText().Draw(t, "text")
		terms, query := a.Terms(text), a.Query(text)
		for _, form := range []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD} {
			other := form.String(text)
			if diff := cmp.Diff(terms, a.Terms(other)); diff != "" {
				t.Fatalf("form %d of %+q is %+q: %s", form, text, other, diff)
			}
			if diff := cmp.Diff(query, a.Query(other)); diff != "" {
				t.Fatalf("query: form %d of %+q is %+q: %s", form, text, other, diff)
			}
		}
	})
}

// TestTerms_Case: a text is found by its lower and its upper case. If it is written in one case, it has all words of
// the other.
func TestTerms_Case(t *testing.T) {
	a := recall.NewAnalyzer()
	rapid.Check(t, func(t *rapid.T) {
		text := anyText().Draw(t, "text")
		lower, upper := cases.Lower(language.Und).String(text), cases.Upper(language.Und).String(text)
		for _, query := range []string{lower, upper} {
			terms, asked := a.Terms(text), wholes(a.Query(query))
			if len(asked) > 0 && !slices.ContainsFunc(asked, func(w string) bool { return slices.Contains(terms, w) }) {
				t.Fatalf("%+q asks for %+q, not for %+q, the terms of %+q", query, asked, terms, text)
			}
		}
		terms := a.Terms(lower)
		for _, word := range a.Words(upper) {
			if !slices.Contains(terms, word) {
				t.Fatalf("%+q has %+q, not in %+q, the terms of %+q", upper, word, terms, lower)
			}
		}
	})
}

func wholes(terms []recall.Term) (words []string) {
	for _, term := range terms {
		if term.Kind == recall.Whole {
			words = append(words, term.Text)
		}
	}
	return words
}

// longestList is one word more than a list without a named source may have.
const longestList = 20

// TestWordLists_Short checks that the lists of words in this package are short. A longer list is made of an open source
// that its file names: it belongs to the package lexicon.
func TestWordLists_Short(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	lists := 0
	for _, e := range entries {
		name := e.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			words := listOf(n)
			if words > 4 {
				lists++
			}
			if words >= longestList {
				t.Errorf("%s: a list of %d words", files.Position(n.Pos()), words)
			}
			return true
		})
	}
	if lists < 5 {
		t.Errorf("found %d lists", lists)
	}
}

var wordList = regexp.MustCompile(`^[a-z'\s-]+$`)

// listOf returns how many words a literal lists, in one string or in many.
func listOf(n ast.Node) (words int) {
	switch n := n.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && wordList.MatchString(text) {
			return len(strings.Fields(text))
		}
	case *ast.CompositeLit:
		for _, element := range n.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok {
				element = pair.Key
			}
			if listOf(element) > 0 {
				words++
			}
		}
	}
	return words
}
