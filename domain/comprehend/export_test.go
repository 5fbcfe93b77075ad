package comprehend

// Inflected are all words of the lexicon, in no order.
func Inflected() []string {
	words := make([]string, 0, len(lexicon))
	for w := range lexicon {
		words = append(words, w)
	}
	return words
}
