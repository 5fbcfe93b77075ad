package bleve

import "github.com/annals-project/annals/domain/recall"

// posting goes through the documents of one term in one field of one segment.
type posting struct {
	docs cursor
	// repeated are the documents that contain the term several times; none in a label.
	repeated cursor
	term     int
	// label reports that the field is the label, which has no frequencies.
	label bool
	// weight is the weight of the term in the field, bound the most that it adds to the score of a
	// document. repeats is by how much more a repeated term adds at most than one that occurs once.
	weight, bound, repeats float64
	// added and addedRepeated are the places in the numbers of both lists up to which windows have them.
	added, addedRepeated int
}

// newPosting returns a posting of a list from a document on.
func newPosting(l list, weights recall.Weights, from uint64) posting {
	if l.label {
		p := posting{term: l.term, label: true, weight: weights.Label(l.term), docs: newCursor(l.docs, from)}
		p.bound = p.weight
		return p
	}
	p := posting{
		term: l.term, weight: weights.Text(l.term), repeats: l.impacts.repeated,
		docs: newCursor(l.docs, from), repeated: newCursor(l.repeated, from),
	}
	p.bound = p.weight * l.impacts.greatest
	p.added, p.addedRepeated = p.docs.place, p.repeated.place
	return p
}

// count returns how often a document of the list contains the term. Documents are asked for in order.
func (p *posting) count(doc uint64) int {
	if !p.repeated.has(doc) {
		return 1
	}
	return int(p.repeated.list.frequencies[p.repeated.place])
}
