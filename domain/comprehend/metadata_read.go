package comprehend

import (
	"slices"

	"github.com/annals-project/annals/domain/memory"
)

// readLabelAndMetadata derives memories from label and metadata. A label is read as a sentence, but
// without names, since its words may be capitalised as a title.
func readLabelAndMetadata(d *document, out *collector, a *allowance) {
	d.sentencesOf(d.label, func(s *sentence) {
		drafts := readAnchors(d, s)
		if !headline(s.tokens) {
			drafts = slices.DeleteFunc(readSentence(d, s), func(d draft) bool { return d.kind == memory.Mention })
		}
		out.add(s, drafts, a)
	})
	readMetadata(d, out, a)
}

// sentencesOf calls yield for each sentence of a text other than the content.
func (d *document) sentencesOf(text string, yield func(*sentence)) {
	text = flat(text)
	if text == "" || len(text) > 4*maxSentence {
		return
	}
	whole := *d
	whole.content, whole.chat, whole.share = text, false, 1
	whole.eachSentence(func(s *sentence) bool {
		s.fromMetadata = true
		yield(s)
		return true
	})
}
