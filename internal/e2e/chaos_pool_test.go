package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/runtest"
)

// chaosCall bounds one try of a call: a frozen process does not answer.
const chaosCall = 15 * time.Second

// passing reports whether a call that failed may succeed at another process or later.
func passing(err error) bool {
	refused, ok := errors.AsType[*client.APIError](err)
	return !ok || refused.Status >= http.StatusInternalServerError || refused.Status == http.StatusTooManyRequests
}

// whyUnanswered describes an error such that those of one kind are alike.
func whyUnanswered(err error) string {
	if refused, ok := errors.AsType[*client.APIError](err); ok {
		return fmt.Sprintf("%d %s: %s", refused.Status, refused.Code, refused.Message)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err.Error()
}

// chaosPool shares calls among the processes that answer them, as a load balancer does: a call goes to
// the one with the fewest open calls, so that few wait for one that is frozen, and one that does not
// answer is left alone for a while.
type chaosPool struct {
	mu      sync.Mutex
	targets []*chaosTarget
	// unanswered counts the tries that were not answered, by why.
	unanswered map[string]int
}

// chaosTarget is one process of a pool.
type chaosTarget struct {
	client *client.Client
	open   int
	// alone is until when it is left alone, and pause for how long after the next failure.
	alone time.Time
	pause backoff.Backoff
}

func newChaosPool(clients []*client.Client) *chaosPool {
	p := &chaosPool{unanswered: map[string]int{}}
	for _, c := range clients {
		p.targets = append(p.targets, &chaosTarget{
			client: c, pause: backoff.Backoff{First: 50 * time.Millisecond, Longest: time.Second},
		})
	}
	return p
}

// take returns the process for the next try, and how long to wait before it.
func (p *chaosPool) take() (best *chaosTarget, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := rand.IntN(len(p.targets))
	for n := range p.targets {
		t := p.targets[(first+n)%len(p.targets)]
		left := max(time.Until(t.alone), 0)
		if best == nil || left < wait || left == wait && t.open < best.open {
			best, wait = t, left
		}
	}
	best.open++
	return best, wait
}

// gave gives a process back after a try.
func (p *chaosPool) gave(t *chaosTarget, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.open--
	if err != nil {
		p.unanswered[whyUnanswered(err)]++
	}
	switch {
	case err == nil || !passing(err):
		t.alone = time.Time{}
		t.pause.Reset()
	case time.Now().After(t.alone): // the first of the calls that failed together
		t.alone = time.Now().Add(t.pause.Next())
	}
}

// untilAnswered makes a call at one process after the other until one answers it, for runtest.Timeout
// at most. A process that is down or frozen does not. tries counts those that were not answered.
func untilAnswered[T any](
	ctx context.Context, of *chaosPool, call func(context.Context, *client.Client) (T, error),
) (answer T, tries int, err error) {
	last := time.Now().Add(runtest.Timeout)
	for pause := (backoff.Backoff{First: 50 * time.Millisecond, Longest: 2 * time.Second}); ; tries++ {
		t, wait := of.take()
		passes(ctx, wait)
		limited, cancel := context.WithTimeout(ctx, chaosCall)
		answer, err = call(limited, t.client)
		cancel()
		of.gave(t, err)
		if err == nil || ctx.Err() != nil || !passing(err) || time.Now().After(last) {
			return answer, tries, err
		}
		passes(ctx, pause.Next())
	}
}
