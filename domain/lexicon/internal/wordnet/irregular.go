package main

// irregular returns the irregular forms of words with their bases. A form that is itself a word has none, unless its
// base in that part of speech is more common: "ground" is rather the ground than a form of "grind". If several parts of
// speech have a form, the base that is most common counts.
func (w *wordNet) irregular() map[string]string {
	bases, counts := map[string]string{}, map[string]int{}
	for _, part := range parts {
		for _, fields := range w.exceptions[part] {
			form, base := fields[0], fields[1]
			count := w.tagged[lemma{base, part}]
			if !plain(form) || !plain(base) || form == base || w.words[form] && w.commonness(form) >= count {
				continue
			}
			if _, known := bases[form]; !known || count > counts[form] {
				bases[form], counts[form] = base, count
			}
		}
	}
	ends := make(map[string]string, len(bases))
	for form := range bases {
		if base := end(bases, form); base != form {
			ends[form] = base
		}
	}
	return ends
}

// end follows bases from a form to a word without one. It returns the form if two words are forms of each other.
func end(bases map[string]string, form string) string {
	word := form
	for range bases {
		base, ok := bases[word]
		if !ok {
			return word
		}
		word = base
	}
	return form
}

// plain reports whether a word is letters from a to z alone, at least two.
func plain(word string) bool {
	for i := range len(word) {
		if word[i] < 'a' || word[i] > 'z' {
			return false
		}
	}
	return len(word) > 1
}
