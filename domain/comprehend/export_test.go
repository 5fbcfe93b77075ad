package comprehend

// Inflected are all words of the lexicon, in no order.
func Inflected() []string {
	words := make([]string, 0, len(lexicon))
	for w := range lexicon {
		words = append(words, w)
	}
	return words
}

// Mentions are the lines of all mentions of a content, also those that repeat a name.
func Mentions(in Input) []string {
	var lines []string
	doc, seen := newDocument(in), map[string]bool{}
	doc.eachSentence(func(s *sentence) bool {
		for _, d := range readSentence(doc, s) {
			if d.named && !seen[d.line] {
				lines, seen[d.line] = append(lines, d.line), true
			}
		}
		return true
	})
	return lines
}
