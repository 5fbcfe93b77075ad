package bleve

import (
	"math"

	segment "github.com/blevesearch/scorch_segment_api/v2"
)

// posting is an iterator over the documents of one term in one field of one segment.
type posting struct {
	docs segment.PostingsIterator
	// at is the current document, current its posting; at is math.MaxUint64 at the end.
	at      uint64
	current segment.Posting
	term    int
	// label reports that the field is the label, which has no frequencies.
	label bool
	// weight is the weight of the term in the field, bound the most that it adds to the score of a
	// document.
	weight, bound float64
}

func (p *posting) next() error { return p.set(p.docs.Next()) }

// seek moves to a document, or to the next one after it.
func (p *posting) seek(doc uint64) error {
	if p.at >= doc {
		return nil
	}
	return p.set(p.docs.Advance(doc))
}

func (p *posting) set(current segment.Posting, err error) error {
	if err != nil {
		return err
	}
	p.current, p.at = current, math.MaxUint64
	if current != nil {
		p.at = current.Number()
	}
	return nil
}

// count returns how often the document contains the term, and the length of its text in terms.
func (p *posting) count() (n, length int) { return int(p.current.Frequency()), lengthOf(p.current) }

// lengthOf inverts Bleve's norm, which is one over the root of the length.
func lengthOf(p segment.Posting) int {
	norm := p.Norm()
	return int(math.Round(1 / (norm * norm)))
}
