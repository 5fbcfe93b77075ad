package recall

// evidenceNames are the signals of what answers a question.
var evidenceNames = map[Traits]string{
	TimeEvidence: "time evidence", NameEvidence: "name evidence",
}

// Promise estimates the score that Rank gives to a passage, by what is known of it alone: the score of its words, and
// its traits. usual is the mean weight of the question's words.
func (q *Question) Promise(words, usual float64, traits Traits) float64 {
	if name, asked := evidenceNames[q.Answer]; asked && traits.Has(q.Answer) {
		words += signalWeights[name] * usual
	}
	if traits.Has(IsQuestion) {
		words *= 1 - questionDiscount
	}
	return words
}
