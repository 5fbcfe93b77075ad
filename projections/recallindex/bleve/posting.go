package bleve

import (
	"math"

	segment "github.com/blevesearch/scorch_segment_api/v2"
)

// posting is the list of documents of one term in one field of one segment, and where one stands in it.
type posting struct {
	docs segment.PostingsIterator
	// at is the document it stands at, with what the list says of it; math.MaxUint64 at the end.
	at   uint64
	said segment.Posting
	term int
	// label says that the list is of labels: the term stands in them once or not.
	label bool
	// weight is what the term counts in the field, and bound the most that it adds to the score of a document.
	weight, bound float64
}

func (p *posting) step() error { return p.stand(p.docs.Next()) }

// seek goes on to a document, or to the next one behind it.
func (p *posting) seek(doc uint64) error {
	if p.at >= doc {
		return nil
	}
	return p.stand(p.docs.Advance(doc))
}

func (p *posting) stand(said segment.Posting, err error) error {
	if err != nil {
		return err
	}
	p.said, p.at = said, math.MaxUint64
	if said != nil {
		p.at = said.Number()
	}
	return nil
}

// count is how often the term stands in the document, and how many terms the text of the document has.
func (p *posting) count() (n, length int) { return int(p.said.Frequency()), lengthOf(p.said) }

// lengthOf undoes what Bleve makes of a length: one over its root.
func lengthOf(p segment.Posting) int {
	norm := p.Norm()
	return int(math.Round(1 / (norm * norm)))
}
