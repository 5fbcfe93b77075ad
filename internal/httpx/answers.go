package httpx

import (
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/allowance"
)

const (
	// answerBytes is the most bytes of responses in flight, of all organizations. One organization
	// may use a quarter of it.
	answerBytes = 256 << 20
	// answerWait is how long a response waits for memory before its call is refused.
	answerWait = 5 * time.Second
	// answerWaiters is how many responses wait for memory at once.
	answerWaiters = 256
)

// newAnswers returns the allowance of bytes of responses in flight. A read reserves the bytes that
// it is about to build by allowance.Reserve with the context of its request.
func newAnswers() *allowance.Allowance {
	return allowance.New(allowance.Config{
		Total: answerBytes, Share: answerBytes / 4, Wait: answerWait, Waiters: answerWaiters,
		Refusal: "too many bytes of answers are in flight; send the request again",
	})
}

// holdAnswers lets a call of a known caller reserve bytes for its response.
func holdAnswers(answers *allowance.Allowance) echo.MiddlewareFunc {
	return onAPI(func(c echo.Context, r *request) error {
		r.answer = answers.Open(r.principal.OrganizationID)
		c.SetRequest(c.Request().WithContext(allowance.NewContext(c.Request().Context(), r.answer)))
		return nil
	})
}
