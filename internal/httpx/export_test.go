package httpx

// The bounds that tests reach.
const (
	BodyGrace  = bodyGrace
	BodyTime   = bodyTime
	AnswerTime = answerTime
	LeastRate  = leastRate
	DrainBytes = drainBytes
)
