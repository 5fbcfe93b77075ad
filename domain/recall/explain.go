package recall

// Contribution is what one signal adds to the score of a turn: its value, times its weight.
type Contribution struct {
	Signal string  `json:"signal"`
	Value  float64 `json:"value"`
	Weight float64 `json:"weight"`
}

// Factor is what a score is multiplied by.
type Factor struct {
	Name  string  `json:"factor"`
	Value float64 `json:"value"`
}

// ExplainedTurn is what makes the score of a turn: the sum of its contributions, times its factors.
// Contributions of 0 and factors of 1 are left out.
type ExplainedTurn struct {
	Score float64
	// ByWords is the score without similarity.
	ByWords       float64
	Contributions []Contribution
	Factors       []Factor
}

func (e *ExplainedTurn) addSignal(s signal, value float64) {
	if s.weight != 0 && value != 0 {
		e.Contributions = append(e.Contributions, Contribution{s.name, value, s.weight})
	}
}

func (e *ExplainedTurn) addFactor(name string, value float64) {
	if value != 1 {
		e.Factors = append(e.Factors, Factor{name, value})
	}
}

// Explained is a ranking with its reasons.
type Explained struct {
	// Turns are in the order of the ranked ones.
	Turns []ExplainedTurn
	// Named is the author that the question names, or that asks it; "" for none or several. Other is the asker of a
	// question that addresses "you": it asks for texts of others. Usual is the weight of a usual term of the question.
	// Content are the indexes of its own terms that are looked for in texts; the others name an author.
	Named   string
	Other   string
	Usual   float64
	Content []int
}

// RankExplained is Rank with its reasons.
func (a *Analyzer) RankExplained(q Question, weights Weights, turns []Turn, without ...string) Explained {
	s := newScene(a, q, weights, turns)
	e := Explained{
		Turns: make([]ExplainedTurn, len(turns)), Named: s.named, Other: s.other, Usual: s.usual, Content: s.content,
	}
	for i := range turns {
		for _, f := range factors {
			e.Turns[i].addFactor(f.name, f.of(&turns[i]))
		}
	}
	scores, byWords := s.rank(leftOut(without), e.Turns)
	for i := range e.Turns {
		e.Turns[i].Score, e.Turns[i].ByWords = scores[i], byWords[i]
	}
	return e
}
