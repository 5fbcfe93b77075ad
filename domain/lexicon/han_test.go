package lexicon_test

import (
	"slices"
	"testing"

	"github.com/annals-project/annals/domain/lexicon"
)

func TestHanVariants(t *testing.T) {
	for of, want := range map[rune][]rune{
		'電': {'电'}, '电': {'電'}, '腦': {'脑'}, '发': {'發', '髮'}, '髮': {'发'}, '發': {'发'}, '后': {'後'}, '後': {'后'},
		'臺': {'台'}, '裡': {'里'}, '項': {'项'}, '目': nil, 'a': nil, 'カ': nil,
	} {
		if got := lexicon.HanVariants(of); !slices.Equal(got, want) {
			t.Errorf("%c: %q, want %q", of, got, want)
		}
	}
	for of := rune(0x4E00); of < 0xA000; of++ {
		for _, variant := range lexicon.HanVariants(of) {
			if !slices.Contains(lexicon.HanVariants(variant), of) {
				t.Errorf("%c is a form of %c, and not the other way around", variant, of)
			}
		}
	}
}
