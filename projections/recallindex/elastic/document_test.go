package elastic

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/recall"
	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
	"github.com/annals-project/annals/projections/recallindex"
)

// A record holds all of a document, but the order of its terms.
func TestRecord_Law(t *testing.T) {
	word := rapid.OneOf(
		rapid.StringMatching(`[a-c]{1,9}`), rapid.StringMatching(`[a-zäß東京0-9.@]{1,40}`),
		rapid.StringMatching(`~(de|en|fr):[a-cé]{1,12}`), rapid.SampledFrom([]string{"~de", "~", ":", "~:", "~de:", "\xff"}),
	)
	rapid.Check(t, func(t *rapid.T) {
		project := uuid.New()
		d := recallindex.Document{
			Key: recallindex.Key{
				DataPoint: uuid.New(), Revision: rapid.IntRange(1, 1<<20).Draw(t, "revision"),
				N: rapid.IntRange(0, 1<<14).Draw(t, "n"),
			},
			Audience: uuid.New(), OccurredAt: time.UnixMilli(rapid.Int64Range(-1<<46, 1<<48).Draw(t, "at")),
			Tie: rapid.Uint16().Draw(t, "tie"),
			Terms: recall.Terms{
				Text: rapid.SliceOf(word).Draw(t, "text"), Label: rapid.SliceOfNDistinct(word, 0, 9, rapid.ID[string]).Draw(t, "label"),
				Traits: recall.Traits(rapid.Byte().Draw(t, "traits")),
			},
		}
		if rapid.Bool().Draw(t, "memory") {
			d.N, d.Memory = 0, uuid.New()
		}
		data := encodeRecord(project, d)
		r, err := parseRecord(data)
		if err != nil || !r.project(project) || r.project(uuid.UUID{}) {
			t.Fatalf("%x is unreadable: %v", data, err)
		}
		got := r.document(d.Audience)
		for _, terms := range [][]string{got.Terms.Text, got.Terms.Label, d.Terms.Text, d.Terms.Label} {
			slices.Sort(terms)
		}
		if diff := cmp.Diff(d, got, cmp.Comparer(func(a, b []string) bool { return slices.Equal(a, b) })); diff != "" {
			t.Fatal(diff)
		}
		// A record that was cut short is an error, not another document.
		if _, err := parseRecord(data[:rapid.IntRange(0, len(data)-1).Draw(t, "cut")]); err == nil {
			t.Fatal("a part of a record is read")
		}
	})
}

func FuzzParseRecord(f *testing.F) {
	f.Add(encodeRecord(uuid.New(), recallindex.Document{Terms: recall.Terms{Text: []string{"kinder", "~de:kind", "~de"}}}))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = parseRecord(data) })
}
