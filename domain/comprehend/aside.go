package comprehend

// readAside derives what label and metadata say.
func readAside(d *document, out *collector, a *allowance) {
	for _, text := range []string{d.label} {
		d.asideSentences(text, func(s *sentence) { out.add(s, readAnchors(d, s), a) })
	}
	readMetadata(d, out, a)
}

// asideSentences calls yield for each sentence of a text that is not the content.
func (d *document) asideSentences(text string, yield func(*sentence)) {
	text = flat(text)
	if text == "" || len(text) > 4*MaxSentence {
		return
	}
	whole := *d
	whole.content, whole.chat, whole.share = text, false, 1
	whole.eachSentence(func(s *sentence) bool {
		s.aside = true
		yield(s)
		return true
	})
}
