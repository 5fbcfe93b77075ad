package httpx

import (
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/allowance"
)

const (
	// AnswerBytes is the most bytes of answers in flight, of all organizations; one of them holds a
	// quarter of it.
	AnswerBytes = 256 << 20
	// answerWait is how long an answer waits for room before its call is refused.
	answerWait = 5 * time.Second
	// answerWaiters is how many answers wait for room at once.
	answerWaiters = 256
)

// NewAnswers returns the allowance of bytes of answers in flight. A read reserves what it is about
// to build by allowance.Reserve with the context of its request.
func NewAnswers() *allowance.Allowance {
	return allowance.New(allowance.Config{
		Total: AnswerBytes, Share: AnswerBytes / 4, Wait: answerWait, Waiters: answerWaiters,
		Refusal: "too many bytes of answers are in flight; send the request again",
	})
}

// holdAnswers lets a call of a known caller reserve bytes for its answer.
func holdAnswers(answers *allowance.Allowance) echo.MiddlewareFunc {
	return onAPI(func(c echo.Context, r *request) error {
		r.answer = answers.Open(r.principal.OrganizationID)
		c.SetRequest(c.Request().WithContext(allowance.NewContext(c.Request().Context(), r.answer)))
		return nil
	})
}
