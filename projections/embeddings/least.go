package embeddings

// Least returns the cosine from which a text has something in common with a query, if the query may read so many
// vectors: the more there are, the nearer is the nearest of them by chance. 0 is no limit.
type Least func(vectors int) float64

// vectors counts those of the entries that the query may read.
func (s *search) vectors() (count int) {
	for i, own := range s.own {
		if own != unknown {
			count += s.col.entries[s.col.order[i]].count
		}
	}
	return count
}

// unlike reports whether an exact cosine is too low for a hit.
func (s *search) unlike(own float32) bool { return s.least > 0 && own < s.least }

// dropUnlike leaves out the entries that are too unlike the text. The distribution and the windows know them already.
func (s *search) dropUnlike() {
	for i, own := range s.own {
		if s.unlike(own) {
			s.own[i] = unknown
		}
	}
}
