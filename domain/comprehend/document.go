package comprehend

import (
	"strings"
	"time"
	"unicode/utf8"
)

// document is one revision that is being read.
type document struct {
	content    string
	label      string
	metadata   []byte
	occurredAt time.Time       // OccurredAt
	author     speaker         // the sender
	names      map[string]bool // lower-case first words of names, known from author, label and chat lines
	chat       bool            // the content is a written dialogue
	speakers   map[string]bool // the normalized names that begin its turns
	english    bool            // the content looks like English, so capitals mean names
	capitals   map[string]bool // words with a capital inside a sentence
	excerpt    string          // the excerpt of memories from label, metadata and author
	share      float64         // the part of the content to read, 1 unless it is longer than maxRead
	credit     float64         // bytes that may still be read
}

// sampleBytes is how many bytes of the content are sampled for its language and its capitals.
const sampleBytes = 64 << 10

func newDocument(in Input) *document {
	doc := &document{
		share:   min(1, maxRead/float64(max(len(in.Content), 1))),
		content: in.Content, label: flat(in.Label), occurredAt: in.OccurredAt,
		names: map[string]bool{}, speakers: map[string]bool{}, capitals: map[string]bool{},
	}
	if len(in.Metadata) <= maxMetadata {
		doc.metadata = in.Metadata
	}
	doc.author = authorOf(in.Author, doc.label)
	doc.know(doc.author.name)
	doc.findSpeakers()
	doc.sample()
	doc.excerpt = doc.firstSentence()
	return doc
}

// know records the first word of a name.
func (d *document) know(name string) {
	if first, _, _ := strings.Cut(name, " "); first != "" {
		d.names[strings.ToLower(first)] = true
	}
}

// sample reads the beginning of the content to find its language and the words that have a capital
// inside sentences.
func (d *document) sample() {
	words, common, known, foreign := 0, 0, 0, 0
	var tokens []token
	text := d.content
	if len(text) > sampleBytes {
		text = text[:sampleBytes]
	}
	for line := range strings.Lines(text) {
		if len(line) > 4*maxSentence {
			line = line[:4*maxSentence]
		}
		tokens = tokenize(mask(line), tokens[:0])
		for i, t := range tokens {
			if !t.word || t.numeric() {
				continue
			}
			words++
			switch {
			case englishWords[t.low]:
				common++
			case foreignWords[t.low]:
				foreign++
			case lexicon[t.low] != nil || adverbs[t.low] || determiners[t.low]:
				known++
			}
			if i > 0 && t.capital() && !t.shouted() && tokens[i-1].word && !tokens[i-1].capital() {
				d.capitals[t.low] = true
			}
		}
	}
	// A short text may contain none of the common words.
	d.english = foreign <= common && (words <= 4 || common*8 >= words || words <= 16 && common+known > 0)
}

// firstSentence returns the first sentence of the content, cut at MaxExcerpt code points.
func (d *document) firstSentence() string {
	first := ""
	d.eachSpan(func(start, end int, _ speaker) bool {
		first = d.content[start:end]
		return first == ""
	})
	if first == "" {
		first = strings.TrimSpace(d.content)
	}
	n := 0
	for i := range first {
		if n++; n > MaxExcerpt {
			return strings.TrimSpace(first[:i])
		}
	}
	return first
}

// mask replaces every control character by a space and keeps the length in bytes.
func mask(text string) string {
	for i := 0; i < len(text); i++ {
		if text[i] < ' ' || text[i] == 0x7f {
			b := []byte(text)
			for ; i < len(b); i++ {
				if b[i] < ' ' || b[i] == 0x7f {
					b[i] = ' '
				}
			}
			return string(b)
		}
	}
	return text
}

// flat returns text on one line: white space and control characters as single spaces, none at the
// ends, valid UTF-8.
func flat(text string) string {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "")
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r <= 0x9f || r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == '\u200b' {
			return ' '
		}
		return r
	}, text)
	return strings.Join(strings.Fields(text), " ")
}
