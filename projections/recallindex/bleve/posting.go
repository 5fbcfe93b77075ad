package bleve

import (
	"math"

	segment "github.com/blevesearch/scorch_segment_api/v2"
)

// posting is an iterator over the documents of one term in one field of one segment.
type posting struct {
	docs cursor
	// repeated are the documents that contain the term several times; its docs are nil if there are none,
	// and in the former format, where docs have the frequencies.
	repeated cursor
	// lengths are those of the texts of the segment, nil in the former format.
	lengths *lengths
	term    int
	// label reports that the field is the label, which has no frequencies.
	label bool
	// weight is the weight of the term in the field, bound the most that it adds to the score of a
	// document. repeats is by how much more a repeated term adds at most than one that occurs once.
	weight, bound, repeats float64
	// documents is how many documents the list has. The runs go through docs and repeated for windows.
	documents        uint64
	run, repeatedRun *run
}

// cursor is an iterator over a list with its current document, and the posting of that; at is
// math.MaxUint64 at the end.
type cursor struct {
	docs    segment.PostingsIterator
	at      uint64
	current segment.Posting
}

// seek moves to a document, or to the next one after it.
func (c *cursor) seek(doc uint64) error {
	if c.at >= doc {
		return nil
	}
	return c.set(c.docs.Advance(doc))
}

func (c *cursor) next() error { return c.set(c.docs.Next()) }

func (c *cursor) set(current segment.Posting, err error) error {
	if err != nil {
		return err
	}
	c.current, c.at = current, math.MaxUint64
	if current != nil {
		c.at = current.Number()
	}
	return nil
}

// begin moves to the first document.
func (p *posting) begin() error {
	if p.repeated.docs != nil {
		if err := p.repeated.next(); err != nil {
			return err
		}
	}
	return p.docs.next()
}

// count returns how often the document contains the term, and the length of its text in terms. Documents
// are asked for in order.
func (p *posting) count() (n, length int, err error) {
	if p.lengths == nil {
		return int(p.docs.current.Frequency()), lengthOf(p.docs.current), nil
	}
	n, length = 1, p.lengths.number(p.docs.at)
	if p.repeated.docs == nil {
		return n, length, nil
	}
	if err := p.repeated.seek(p.docs.at); err != nil {
		return 0, 0, err
	}
	if p.repeated.at == p.docs.at {
		n = int(p.repeated.current.Frequency())
	}
	return n, length, nil
}

// lengthOf inverts Bleve's norm, which is one over the root of the length. That is exact for lengths of
// some million.
func lengthOf(p segment.Posting) int {
	norm := p.Norm()
	return int(math.Round(1 / (norm * norm)))
}
