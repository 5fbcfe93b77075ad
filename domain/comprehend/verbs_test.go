package comprehend

import "testing"

// Every verb that a rule names is one that the lexicon knows, else the rule never applies to it.
func TestVocabulary_EveryWordIsKnown(t *testing.T) {
	for name, verbs := range map[string]map[string]bool{
		"eventVerbs": eventVerbs, "vagueEvents": vagueEvents, "transitive": transitive, "pursuits": pursuits, "states": states, "happenings": happenings, "opinionVerbs": opinionVerbs,
		"technical": technical, "nounAfter": nounAfter, "rescheduled": rescheduled, "dateSettings": dateSettings, "vagueWishes": vagueWishes, "idle": idle, "reports": reports, "doubling": doubling,
	} {
		for verb := range verbs {
			if !isBase(verb) {
				t.Errorf("%s names %q, which the lexicon does not know", name, verb)
			}
		}
	}
}

func TestInflections(t *testing.T) {
	for _, tc := range []struct {
		word  string
		form  form
		lemma string
	}{
		{"went", past, "go"},
		{"gone", participle, "go"},
		{"goes", third, "go"},
		{"going", gerund, "go"},
		{"moved", past | participle, "move"},
		{"moving", gerund, "move"},
		{"planned", past, "plan"},
		{"planning", gerund, "plan"},
		{"travelled", past, "travel"},
		{"traveled", past, "travel"},
		{"studies", third, "study"},
		{"studied", past, "study"},
		{"plays", third, "play"},
		{"watches", third, "watch"},
		{"has", third, "have"},
		{"does", third, "do"},
		{"tied", past, "tie"},
		{"tying", gerund, "tie"},
		{"agreeing", gerund, "agree"},
		{"wrote", past, "write"},
		{"written", participle, "write"},
		{"taught", past, "teach"},
		{"lit", past, "light"},
		{"preferred", past, "prefer"},
		{"swapping", gerund, "swap"},
	} {
		if lemma, ok := is(tc.word, tc.form); !ok || lemma != tc.lemma {
			t.Errorf("%q is %q (%v), want %q", tc.word, lemma, ok, tc.lemma)
		}
	}
	for _, word := range []string{"moveed", "goed", "table-", "", "ana", "tea"} {
		if lemma, ok := is(word, base|third|past|participle|gerund); ok {
			t.Errorf("%q is taken for a form of %q", word, lemma)
		}
	}
}

func TestTokens(t *testing.T) {
	for _, tc := range []struct {
		text string
		want []string
	}{
		{"I'm here", []string{"i", "am", "here"}},
		{"don’t, can't won't", []string{"do", "not", ",", "can", "not", "will", "not"}},
		{"Ana's C++ and C# code", []string{"ana", "'s", "c++", "and", "c#", "code"}},
		{"ana@example.com at 10:30, 1,000 km", []string{"ana@example.com", "at", "10:30", ",", "1,000", "km"}},
		{"see https://a.example/b?c=d.", []string{"see", "https://a.example/b?c=d."}},
		{"2025-06-03T10:15:30Z ... wait!!", []string{"2025-06-03t10:15:30z", "...", "wait", "!!"}},
		{"@ana #dev node.js R&D e.g.", []string{"@ana", "#dev", "node.js", "r&d", "e.g", "."}},
	} {
		var got []string
		for _, tok := range tokenize(tc.text, nil) {
			got = append(got, tok.low)
			if tc.text[tok.at:tok.end()] != tok.text {
				t.Errorf("%q: the token %q is not at %d", tc.text, tok.text, tok.at)
			}
		}
		if len(got) != len(tc.want) {
			t.Errorf("%q: got %q", tc.text, got)
			continue
		}
		for i := range got {
			if got[i] != tc.want[i] {
				t.Errorf("%q: got %q, want %q", tc.text, got, tc.want)
			}
		}
	}
}

func TestFolding(t *testing.T) {
	for _, tc := range [][2]string{
		{normalizeAttribute("favourite editor"), normalizeAttribute("Favorite  editors")}, {normalizeAttribute("the time zone"), normalizeAttribute("time zones")}, {normalize("The Launch"), normalize("launch")}, {normalize("Ana’s"), normalize("ana")}, {normalize("C++"), "c++"},
	} {
		if tc[0] != tc[1] || tc[0] == "" {
			t.Errorf("%q and %q differ", tc[0], tc[1])
		}
	}
	editor, colour := normalizeAttribute("favourite editor"), normalizeAttribute("favourite colour")
	if normalize("Ana") == normalize("Bo") || editor == colour {
		t.Error("different names fold to one")
	}
}
