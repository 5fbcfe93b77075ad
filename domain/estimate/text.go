package estimate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"hash/maphash"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/domain/limit"
)

const byteOrderMark = "\ufeff"

// encodeJSON encodes a value that cannot fail.
func encodeJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return []byte("null")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// digest returns the first 16 hexadecimal digits of the SHA-256 of texts.
func digest(texts ...string) string {
	h := sha256.New()
	for _, t := range texts {
		_, _ = h.Write([]byte(t)) // a hash takes everything
		_, _ = h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// fitID brings an id within its limit: a long one keeps its beginning and gets a digest.
func fitID(id string) string {
	clean := strings.ReplaceAll(id, "\x00", "\ufffd")
	if utf8.RuneCountInString(clean) <= limit.SourceID && clean == id {
		return id
	}
	return cutRunes(clean, limit.SourceID-20) + "~" + digest(id)
}

// fitName brings a label or identity on one line and within its limit.
func fitName(text string, most int) string {
	if isName(text, most) {
		return text
	}
	// Only the beginning can be kept: the rest is not read.
	if len(text) > 16*most {
		text = cutRunes(text, 8*most)
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	return strings.TrimSpace(cutRunes(strings.Join(strings.Fields(text), " "), most))
}

// isName reports whether a text is on one line, without white space that fitName removes, and within its limit.
func isName(text string, most int) bool {
	space := true
	for _, r := range text {
		if most--; most < 0 || unicode.IsControl(r) || unicode.IsSpace(r) && (space || r != ' ') {
			return false
		}
		space = r == ' '
	}
	return !space || text == ""
}

// oneLine returns the words of a text with one space between them.
func oneLine(text string) string {
	var b strings.Builder
	for word := range strings.FieldsSeq(text) {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(word)
	}
	return b.String()
}

// fitTime returns the zero time for what no send takes.
func fitTime(at time.Time) time.Time {
	if at.IsZero() {
		return time.Time{}
	}
	at = instant.Truncate(at)
	if y := at.Year(); y < 1 || y > 9999 {
		return time.Time{}
	}
	return at
}

// cutRunes returns the first n characters of a text.
func cutRunes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}

// title returns the first line of a text that has a letter or digit if it is short, else "".
func title(text string) string {
	for line := range strings.Lines(text[:min(len(text), 4096)]) {
		line = strings.Trim(strings.TrimSpace(line), "#=*_- \t")
		if strings.IndexFunc(line, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) < 0 {
			continue
		}
		if len(line) > 120 {
			return ""
		}
		return line
	}
	return ""
}

// parts cuts a text into parts of at most about partBytes, at an empty line if there is one in the second
// half, else at the end of a line, else between characters. It calls yield with each.
func parts(text string, yield func(part string) error) error {
	for len(text) > partBytes {
		window := text[:partBytes]
		at := strings.LastIndex(window, "\n\n") + 1
		if at < partBytes/2 {
			at = strings.LastIndexByte(window, '\n') + 1
		}
		if at < partBytes/2 {
			at = strings.LastIndexByte(window, ' ') + 1
		}
		if at < partBytes/2 {
			for at = partBytes; !utf8.RuneStart(text[at]); at-- {
			}
		}
		if err := yield(text[:at]); err != nil {
			return err
		}
		text = text[at:]
	}
	return yield(text)
}

// firstLine splits a text at its first line end.
func firstLine(text string) (line, rest string) {
	line, rest, _ = strings.Cut(text, "\n")
	return line, rest
}

// names counts the names of the elements of a file, by a hash.
type names struct {
	seed   maphash.Seed
	counts map[uint64]uint32
}

func newNames() names { return names{maphash.MakeSeed(), map[uint64]uint32{}} }

// unique returns the name of an element: its own id, else the digest of its content. From the second
// element of a name on, a number follows, and one that no element has. Each number is tried once for a
// name, so that equal names take linear time.
func (n names) unique(id, content string) string {
	if id == "" {
		id = digest(content)
	}
	id = fitID(id)
	name, at := id, maphash.String(n.seed, id)
	for own := at; n.counts[own] > 0; own = maphash.String(n.seed, name) {
		n.counts[at]++
		name = id + "~" + strconv.FormatUint(uint64(n.counts[at]), 10)
	}
	n.counts[maphash.String(n.seed, name)]++
	return name
}

const (
	// idKept is how many characters of a long id stay before its digest.
	idKept = limit.SourceID - 20
	// plainSum is the length up to which a text is hashed as it is.
	plainSum = 256
)

// prefixed computes the SHA-256 of texts that begin alike, as the ids and the metadata of a file do: what they have in
// common is hashed once. The result depends on the text alone.
type prefixed struct {
	last, prefix string
	state        hash.Hash
}

// sum returns the SHA-256 of the parts of a text.
func (p *prefixed) sum(text, end string) []byte {
	// The prefix grows by whole steps, each of which the file has as text of its own, so that this takes linear time.
	further := p.last[:min(len(p.last), len(p.prefix)+plainSum)]
	longer := len(further) == len(p.prefix)+plainSum && strings.HasPrefix(text, further)
	if p.state == nil || longer || !strings.HasPrefix(text, p.prefix) {
		common := 0
		for common < min(len(text), len(p.last)) && text[common] == p.last[common] {
			common++
		}
		p.prefix, p.state = text[:common], sha256.New()
		writeText(p.state, p.prefix)
	}
	p.last = text
	h := cloned(p.state, p.prefix)
	writeText(h, text[len(p.prefix):])
	writeText(h, end)
	return h.Sum(nil)
}

// cloned returns a copy of the hash of a text.
func cloned(state hash.Hash, of string) hash.Hash {
	if c, ok := state.(hash.Cloner); ok {
		if h, err := c.Clone(); err == nil {
			return h
		}
	}
	h := sha256.New() // crypto/sha256 can be cloned, unless another implementation is linked
	writeText(h, of)
	return h
}

// writeText hashes a text without a copy of the whole.
func writeText(h hash.Hash, text string) {
	var chunk [1024]byte
	for text != "" {
		n := copy(chunk[:], text)
		_, _ = h.Write(chunk[:n]) // a hash takes everything
		text = text[n:]
	}
}

// ids makes the ids of one file as fitID fits them. The path is counted, cut and hashed once.
type ids struct {
	path string
	// begin is the path as a long id begins with it, of at most idKept characters; clean is true if it is the path.
	begin      string
	characters int
	clean      bool
	sums       prefixed
}

func newIDs(path string) ids {
	clean := strings.ReplaceAll(path, "\x00", "\ufffd")
	return ids{
		path: path, begin: cutRunes(clean, idKept), characters: utf8.RuneCountInString(clean), clean: clean == path,
		sums: prefixed{last: path},
	}
}

// of returns the id of an element of the file.
func (i *ids) of(name string) string {
	clean := strings.ReplaceAll(name, "\x00", "\ufffd")
	id := i.path + name
	if i.clean && clean == name && i.characters+utf8.RuneCountInString(name) <= limit.SourceID {
		return id
	}
	begin := i.begin
	if left := idKept - i.characters; left > 0 {
		begin += cutRunes(clean, left)
	}
	return begin + "~" + hex.EncodeToString(i.sums.sum(id, "\x00")[:8])
}

// labelled returns a label of two texts, as fitName fits it. A beginning that many labels have is read once.
func (c *cut) labelled(begin, end string) string {
	if begin != c.begin {
		c.begin, c.room = begin, -1
		if fitName(begin, limit.Label) == begin && begin != "" {
			c.room = limit.Label - utf8.RuneCountInString(begin)
		}
	}
	if c.room < 0 || !isName("x"+end, limit.Label) {
		return begin + end
	}
	c.label = begin + strings.TrimRight(cutRunes(end, c.room), " ")
	c.fitted = c.label
	return c.label
}
