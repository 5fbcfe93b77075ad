package hostile

// NewAnswers returns some answers.
func NewAnswers(of ...string) *Answers {
	a := &Answers{}
	for _, what := range of {
		a.add(what)
	}
	return a
}
