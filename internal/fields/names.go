package fields

import (
	"math/bits"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Names are the names that one place of a request knows: the members of an object, or the parameters of a query. A
// place ignores other names, but refuses those that misspell one it knows.
type Names struct {
	list []string
	// known holds what misspellings of each name are compared with.
	known []knownName
	// foreign are names that other services have for what these names are.
	foreign []foreignName
}

// foreignName is a name in lower-case ASCII without "_" and "-", and what it is here.
type foreignName struct {
	word
	plain, here string
}

type knownName struct {
	word
	name, plain string
	letters     []rune
	// edits is how many edits away a name is a misspelling.
	edits int
}

// A name of this many letters is misspelt by a name that is one edit away, or two. Shorter names are too close to
// other words.
const (
	oneEdit  = 4
	twoEdits = 8
)

// NewNames returns names, all of them in ASCII.
func NewNames(names ...string) Names {
	n := Names{list: names}
	for _, name := range names {
		k := knownName{word: readWord([]byte(name)), name: name, letters: []rune(name)}
		k.plain = strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(name))
		switch {
		case len(name) >= twoEdits:
			k.edits = 2
		case len(name) >= oneEdit:
			k.edits = 1
		}
		n.known = append(n.known, k)
	}
	return n
}

// With returns the names with others.
func (n Names) With(names ...string) Names {
	with := NewNames(append(slices.Clone(n.list), names...)...)
	with.foreign = n.foreign
	return with
}

// WithForeign returns the names with one of other services, which is refused with what it is here: its effect would
// be missed.
func (n Names) WithForeign(plain, here string) Names {
	n.foreign = append(slices.Clone(n.foreign), foreignName{readWord([]byte(plain)), plain, here})
	return n
}

// foreignTo returns what a name of other services is here, "" for any other name.
func (n Names) foreignTo(other []byte) string {
	if len(n.foreign) == 0 {
		return ""
	}
	w := readWord(other)
	for i := range n.foreign {
		f := &n.foreign[i]
		if w.folded == f.folded && w.foldedMask == f.foldedMask && equalsFolded(other, f.plain) {
			return f.here
		}
	}
	return ""
}

// Has reports whether a name is one of the names.
func (n Names) Has(name string) bool { return slices.Contains(n.list, name) }

// misspelt returns the name that another name misspells, "" if it misspells none: it equals the name but for case,
// "_" and "-", or is as few edits away as the length of the name allows. The other name must not be a known one.
func (n Names) misspelt(other []byte) string {
	w := readWord(other)
	near := false
	for i := range n.known {
		k := &n.known[i]
		if w.folded == k.folded && w.foldedMask == k.foldedMask && equalsFolded(other, k.plain) {
			return k.name
		}
		near = near || w.mayBeNear(k)
	}
	if !near {
		return ""
	}
	letters := []rune(string(other))
	for edits := 1; edits <= 2; edits++ {
		for i := range n.known {
			k := &n.known[i]
			if edits <= k.edits && w.mayBeNear(k) && within(letters, k.letters, edits) {
				return k.name
			}
		}
	}
	return ""
}

// word is what most names differ in from a known one. A mask has a bit for each letter, which different letters
// share: both cases of one in ASCII do.
type word struct {
	length, folded   int
	mask, foldedMask uint32
}

// mayBeNear is false for most names that are more edits away than a misspelling. An edit adds or removes two letters
// at most.
func (w word) mayBeNear(k *knownName) bool {
	return k.edits > 0 && w.length <= k.length+k.edits && w.length >= k.length-k.edits &&
		bits.OnesCount32(w.mask^k.mask) <= 2*k.edits
}

func readWord(name []byte) (w word) {
	for len(name) > 0 {
		r, size := rune(name[0]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(name)
			r = unicode.ToLower(r)
		}
		name = name[size:]
		w.length++
		w.mask |= 1 << (r & 31)
		if r != '_' && r != '-' {
			w.folded++
			w.foldedMask |= 1 << (r & 31)
		}
	}
	return w
}

// equalsFolded reports whether a name equals a text in lower-case ASCII but for case, "_" and "-".
func equalsFolded(name []byte, folded string) bool {
	for len(name) > 0 {
		r, size := utf8.DecodeRune(name)
		name = name[size:]
		if r == '_' || r == '-' {
			continue
		}
		if folded == "" || unicode.ToLower(r) != rune(folded[0]) {
			return false
		}
		folded = folded[1:]
	}
	return folded == ""
}

// within reports whether at most so many edits, two at most, turn a into b. An edit inserts, removes or replaces a
// letter, or swaps two neighbours.
func within(a, b []rune, edits int) bool {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	switch {
	case len(a) == 0 || len(b) == 0:
		return len(a)+len(b) <= edits
	case edits == 0 || len(a)-len(b) > edits || len(b)-len(a) > edits:
		return false
	case within(a[1:], b[1:], edits-1), within(a[1:], b, edits-1), within(a, b[1:], edits-1):
		return true
	case len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] && within(a[2:], b[2:], edits-1):
		return true
	}
	// Two edits may be a swap, and a letter between the two that are swapped.
	return edits == 2 && (swappedAround(a, b) || swappedAround(b, a))
}

// swappedAround reports whether b is a with its first two letters swapped and a letter put between them.
func swappedAround(a, b []rune) bool {
	return len(a) > 1 && len(b) > 2 && a[0] == b[2] && a[1] == b[0] && slices.Equal(a[2:], b[3:])
}
