package httpx

// The bounds that tests reach.
const (
	BodyGrace  = bodyGrace
	BodyTime   = bodyTime
	AnswerTime = answerTime
	LeastRate  = leastRate
	DrainBytes = drainBytes
)

// Waiting returns how many connections make place for others.
func (l *Connections) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting.Len()
}
