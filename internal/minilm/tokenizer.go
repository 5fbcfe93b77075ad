package minilm

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// tokenizer splits a text into the ids of WordPiece tokens as uncased BERT does. It is read-only.
type tokenizer struct {
	heads    map[string]int32 // pieces that begin a word
	tails    map[string]int32 // pieces that continue a word, without their prefix
	literals []literal        // tokens that count wherever the text has them, as [SEP]
	cls      int32
	sep      int32
	unknown  int32
	maxID    int32
	maxChars int // a longer word is unknown
	maxPiece int // bytes of the longest piece
}

type literal struct {
	text string
	id   int32
}

// tokenizerFile is the part of tokenizer.json that is read. Its padding is ignored since one text
// at a time needs none, and its truncation since the limit is maxTokens.
type tokenizerFile struct {
	AddedTokens []struct {
		ID         int64  `json:"id"`
		Content    string `json:"content"`
		SingleWord bool   `json:"single_word"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
		Normalized bool   `json:"normalized"`
	} `json:"added_tokens"`
	Normalizer struct {
		Type         string `json:"type"`
		CleanText    bool   `json:"clean_text"`
		ChineseChars bool   `json:"handle_chinese_chars"`
		StripAccents *bool  `json:"strip_accents"`
		Lowercase    bool   `json:"lowercase"`
	} `json:"normalizer"`
	PreTokenizer struct {
		Type string `json:"type"`
	} `json:"pre_tokenizer"`
	Model struct {
		Type     string           `json:"type"`
		Unknown  string           `json:"unk_token"`
		Prefix   string           `json:"continuing_subword_prefix"`
		MaxChars int              `json:"max_input_chars_per_word"`
		Vocab    map[string]int64 `json:"vocab"`
	} `json:"model"`
}

// parseTokenizer reads tokenizer.json. A file that asks for another kind of tokenizer is an error.
func parseTokenizer(data []byte) (*tokenizer, error) {
	var f tokenizerFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("parse tokenizer: %w", err)
	}
	if err := f.supported(); err != nil {
		return nil, fmt.Errorf("parse tokenizer: %w", err)
	}
	t := &tokenizer{
		heads: make(map[string]int32, len(f.Model.Vocab)), tails: map[string]int32{}, maxChars: f.Model.MaxChars,
	}
	for piece, id := range f.Model.Vocab {
		if id < 0 || id > math.MaxInt32 {
			return nil, fmt.Errorf("parse tokenizer: id %d of %q is out of range", id, piece)
		}
		t.maxID = max(t.maxID, int32(id))
		t.heads[piece] = int32(id)
		if tail, ok := strings.CutPrefix(piece, f.Model.Prefix); ok {
			t.tails[tail] = int32(id)
		}
		t.maxPiece = max(t.maxPiece, len(piece))
	}
	for _, a := range f.AddedTokens {
		id, ok := t.heads[a.Content]
		if !ok || int64(id) != a.ID {
			return nil, fmt.Errorf("parse tokenizer: the vocabulary does not have %q as %d", a.Content, a.ID)
		}
		t.literals = append(t.literals, literal{a.Content, id})
	}
	for text, id := range map[string]*int32{"[CLS]": &t.cls, "[SEP]": &t.sep, f.Model.Unknown: &t.unknown} {
		var ok bool
		if *id, ok = t.heads[text]; !ok {
			return nil, fmt.Errorf("parse tokenizer: the vocabulary lacks %q", text)
		}
	}
	return t, nil
}

// supported reports what the file asks for and this tokenizer does not do.
func (f *tokenizerFile) supported() error {
	switch n := f.Normalizer; {
	case n.Type != "BertNormalizer":
		return fmt.Errorf("normalizer %q is not supported", n.Type)
	case !n.CleanText || !n.ChineseChars || !n.Lowercase || n.StripAccents != nil && !*n.StripAccents:
		return errors.New("the normalizer is not that of uncased BERT")
	case f.PreTokenizer.Type != "BertPreTokenizer":
		return fmt.Errorf("pre-tokenizer %q is not supported", f.PreTokenizer.Type)
	case f.Model.Type != "WordPiece":
		return fmt.Errorf("model %q is not supported", f.Model.Type)
	case f.Model.Prefix == "":
		return errors.New("the prefix of continuing pieces is missing")
	case f.Model.MaxChars < 1 || f.Model.MaxChars > maxWordChars:
		return fmt.Errorf("words of %d characters are not supported, at most %d", f.Model.MaxChars, maxWordChars)
	}
	for _, a := range f.AddedTokens {
		if a.Content == "" || a.SingleWord || a.LStrip || a.RStrip || a.Normalized {
			return fmt.Errorf("added token %q is not supported", a.Content)
		}
	}
	return nil
}

// maxWordChars bounds max_input_chars_per_word, so that a word fits in a small buffer.
const maxWordChars = 1000

// maxTextBytes is how much of a text is read: 1 KiB per token. The limit takes effect only if the
// text is mostly white space, ignored characters or words too long to be known.
const maxTextBytes = maxTokens << 10

// encode appends the ids of a text to ids: [CLS], at most maxTokens-2 pieces, [SEP].
func (t *tokenizer) encode(ids []int32, text string) []int32 {
	e := encoder{t: t, ids: append(ids, t.cls), limit: len(ids) + maxTokens - 1}
	text = head(text, maxTextBytes)
	for len(text) > 0 && len(e.ids) < e.limit {
		if l, ok := t.literalAt(text); ok {
			e.endWord()
			e.ids = append(e.ids, l.id)
			text = text[len(l.text):]
			continue
		}
		r, size := utf8.DecodeRuneInString(text)
		e.add(r, text[:size])
		text = text[size:]
	}
	e.endWord()
	return append(e.ids[:min(len(e.ids), e.limit)], t.sep)
}

// head returns the first n bytes of a text, or fewer if a character would be cut.
func head(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for i := range utf8.UTFMax {
		if utf8.RuneStart(text[n-i]) {
			return text[:n-i]
		}
	}
	return text[:n]
}

// literalAt returns the longest literal token that the text begins with.
func (t *tokenizer) literalAt(text string) (found literal, ok bool) {
	for _, l := range t.literals {
		if text[0] == l.text[0] && strings.HasPrefix(text, l.text) && len(l.text) > len(found.text) {
			found, ok = l, true
		}
	}
	return found, ok
}

// encoder holds the word that is being read.
type encoder struct {
	t     *tokenizer
	ids   []int32
	limit int    // of len(ids)
	word  []byte // normalized, at most maxChars characters
	chars int    // of the word, also those that word omits
}

// add reads one character of the text, whose bytes are raw.
func (e *encoder) add(r rune, raw string) {
	switch {
	case r < utf8.RuneSelf:
		e.addASCII(byte(r))
	case r == utf8.RuneError || isIgnored(r):
	case unicode.IsSpace(r):
		e.endWord()
	case isIdeograph(r):
		e.endWord()
		e.addFolded(r, raw)
		e.endWord()
	default:
		e.addFolded(r, raw)
	}
}

func (e *encoder) addASCII(c byte) {
	switch {
	case c == ' ' || c == '\t' || c == '\n' || c == '\r':
		e.endWord()
	case c < ' ' || c == 0x7f:
	case 'A' <= c && c <= 'Z':
		e.append(rune(c - 'A' + 'a'))
	case 'a' <= c && c <= 'z' || '0' <= c && c <= '9':
		e.append(rune(c))
	default:
		e.addPunctuation(rune(c))
	}
}

// addPunctuation adds a word of one character.
func (e *encoder) addPunctuation(r rune) {
	e.endWord()
	e.append(r)
	e.endWord()
}

func (e *encoder) append(r rune) {
	if e.chars++; e.chars <= e.t.maxChars {
		e.word = utf8.AppendRune(e.word, r)
	}
}

// endWord appends the ids of the pieces of the word, longest pieces first, and begins a new word.
// A word that is not made of known pieces is one unknown token.
func (e *encoder) endWord() {
	word, chars, mark := e.word, e.chars, len(e.ids)
	e.word, e.chars = e.word[:0], 0
	if chars == 0 || mark >= e.limit {
		return
	}
	if chars > e.t.maxChars {
		e.ids = append(e.ids, e.t.unknown)
		return
	}
	for pieces := e.t.heads; len(word) > 0; pieces = e.t.tails {
		id, size := e.t.longest(pieces, word)
		if size == 0 {
			e.ids = append(e.ids[:mark], e.t.unknown)
			return
		}
		e.ids = append(e.ids, id)
		word = word[size:]
	}
}

// longest returns the longest piece that the word begins with, and its bytes; 0 bytes if none.
func (t *tokenizer) longest(pieces map[string]int32, word []byte) (id int32, size int) {
	for n := min(len(word), t.maxPiece); n > 0; n-- {
		if n < len(word) && !utf8.RuneStart(word[n]) {
			continue
		}
		if id, ok := pieces[string(word[:n])]; ok {
			return id, n
		}
	}
	return 0, 0
}

// addFolded adds a character in lower case and without accents: its canonical decomposition, of
// which nonspacing marks are dropped. Decomposing one character at a time gives the same as the
// whole text, since the only other effect of NFD is the order of marks.
func (e *encoder) addFolded(r rune, raw string) {
	if r < 0xC0 {
		e.addDecomposed(r)
		return
	}
	var space [64]byte
	for _, d := range string(norm.NFD.AppendString(space[:0], raw)) {
		e.addDecomposed(d)
	}
}

func (e *encoder) addDecomposed(r rune) {
	switch {
	case unicode.Is(unicode.Mn, r):
	case isPunctuation(r):
		e.addPunctuation(r)
	default:
		e.append(unicode.ToLower(r))
	}
}

// isIgnored reports whether a character is dropped: controls, formats and private use.
func isIgnored(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co) }

// isIdeograph reports whether BERT puts spaces around a character.
func isIdeograph(r rune) bool {
	switch {
	case 0x4E00 <= r && r <= 0x9FFF, 0x3400 <= r && r <= 0x4DBF, 0x20000 <= r && r <= 0x2A6DF,
		0x2A700 <= r && r <= 0x2B73F, 0x2B740 <= r && r <= 0x2B81F, 0x2B920 <= r && r <= 0x2CEAF,
		0xF900 <= r && r <= 0xFAFF, 0x2F800 <= r && r <= 0x2FA1F:
		return true
	}
	return false
}

// isPunctuation reports whether a character is a word by itself. BERT counts every symbol of ASCII.
func isPunctuation(r rune) bool {
	switch {
	case '!' <= r && r <= '/', ':' <= r && r <= '@', '[' <= r && r <= '`', '{' <= r && r <= '~':
		return true
	}
	return r > unicode.MaxASCII && unicode.IsPunct(r)
}
