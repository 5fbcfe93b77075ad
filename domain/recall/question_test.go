package recall_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/recall"
)

// TestQuery_StopWords asks in nine languages, and for names that look like stop words.
func TestQuery_StopWords(t *testing.T) {
	cases := []struct{ query, want string }{
		{"Where is the key of the hall?", "key hall"},
		{"who did what with a rope", "rope"},
		{"Wo ist der Schlüssel für die Halle?", "schlussel halle"},
		{"Où est la clé du bateau?", "cle bateau"},
		{"¿Dónde está la llave del barco?", "llave barco"},
		{"Dov'è la chiave della barca?", "chiave barca"},
		{"A chave não está com ela nem com os outros", "chave outros"},
		{"Waar is het touw van de boot?", "waar touw boot"},
		{"Var är nyckeln till den röda båten?", "nyckeln roda baten"},
		{"Где лежит ключ от причала?", "лежит ключ причала"},

		{"Die Welt", "die welt"},
		{"Das Boot", "das boot"},
		{"Der Spiegel", "der spiegel"},
		{"Las Vegas", "las vegas"},
		{"Los Angeles", "los angeles"},
		{"Le Monde", "le monde"},
		{"May", "may"},
		{"It", "it"},
		{"The Who", "the who"},
		{"who is The Who", "the who"},
		{"where was It shown", "it shown"},
		{"tickets for The Who in June", "tickets the who june"},
		{"The Power", "power"},
		{"die", "die"},
		{"Is Ben in Las Vegas?", "is ben in las vegas"},
	}
	a := recall.NewAnalyzer()
	for _, c := range cases {
		if diff := cmp.Diff(c.want, strings.Join(wholes(a.Query(c.query)), " ")); diff != "" {
			t.Errorf("%q: %s", c.query, diff)
		}
	}
}

// TestQuery_Stems: a question asks for the stems of every language that a word may be of, and of no stop word.
func TestQuery_Stems(t *testing.T) {
	stems := func(query string) (list []string) {
		for _, term := range recall.NewAnalyzer().Query(query) {
			if term.Kind == recall.Stem {
				list = append(list, term.Text)
			}
		}
		return list
	}
	for query, want := range map[string]string{
		"houses":       "~en:hous ~de:hous ~fr:hous ~es:hous ~it:houses ~pt:hous ~nl:houses ~sv:hous",
		"went":         "~en:go ~de:went ~fr:went ~es:went ~it:went ~pt:went ~nl:went ~sv:went",
		"информация":   "~ru:информац",
		"창고는":          "~ko:창고는 ~ko:창 ~ko:창고",
		"it AB-12":     "~en:ab ~de:ab ~fr:ab ~es:ab ~it:ab ~pt:ab ~nl:ab ~sv:ab",
		"P40 40,000 山": "",
	} {
		if got := stems(query); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q asks for %q, want %q", query, got, want)
		}
	}
	shares := map[string]float64{}
	for _, term := range recall.NewAnalyzer().Query("houses P40 창고는") {
		shares[term.Text] = term.Share
	}
	if w := shares["houses"]; w <= 0 || w >= 0.5 || shares["~de:hous"] != 1-w || shares["p40"] != 1 {
		t.Errorf("shares %v", shares)
	}
	if shares["~ko:창고는"] <= shares["~ko:창고"] || shares["~ko:창고"] <= shares["~ko:창"] {
		t.Errorf("a longer prefix of a Korean word has no larger share: %v", shares)
	}
}

// TestTerms_Languages: a text has the stems of its language, so that other forms of a word find it.
func TestTerms_Languages(t *testing.T) {
	a := recall.NewAnalyzer()
	for _, c := range []struct{ text, form, marker string }{
		{"The crews of both boats were paid for the repairs", "repaired", "~en"},
		{"Die Häuser an der Straße sind nicht für Kinder", "Haus", "~de"},
		{"Les réunions du mardi sont annulées pour tous les marins", "réunion", "~fr"},
		{"Las informaciones de los barcos no están en el puerto", "información", "~es"},
		{"Le barche della nave sono nel porto con il capitano", "barca", "~it"},
		{"As informações dos navios não estão com os outros", "informação", "~pt"},
		{"De sleutels van het huis zijn niet bij ons", "sleutel", "~nl"},
		{"Nycklarna till båten är inte på kontoret och det är bra", "nycklar", "~sv"},
		{"Ключи от причала лежат у них на столе", "ключ", "~ru"},
		{"Ticket for Ropes", "rope", "~en"},
		{"열쇠는 창고에서 찾았다", "창고", "~ko"},
	} {
		terms := a.Terms(c.text)
		var markers []string
		for _, term := range terms {
			if strings.HasPrefix(term, "~") && !strings.Contains(term, ":") {
				markers = append(markers, term)
			}
		}
		found := false
		for _, term := range a.Query(c.form) {
			found = found || term.Kind == recall.Stem && slices.Contains(terms, term.Text)
		}
		if !found || !slices.Equal(markers, []string{c.marker}) {
			t.Errorf("%q does not find %q by stems, or markers are %q", c.form, terms, markers)
		}
	}
}

// TestPassages_LanguageOfText: a part without function words is of the language of its text, and so is the label.
func TestPassages_LanguageOfText(t *testing.T) {
	german := strings.Repeat("Der Schlüssel für die Halle ist nicht bei mir. ", 60)
	passages := recall.NewAnalyzer().Passages(recall.Document{
		Content: german + "\n\n" + strings.Repeat("Häuser ", 200), Label: "Wohnungen",
	})
	last := passages[len(passages)-1]
	if len(passages) < 2 || !slices.Contains(last.Text, "~de:haus") || !slices.Contains(last.Label, "~de:wohnung") {
		t.Errorf("%d passages, the last is %+v", len(passages), last)
	}
}

func TestLanguageMarker(t *testing.T) {
	for term, want := range map[string]string{"~en:run": "~en", "~ko:창고": "~ko", "~en": "", "run": "", "": "", "~": "", "10:30": ""} {
		if got, ok := recall.LanguageMarker(term); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", term, got, ok)
		}
	}
}

func TestTerm_Kinds(t *testing.T) {
	a := recall.NewAnalyzer()
	for _, term := range a.Query("AB-12 a_b x@y.z BillingJob house ropes Шлюпка מפתחות 창고에서는요 東京支社 हिन्दी c++ tide") {
		identifier := slices.Contains(strings.Fields("12 ab-12 ab12 a_b x@y.z billingjob"), term.Text)
		misspellable := slices.Contains(strings.Fields("billingjob billing house ropes шлюпка מפתחות"), term.Text)
		if term.Kind != recall.Whole {
			identifier, misspellable = false, false
		}
		if term.IsIdentifier() != identifier || term.Misspellable() != misspellable {
			t.Errorf("%+v: identifier %v, misspellable %v", term, term.IsIdentifier(), term.Misspellable())
		}
	}
}

func TestWords(t *testing.T) {
	a := recall.NewAnalyzer()
	for text, want := range map[string][2]string{
		"the NullPointerException of Ana Ruiz": {"nullpointerexception ana ruiz", "~en:nullpointerexcept ~en:ana ~en:ruiz"},
		"the ropes at v1.10.2":                 {"ropes v1 10 2", "~en:rope v1 10 2 v1.10.2 1.10.2"},
		"Ben":                                  {"ben", "~en:ben"},
		"The Who":                              {"the who", "~en:the ~en:who"},
		"東京都":                                  {"東京 京都", "東京 京都"},
		"👍":                                    {"👍", "👍"},
	} {
		got := [2]string{strings.Join(a.Words(text), " "), strings.Join(a.Stems(text), " ")}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestQuery_Joined(t *testing.T) {
	for query, want := range map[string][]string{
		"the note book": {"notebook", "~en:notebook"}, "note-books": {"notebooks", "~en:notebook"},
		"vue.js": {"vuejs", "~en:vuej"}, "note of the book": nil, "a b": nil, "note 4 book": nil, "записная книжка": {"записнаякнижка"},
		"東京 note": nil, "the lift": nil, "red note book": {"rednote", "~en:rednot", "notebook", "~en:notebook"},
	} {
		var got []string
		for _, term := range recall.Shared().Query(query) {
			if term.Kind == recall.Spelling {
				got = append(got, term.Text)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q is also searched for as %q, want %q", query, got, want)
		}
	}
}

func TestTerm_Splits(t *testing.T) {
	for word, want := range map[string]int{"notebook": 5, "vuejs": 2, "note": 0, "kx31": 0, "東京都東京": 0, "блокнот": 4} {
		got := recall.Wholes(word)[0].Splits()
		if len(got) != want {
			t.Errorf("%q: %q, want %d", word, got, want)
		}
		for _, parts := range got {
			if parts[0]+parts[1] != word {
				t.Errorf("%q: %q", word, parts)
			}
		}
	}
	if got := (recall.Term{Text: "~en:notebook", Kind: recall.Stem}).Splits(); got != nil {
		t.Errorf("a stem: %q", got)
	}
}

// Parts count only together, and if the text has one right after the other.
func TestQuestion_Splits(t *testing.T) {
	a := recall.Shared()
	q := recall.Question{Terms: recall.Wholes("notebook", "note", "red")}
	if q.AddSplits([]recall.SplitWord{{Parts: [2]string{"note", "book"}}}) {
		t.Error("a part that is asked for is added")
	}
	q = recall.Question{Terms: recall.Wholes("notebook", "red")}
	ways := []recall.SplitWord{{Parts: [2]string{"note", "book"}}, {Parts: [2]string{"no", "tebook"}}, {Parts: [2]string{"noteb", "ook"}}}
	if !q.AddSplits(ways) || len(q.Splits) != 2 || len(q.Terms) != 6 {
		t.Fatalf("%v, %v", q.Splits, q.Terms)
	}
	for text, want := range map[string]bool{
		"a note book": true, "a note-book": true, "a note": false, "a book, a note": false, "a note in a book": false, "red": true,
	} {
		counts := recall.Counts(q.Terms, recall.Terms{Text: a.Terms(text)})
		if some := q.KeepSplits(counts, func(s recall.SplitWord) bool { return a.IsTogether(text, s.Parts) }); some != want {
			t.Errorf("%q: %v, want %v", text, some, want)
		}
		if q.HasSplit(counts) != (want && text != "red") {
			t.Errorf("%q keeps %v", text, counts)
		}
	}
}

// Each query finds its text by a form of its characters, for less than the form that it is written in.
func TestQuery_Variants(t *testing.T) {
	a := recall.Shared()
	for _, c := range []struct{ query, text string }{
		{"电脑", "我們把鑰匙放在電腦旁邊。"},
		{"電腦", "我们把钥匙放在电脑旁边。"},
		{"リンゴ", "りんごを三つ買った。"},
		{"りんご", "リンゴを三つ買った。"},
		{"項目", "修改了项目配置"},
		{"头发", "頭髮"},
		{"出发", "出發"},
		{"皇后", "皇后"},
		{"以后", "以後"},
		{"台灣", "臺灣"},
		{"台湾", "臺灣"},
		{"臺灣", "台湾"},
		{"ラーメン", "らーめん"},
		{"めがね", "メガネ"},
		{"ﾒｶﾞﾈ", "めがね"},
		{"理发店", "理髮店"},
		{"簡體字", "简体字"},
	} {
		terms := a.Query(c.query)
		counts := recall.Counts(terms, recall.Terms{Text: a.Terms(c.text)})
		q := recall.Question{Terms: terms}
		if held := q.Held(counts); held != recall.AllWords(q.Own()) {
			t.Errorf("%q holds %b of %q, which are %v", c.text, held, c.query, terms)
		}
		for i, term := range terms {
			if term.Kind == recall.Stem && term.Share >= 1 {
				t.Errorf("%q: %v counts as much as the word", c.query, terms[i])
			}
		}
	}
	for _, c := range []struct{ query, text string }{
		{"カラス", "ガラス"}, {"頭髮", "發頭"}, {"頭發", "頭髮"}, {"りんご", "リング"}, {"ㄓㄨ", "ㄓㄚ"}, {"東京", "京都"},
	} {
		q := recall.Question{Terms: a.Query(c.query)}
		if q.Held(recall.Counts(q.Terms, recall.Terms{Text: a.Terms(c.text)})) == recall.AllWords(q.Own()) {
			t.Errorf("%q holds all of %q", c.text, c.query)
		}
	}
}

// A query of many characters with several forms has a bounded number of terms.
func TestQuery_VariantsBounded(t *testing.T) {
	terms := recall.Shared().Query("台干后里发历复面系制余丑斗谷")
	own := len(slices.DeleteFunc(slices.Clone(terms), func(t recall.Term) bool { return t.Kind != recall.Whole }))
	if own < 13 || len(terms) > 9*own {
		t.Errorf("%d words, %d terms", own, len(terms))
	}
}
