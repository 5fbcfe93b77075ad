// Package load measures a running server under load, over its public API, within bounds of count and time.
package load

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
)

// Texts generates texts whose words are as unevenly distributed as those of a language. Equal
// seeds generate equal texts. It is for one goroutine.
type Texts struct {
	words []string
	zipf  *rand.Zipf
	rand  *rand.Rand
}

// vocabulary is how many different words there are.
const vocabulary = 20_000

// words is the vocabulary. It is the same for every seed, so that a query from one seed finds texts
// of another.
var words = sync.OnceValue(func() []string {
	r := rand.New(rand.NewPCG(1, 1))
	const consonants, vowels = "bcdfghklmnprstvz", "aeiou"
	seen := map[string]bool{}
	list := make([]string, 0, vocabulary)
	for len(list) < vocabulary {
		var w strings.Builder
		for range 2 + r.IntN(3) {
			w.WriteByte(consonants[r.IntN(len(consonants))])
			w.WriteByte(vowels[r.IntN(len(vowels))])
		}
		if !seen[w.String()] {
			seen[w.String()] = true
			list = append(list, w.String())
		}
	}
	return list
})

// NewTexts begins a sequence of texts.
func NewTexts(seed uint64) *Texts {
	t := &Texts{words: words(), rand: rand.New(rand.NewPCG(seed, 2))}
	t.zipf = rand.NewZipf(t.rand, 1.07, 4, vocabulary-1)
	return t
}

// Text returns words as one sentence.
func (t *Texts) Text(words int) string {
	var b strings.Builder
	for i := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(t.words[t.zipf.Uint64()])
	}
	b.WriteByte('.')
	return b.String()
}

// commonest is how many of the words are as common as stop words. No query is about them.
const commonest = 100

// Query returns a question of three to six words, common and rare ones.
func (t *Texts) Query() string {
	words := make([]string, 3+t.rand.IntN(4))
	for i := range words {
		rank := t.zipf.Uint64()
		for rank < commonest {
			rank = t.zipf.Uint64()
		}
		words[i] = t.words[rank]
	}
	return strings.Join(words, " ")
}

// Words returns different words of some ranks, from the commonest on, each as often as texts have it.
func (t *Texts) Words(count, from, to int) []string {
	taken, list := map[int]bool{}, make([]string, 0, count)
	for len(list) < count {
		rank := int(t.zipf.Uint64())
		if rank < from || rank >= to || taken[rank] {
			continue
		}
		taken[rank] = true
		list = append(list, t.words[rank])
	}
	return list
}

// Rare returns a word that no text contains.
func (t *Texts) Rare() string {
	return fmt.Sprintf("xq%016x", t.rand.Uint64())
}
