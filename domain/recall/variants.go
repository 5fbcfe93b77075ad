package recall

import (
	"slices"
	"strings"

	"github.com/annals-project/annals/domain/lexicon"
)

// variantShare is what another form of characters counts of the weight of theirs; mostVariants is how many forms of two
// characters are searched for.
const (
	variantShare = 0.8
	mostVariants = 8
)

// variantsAsked returns the other forms of characters of a script without spaces: kana in the other script of kana, Han
// in simplified or traditional forms, all of the characters first. A character may stand for several; each is tried,
// since nothing shows which was meant.
func variantsAsked(i *item) (forms []Term) {
	if i.kind > aPair || !strings.ContainsFunc(i.word, func(r rune) bool { return len(variantsOf(r)) > 0 }) {
		return nil
	}
	texts := []string{""}
	for _, r := range i.word {
		var longer []string
		for _, other := range slices.Concat(variantsOf(r), []rune{r}) {
			for _, text := range texts {
				longer = append(longer, text+string(other))
			}
		}
		texts = longer
	}
	texts = slices.DeleteFunc(texts, func(text string) bool { return text == i.word })
	for _, text := range texts[:min(len(texts), mostVariants)] {
		forms = append(forms, Term{Text: text, Kind: Stem, Share: variantShare})
	}
	return forms
}

// variantsOf returns the other forms of a character.
func variantsOf(r rune) []rune {
	switch {
	case r < 0x3041:
		return nil
	case r <= 0x3096, r == 0x309D, r == 0x309E:
		return []rune{r + 0x60}
	case r >= 0x30A1 && r <= 0x30F6, r == 0x30FD, r == 0x30FE:
		return []rune{r - 0x60}
	}
	return lexicon.HanVariants(r)
}
