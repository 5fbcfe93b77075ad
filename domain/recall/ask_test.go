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
