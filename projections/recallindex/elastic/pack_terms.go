package elastic

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"golang.org/x/net/http2/hpack"

	"github.com/annals-project/annals/domain/recall"
)

// A list of terms is packed as
//
//   - the number of words, and of stems;
//   - a byte for each word, in order: how much it shares with the one before, and how long the rest is;
//   - for each stem, in order: which word is nearest, how much is cut from its end, and how long the rest is.
//     Most stems are the beginning of a word of the text;
//   - the terms that occur several times, and how often;
//   - the rests of all terms: their length, and their text with the Huffman code of HTTP if that is shorter.
//
// Words are all terms but stems, among them the markers of languages. A stem has its marker before it: those of
// one language follow each other, after the number of languages and, for each, the marker and how many.

// packTerms appends a list of terms.
func packTerms(out []byte, terms []string) []byte {
	counts := make(map[string]int, len(terms))
	for _, t := range terms {
		counts[t]++
	}
	var words []string
	stems := map[string][]string{}
	for t := range counts {
		if marker, is := recall.LanguageMarker(t); is && strings.HasPrefix(t, marker+":") {
			stems[marker] = append(stems[marker], t[len(marker)+1:])
		} else {
			words = append(words, t)
		}
	}
	slices.Sort(words)
	var p packer
	out = binary.AppendUvarint(out, uint64(len(words)))
	for i, w := range words {
		before := ""
		if i > 0 {
			before = words[i-1]
		}
		out = p.word(out, before, w)
		p.count(counts[w])
	}
	markers := make([]string, 0, len(stems))
	for marker := range stems {
		markers = append(markers, marker)
	}
	slices.Sort(markers)
	out = binary.AppendUvarint(out, uint64(len(markers)))
	for _, marker := range markers {
		list := stems[marker]
		slices.Sort(list)
		out = append(binary.AppendUvarint(out, uint64(len(marker))), marker...)
		out = binary.AppendUvarint(out, uint64(len(list)))
		at := 0
		for _, stem := range list {
			out, at = p.stem(out, words, at, stem)
			p.count(counts[marker+":"+stem])
		}
	}
	out = binary.AppendUvarint(out, uint64(p.repeats))
	out = append(out, p.repeated...)
	return p.appendRests(out)
}

// packer collects what follows the words and stems.
type packer struct {
	rests []byte
	// repeated are pairs of numbers: how many terms come before the next that is repeated, and how often
	// more than twice that occurs.
	repeated      []byte
	repeats, once int
}

func (p *packer) count(n int) {
	if n == 1 {
		p.once++
		return
	}
	p.repeated = binary.AppendUvarint(binary.AppendUvarint(p.repeated, uint64(p.once)), uint64(n-2))
	p.repeats++
	p.once = 0
}

// A byte of a word has three bits of what is shared, and five of the rest; a greatest value means that
// a number follows.
const (
	restBits, maxShared, maxRest = 5, 7, 31
	cutBits, maxStep, maxCut     = 3, 7, 7
	tailBits, maxTail            = 2, 3
)

func (p *packer) word(out []byte, before, word string) []byte {
	shared := min(common(before, word), maxShared)
	rest := word[shared:]
	out = append(out, byte(shared<<restBits|min(len(rest), maxRest)))
	if len(rest) >= maxRest {
		out = binary.AppendUvarint(out, uint64(len(rest)-maxRest))
	}
	p.rests = append(p.rests, rest...)
	return out
}

// stem appends a stem after the one that was nearest to word at, and returns the word nearest to it.
func (p *packer) stem(out []byte, words []string, at int, stem string) ([]byte, int) {
	nearest, shared := at, 0
	near, _ := slices.BinarySearch(words, stem)
	for i := max(near-1, at); i < min(near+1, len(words)); i++ {
		if n := common(words[i], stem); n > shared {
			nearest, shared = i, n
		}
	}
	step, cut, tail := nearest-at, 0, stem[shared:]
	if nearest < len(words) {
		cut = len(words[nearest]) - shared
	}
	out = append(out, byte(min(step, maxStep)<<(cutBits+tailBits)|min(cut, maxCut)<<tailBits|min(len(tail), maxTail)))
	if step >= maxStep {
		out = binary.AppendUvarint(out, uint64(step-maxStep))
	}
	if cut >= maxCut {
		out = binary.AppendUvarint(out, uint64(cut-maxCut))
	}
	if len(tail) >= maxTail {
		out = binary.AppendUvarint(out, uint64(len(tail)-maxTail))
	}
	p.rests = append(p.rests, tail...)
	return out, nearest
}

// appendRests appends the length of the text and whether it is coded, and the text, which ends the list.
func (p *packer) appendRests(out []byte) []byte {
	if coded := hpack.HuffmanEncodeLength(string(p.rests)); coded < uint64(len(p.rests)) {
		return hpack.AppendHuffmanString(binary.AppendUvarint(out, coded<<1|1), string(p.rests))
	}
	return append(binary.AppendUvarint(out, uint64(len(p.rests))<<1), p.rests...)
}

// common returns how many bytes two terms share at the beginning.
func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// packedTerm is a term before its rest is read: the term that it begins like, and how.
type packedTerm struct {
	marker            string
	like, shared, cut int // like is the index of a word, -1 for none; cut counts only for a stem
	rest              int
}

// terms reads a list of terms.
func (u *unpacker) terms() []counted {
	packed := u.words()
	words := len(packed)
	for range u.number() {
		marker := string(u.bytes(u.number())) + ":"
		at := 0
		for n := u.number(); n > 0 && u.err == nil; n-- {
			var t packedTerm
			t, at = u.stem(marker, at, words)
			packed = append(packed, t)
		}
		if u.err != nil {
			return nil
		}
	}
	counts := u.counts(len(packed))
	rests := u.rests()
	// All terms are in one string, so that a record costs a few blocks of memory.
	ends, text := make([]int, len(packed)), make([]byte, 0, 2*len(rests))
	for i, t := range packed {
		from, to, ok := t.beginning(ends[:min(i, words)])
		if !ok || t.rest > len(rests) {
			u.fail()
		}
		if u.err != nil {
			return nil
		}
		text = append(append(text, t.marker...), text[from:to]...)
		text = append(text, rests[:t.rest]...)
		ends[i], rests = len(text), rests[t.rest:]
	}
	if len(rests) > 0 {
		u.fail()
	}
	return cutTerms(string(text), ends, counts)
}

func cutTerms(text string, ends, counts []int) []counted {
	list, from := make([]counted, len(ends)), 0
	for i, end := range ends {
		list[i] = counted{text[from:end], counts[i]}
		from = end
	}
	return list
}

// beginning returns where in the text the beginning is that a term has of a word, of which the ends are
// known.
func (t packedTerm) beginning(ends []int) (from, to int, ok bool) {
	if t.like < 0 {
		return 0, 0, t.shared == 0
	}
	if t.like >= len(ends) {
		return 0, 0, false
	}
	if t.like > 0 {
		from = ends[t.like-1]
	}
	if to = from + t.shared; t.marker != "" {
		to = ends[t.like] - t.cut
	}
	return from, to, from <= to && to <= ends[t.like]
}

func (u *unpacker) words() (list []packedTerm) {
	n := u.number()
	list = make([]packedTerm, 0, min(2*n, len(u.rest))) // with room for a stem of each
	for ; n > 0 && u.err == nil; n-- {
		b := int(u.byte())
		t := packedTerm{like: len(list) - 1, shared: b >> restBits, rest: u.more(b&maxRest, maxRest)}
		list = append(list, t)
	}
	return list
}

func (u *unpacker) stem(marker string, at, words int) (packedTerm, int) {
	b := int(u.byte())
	step := u.more(b>>(cutBits+tailBits), maxStep)
	t := packedTerm{marker: marker, like: at + step}
	t.cut = u.more(b>>tailBits&maxCut, maxCut)
	t.rest = u.more(b&maxTail, maxTail)
	at = t.like
	if words == 0 {
		t.like = -1
	}
	return t, at
}

// more returns a value of some bits, or the number that follows if they are all set.
func (u *unpacker) more(bits, all int) int {
	if bits < all {
		return bits
	}
	return all + u.number()
}

// counts reads how often each term occurs.
func (u *unpacker) counts(terms int) []int {
	counts := make([]int, terms)
	for i := range counts {
		counts[i] = 1
	}
	at := 0
	for n := u.number(); n > 0 && u.err == nil; n-- {
		at += u.number()
		if at >= terms {
			u.fail()
			return counts
		}
		counts[at] = u.number() + 2
		at++
	}
	return counts
}

func (u *unpacker) rests() []byte {
	n := u.number()
	text := u.bytes(n >> 1)
	if n&1 == 0 {
		return text
	}
	var decoded bytes.Buffer
	decoded.Grow(2 * len(text))
	if _, err := hpack.HuffmanDecode(&decoded, text); err != nil {
		u.fail()
	}
	return decoded.Bytes()
}
