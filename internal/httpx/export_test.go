package httpx

import "time"

// The bounds that tests reach.
const (
	BodyGrace  = bodyGrace
	BodyTime   = bodyTime
	BodyWait   = bodyWait
	AnswerTime = answerTime
	LeastRate  = leastRate
)

// NewBodiesWaiting is NewBodies with another time to wait for room.
func NewBodiesWaiting(total int64, wait time.Duration) *Bodies { return newBodies(total, wait) }
