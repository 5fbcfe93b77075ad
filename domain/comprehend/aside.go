package comprehend

import (
	"slices"

	"github.com/annals-project/annals/domain/memory"
)

// readAside derives what label and metadata say. A label is read as a sentence, but for names: the capitals of a title name
// nothing.
func readAside(d *document, out *collector, a *allowance) {
	d.asideSentences(d.label, func(s *sentence) {
		drafts := readAnchors(d, s)
		if !headline(s.tokens) {
			drafts = slices.DeleteFunc(readSentence(d, s), func(d draft) bool { return d.kind == memory.Mention })
		}
		out.add(s, drafts, a)
	})
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
