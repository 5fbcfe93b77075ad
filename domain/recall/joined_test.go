package recall_test

import (
	"slices"
	"testing"

	"github.com/annals-project/annals/domain/recall"
)

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
