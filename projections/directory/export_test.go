package directory

// WithSlice makes slices of recounts count at most n identities.
func (p *Projector) WithSlice(n int) *Projector {
	p.slice = n
	return p
}

// WithSliceBytes makes slices of recounts read about n bytes of traits.
func (p *Projector) WithSliceBytes(n int) *Projector {
	p.sliceBytes = n
	return p
}

// SetSearched makes a search by prefix look at few identities.
func (q *Queries) SetSearched(all, byTrait int) { q.searched, q.searchedByTrait = all, byTrait }

// MatchSlice is how many identities a list of members looks at together.
const MatchSlice = matchSlice

// SetMatched makes a list of members look at few identities.
func (q *Queries) SetMatched(n int) { q.matched = n }

// SetPreviewed makes previews look at few identities.
func (q *Queries) SetPreviewed(n int) { q.previewed = n }

// MaxPast is how many changes before and after a time a question about the past looks at.
const MaxPast = maxPast
