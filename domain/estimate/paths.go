package estimate

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strings"
	"unicode/utf8"

	"github.com/annals-project/annals/domain/limit"
)

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
