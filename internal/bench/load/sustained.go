package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/eventstore/backoff"
)

// Sustained is a load whose sends begin at fixed times, even if earlier ones are not answered: a
// server that is slower than the rate gets no relief.
type Sustained struct {
	// To are clients that make each call once, one per project. The sends go to them in turn.
	To        []*client.Client
	PerSecond float64
	Lasts     time.Duration
	// UnderWay bounds the sends that wait for their answer. A send that is due beyond it is not
	// made, but counted.
	UnderWay int
	Run      string
	// Until, if not nil, ends the load early once it is closed.
	Until <-chan struct{}
	// Blind disables the samples.
	Blind bool
}

// Sends is the result of a Sustained.
type Sends struct {
	Made, Acknowledged int
	// Held counts sends that came due while too many were in flight.
	Held int
	// Refused counts the responses 503 and 429, WithoutWait those of them without Retry-After.
	Refused, WithoutWait int
	// Unanswered counts sends without an answer, which may have happened. FirstUnanswered is the
	// first such error.
	Unanswered      int
	FirstUnanswered error
	// Receipts are the times from the due time of each acknowledged send to its receipt.
	Receipts Times
	// Recalled and Completed are the times from the receipts of sampled sends until they were
	// recalled and shown as completed.
	Recalled, Completed Times
	// Overdue counts sampled sends that did not get there within sampleLimit.
	Overdue int
	// Sent are ids of acknowledged sends by project: every one of them, or every n-th if there are
	// more than mostSent.
	Sent [][]string
}

// The samples. Their calls must be few compared with the load.
const (
	recalledPerSecond, completedPerSecond = 3, 6
	// sampleFirst is the pause before the first call about a send. Each further pause is a seventh
	// of the time passed so far.
	sampleFirst = 20 * time.Millisecond
	sampleLimit = 2 * time.Minute
	// mostSent bounds the acknowledged sends that are remembered for a later check.
	mostSent = 20_000
	// dueTick is the pause between two checks for sends that are due.
	dueTick = 2 * time.Millisecond
)

// due is a send to make.
type due struct {
	n                   int
	at                  time.Time
	recalled, completed bool
}

// sustaining is a Sustained in progress.
type sustaining struct {
	Sustained
	group *errgroup.Group
	every int
	// underWay counts the sends that wait for a client or for their answer.
	underWay atomic.Int64
	mu       sync.Mutex
	out      Sends
}

// Start makes the sends and waits for the samples. An error other than a temporary refusal ends it.
func (s Sustained) Start(ctx context.Context) (Sends, error) {
	group, ctx := errgroup.WithContext(ctx)
	r := &sustaining{Sustained: s, group: group, every: int(s.PerSecond*s.Lasts.Seconds())/mostSent + 1}
	r.out.Sent = make([][]string, len(s.To))
	work := make(chan due, s.UnderWay)
	for w := range s.UnderWay {
		group.Go(func() error {
			texts := NewTexts(uint64(w) + 3000)
			for d := range work {
				err := r.send(ctx, d, texts)
				r.underWay.Add(-1)
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	r.generate(ctx, work)
	close(work)
	err := group.Wait()
	return r.out, err
}

// generate hands out the sends as they come due.
func (r *sustaining) generate(ctx context.Context, work chan<- due) {
	tick := time.NewTicker(dueTick)
	defer tick.Stop()
	began, total := time.Now(), int(r.PerSecond*r.Lasts.Seconds())
	for n := 0; n < total; {
		select {
		case <-ctx.Done():
			return
		case <-r.Until:
			return
		case <-tick.C:
		}
		for n < min(total, int(time.Since(began).Seconds()*r.PerSecond)) {
			d := due{n: n, at: began.Add(time.Duration(float64(n) / r.PerSecond * float64(time.Second)))}
			d.recalled, d.completed = r.sampled(n, recalledPerSecond), r.sampled(n, completedPerSecond)
			n++
			if r.underWay.Load() >= int64(r.UnderWay) {
				r.mu.Lock()
				r.out.Held++
				r.mu.Unlock()
				continue
			}
			select {
			case <-r.Until: // it ended while the send before was answered
				return
			default:
			}
			r.underWay.Add(1)
			work <- d // has room for every send in flight
		}
	}
}

// sampled reports whether send n is one of perSecond samples a second.
func (r *sustaining) sampled(n int, perSecond float64) bool {
	if r.Blind {
		return false
	}
	share := min(perSecond/r.PerSecond, 1)
	return int(float64(n+1)*share) > int(float64(n)*share)
}

// send makes one send.
func (r *sustaining) send(ctx context.Context, d due, texts *Texts) error {
	project := d.n % len(r.To)
	to := r.To[project]
	id := fmt.Sprintf("%s/sustained/%d", r.Run, d.n)
	p := client.DataPoint{ID: id, Content: texts.Text(shortWords), Identity: identity}
	var word string
	if d.recalled {
		word = texts.Rare()
		p.Content += " " + word
	}
	receipt, err := to.Ingest(ctx, p)
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.Made++
	if refused, is := refusedForNow(err); is {
		r.out.Refused++
		if refused.RetryAfter == 0 {
			r.out.WithoutWait++
		}
		return nil
	}
	if _, unanswered := errors.AsType[*client.ConnectionError](err); unanswered && ctx.Err() == nil {
		if r.out.Unanswered++; r.out.FirstUnanswered == nil {
			r.out.FirstUnanswered = err
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("sustained load: %w", err)
	}
	r.out.Acknowledged++
	r.out.Receipts = append(r.out.Receipts, now.Sub(d.at))
	if d.n%r.every == 0 {
		r.out.Sent[project] = append(r.out.Sent[project], receipt.IngestionID)
	}
	if d.recalled {
		r.watch(&r.out.Recalled, func() (time.Duration, error) { return found(ctx, to, word, now) })
	}
	if d.completed {
		r.watch(&r.out.Completed, func() (time.Duration, error) { return ended(ctx, to, receipt.IngestionID, now) })
	}
	return nil
}

// watch runs wait during the load and adds its result to into.
func (r *sustaining) watch(into *Times, wait func() (time.Duration, error)) {
	r.group.Go(func() error {
		took, err := wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		switch {
		case errors.Is(err, errOverdue):
			r.out.Overdue++
		case err != nil:
			return err
		default:
			*into = append(*into, took)
		}
		return nil
	})
}

var errOverdue = errors.New("it took too long")

// found waits until a word is recalled.
func found(ctx context.Context, to *client.Client, word string, since time.Time) (time.Duration, error) {
	return sample(ctx, since, func(ctx context.Context) (bool, error) {
		page, err := to.Recall(ctx, client.RecallRequest{Query: word, Identity: identity, Limit: 1})
		return err == nil && len(page.Results) > 0, err
	})
}

// ended waits until a send is shown as completed.
func ended(ctx context.Context, to *client.Client, id string, since time.Time) (time.Duration, error) {
	return sample(ctx, since, func(ctx context.Context) (bool, error) {
		status, err := to.GetIngestion(ctx, id)
		if err != nil {
			return false, err
		}
		if status.Failure != nil {
			return false, fmt.Errorf("send %s failed: %s: %s", id, status.Failure.Code, status.Failure.Message)
		}
		return status.Status == client.StatusCompleted, nil
	})
}

// sample calls ask until it returns true. A temporary refusal is not an answer.
func sample(ctx context.Context, since time.Time, ask func(context.Context) (bool, error)) (time.Duration, error) {
	for {
		passed := time.Since(since)
		if passed > sampleLimit {
			return passed, errOverdue
		}
		if err := backoff.Pause(ctx, max(sampleFirst, passed/7), nil); err != nil {
			return 0, err
		}
		yes, err := ask(ctx)
		if _, refused := refusedForNow(err); refused {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("sample a send: %w", err)
		}
		if yes {
			return time.Since(since), nil
		}
	}
}

// refusedForNow reports whether an error is a refusal that asks the caller to retry.
func refusedForNow(err error) (*client.APIError, bool) {
	e, is := errors.AsType[*client.APIError](err)
	return e, is && (e.Status == http.StatusServiceUnavailable || e.Status == http.StatusTooManyRequests)
}
