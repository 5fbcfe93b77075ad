package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/runtest"
)

const (
	// chaosGroup is how many texts have a word in common, so that one recall finds them all.
	chaosGroup = 50
	// chaosCallers is how many calls of a kind are open at once, at most. Those that wait for a frozen
	// process are as many as another one of its role has open.
	chaosCallers = 64
	// chaosLate is by how much a call may be made late.
	chaosLate = 100 * time.Millisecond
)

// chaosText is one text of the load.
type chaosText struct {
	// ingestion is the send, once it is acknowledged; deleting is set before a deletion is asked for,
	// deleted once it is acknowledged.
	ingestion         string
	deleting, deleted bool
}

// chaosLoad sends, recalls and deletes, and remembers what was acknowledged.
type chaosLoad struct {
	seed             uint64
	t                *testing.T
	d                *chaosDeployment
	writers, readers *chaosPool
	sends, recalls   atomic.Int64
	tries            [3]atomic.Int64 // that were not answered, by kind of call
	// heldUp counts the calls that waited because all callers were in a call: the service was the limit.
	// late counts those that the generator itself made late, while it did not make up for others.
	heldUp [3]atomic.Int64
	late   atomic.Int64
	// kept are sends and recalls that were answered by the end of the load.
	kept [2]int64

	mu    sync.Mutex
	texts []chaosText
	last  string // the newest acknowledged send
}

// The kinds of calls.
const (
	sendCalls = iota
	recallCalls
	deleteCalls
)

func newChaosLoad(t *testing.T, d *chaosDeployment, seed uint64) *chaosLoad {
	t.Helper()
	return &chaosLoad{
		t: t, d: d, seed: seed,
		writers: newChaosPool(d.clients(d.writers)), readers: newChaosPool(d.clients(d.readers)),
	}
}

func chaosWord(n int) string  { return fmt.Sprintf("word%07dx0", n) }
func chaosTopic(g int) string { return fmt.Sprintf("topic%06dx0", g) }

// run starts the load; it ends with the context.
func (l *chaosLoad) run(ctx context.Context, load *sync.WaitGroup) {
	l.paced(ctx, load, chaosSends, &l.heldUp[sendCalls], l.send)
	l.paced(ctx, load, chaosRecalls, &l.heldUp[recallCalls], l.recall)
	l.paced(ctx, load, chaosDeletes, &l.heldUp[deleteCalls], l.remove)
}

// paced makes calls at a rate until the context ends, with a bound on those that are open. Calls that
// were held up are made up for, and one that has begun is made to its end.
func (l *chaosLoad) paced(
	ctx context.Context, load *sync.WaitGroup, perSecond int, heldUp *atomic.Int64,
	call func(ctx context.Context, rng *rand.Rand),
) {
	due := make(chan struct{})
	for n := range chaosCallers {
		load.Go(func() {
			rng := rand.New(rand.NewPCG(l.seed, uint64(perSecond)<<32|uint64(n)))
			for range due {
				call(l.t.Context(), rng)
			}
		})
	}
	load.Go(func() {
		defer close(due)
		began, behind := time.Now(), false
		for n := 0; !l.t.Failed(); n++ {
			wait := time.Until(began.Add(time.Duration(n) * time.Second / time.Duration(perSecond)))
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
			behind = behind && wait < 0
			select {
			case due <- struct{}{}:
				if wait < -chaosLate && !behind {
					l.late.Add(1)
				}
				continue
			default:
				heldUp.Add(1)
				behind = true
			}
			select {
			case due <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	})
}

// send ingests the next text, with an idempotency key: a try that got no answer is repeated.
func (l *chaosLoad) send(ctx context.Context, _ *rand.Rand) {
	l.mu.Lock()
	n := len(l.texts)
	l.texts = append(l.texts, chaosText{})
	l.mu.Unlock()
	point := client.DataPoint{
		ID:      fmt.Sprint("text-", n),
		Content: fmt.Sprintf("Note on %s: %s prefers green tea.", chaosTopic(n/chaosGroup), chaosWord(n)),

		IdempotencyKey: fmt.Sprint("key-", n),
	}
	receipt, tries, err := untilAnswered(ctx, l.writers,
		func(ctx context.Context, c *client.Client) (*client.Receipt, error) {
			return c.Ingest(ctx, point)
		})
	l.tries[sendCalls].Add(int64(tries))
	if err != nil {
		l.d.errorf("send %d: %v", n, err)
		return
	}
	l.sends.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.texts[n].ingestion, l.last = receipt.IngestionID, receipt.IngestionID
}

// remove deletes a text that was acknowledged.
func (l *chaosLoad) remove(ctx context.Context, rng *rand.Rand) {
	n, ok := l.drawLive(rng)
	if !ok {
		return
	}
	id := fmt.Sprint("text-", n)
	_, tries, err := untilAnswered(ctx, l.writers,
		func(ctx context.Context, c *client.Client) (*client.DeletionReceipt, error) {
			return c.DeleteDataPoints(ctx, []string{id})
		})
	l.tries[deleteCalls].Add(int64(tries))
	refused, ok := errors.AsType[*client.APIError](err)
	if ok && refused.Status == http.StatusNotFound && tries > 0 {
		err = nil // a try before this one deleted it
	}
	if err != nil {
		l.d.errorf("delete %s: %v", id, err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.texts[n].deleted = true
}

// drawLive draws a text that is acknowledged and not being deleted, and marks it.
func (l *chaosLoad) drawLive(rng *rand.Rand) (n int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.texts) == 0 {
		return 0, false
	}
	n = rng.IntN(len(l.texts))
	if text := &l.texts[n]; text.ingestion != "" && !text.deleting {
		text.deleting = true
		return n, true
	}
	return 0, false
}

// recall asks for a topic and looks for texts whose deletion was acknowledged before.
func (l *chaosLoad) recall(ctx context.Context, rng *rand.Rand) {
	l.mu.Lock()
	groups := (len(l.texts) + chaosGroup - 1) / chaosGroup
	l.mu.Unlock()
	if groups == 0 {
		return
	}
	group := rng.IntN(groups)
	if _, err := l.found(ctx, group); err != nil {
		l.d.errorf("recall of group %d: %v", group, err)
		return
	}
	l.recalls.Add(1)
}

// found returns which texts of a group a recall shows. It fails the test if one was deleted before.
func (l *chaosLoad) found(ctx context.Context, group int) (map[int]bool, error) {
	gone := l.deleted(group)
	page, tries, err := untilAnswered(ctx, l.readers,
		func(ctx context.Context, c *client.Client) (*client.RecallResponse, error) {
			return c.Recall(ctx,
				client.RecallRequest{Query: chaosTopic(group), Identity: "ana", Limit: 200, Level: "extra-high"})
		})
	l.tries[recallCalls].Add(int64(tries))
	if err != nil {
		return nil, err
	}
	words := map[string]int{}
	for n := group * chaosGroup; n < (group+1)*chaosGroup; n++ {
		words[chaosWord(n)] = n
	}
	shown := map[int]bool{}
	for _, result := range page.Results {
		evidence := result.Content
		for _, source := range result.Sources {
			evidence += " " + strings.Join(source.Excerpts, " ")
		}
		for _, word := range strings.FieldsFunc(evidence, isChaosSeparator) {
			n, is := words[word]
			if !is {
				continue
			}
			shown[n] = true
			if gone[n] {
				l.d.errorf("text %d was deleted, and a recall shows it: %+v", n, result)
			}
		}
	}
	return shown, nil
}

// isChaosSeparator reports whether a rune is between words.
func isChaosSeparator(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }

// deleted returns the texts of a group whose deletion is acknowledged.
func (l *chaosLoad) deleted(group int) map[int]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	gone := map[int]bool{}
	for n := group * chaosGroup; n < min((group+1)*chaosGroup, len(l.texts)); n++ {
		if l.texts[n].deleted {
			gone[n] = true
		}
	}
	return gone
}

// settle waits until everything that was acknowledged is derived and searchable.
func (l *chaosLoad) settle() {
	l.t.Helper()
	runtest.Await(l.t, "the project is settled", func() bool {
		status, err := l.readers.targets[0].client.GetIngestion(l.t.Context(), l.last)
		return err == nil && status.Settled
	})
}

// check recalls every group: each acknowledged text is shown unless its deletion was asked for.
func (l *chaosLoad) check(when string) {
	l.t.Helper()
	for group := 0; group*chaosGroup < len(l.texts); group++ {
		shown, err := l.found(l.t.Context(), group)
		if err != nil {
			l.t.Fatalf("%s: recall of group %d: %v", when, group, err)
		}
		for n := group * chaosGroup; n < min((group+1)*chaosGroup, len(l.texts)); n++ {
			if text := l.texts[n]; text.ingestion != "" && !text.deleting && !shown[n] {
				l.d.errorf("%s: text %d of send %s is not recalled", when, n, text.ingestion)
			}
		}
	}
}

// keepRates ends the time in which answers count for the rates.
func (l *chaosLoad) keepRates() {
	l.kept = [2]int64{l.sends.Load(), l.recalls.Load()}
}

// wantRecalls fails the test if the service refused recall as long as the load lasted.
func (l *chaosLoad) wantRecalls(lasts time.Duration) {
	l.t.Helper()
	if l.kept[recallCalls] < chaosCallers {
		l.d.errorf("under load %d recalls were answered, fewer than one for each caller: %s",
			l.kept[recallCalls], l.rates(lasts))
	}
}

// rates describes what was reached.
func (l *chaosLoad) rates(lasts time.Duration) string {
	deleted := 0
	for _, text := range l.texts {
		if text.deleted {
			deleted++
		}
	}
	return fmt.Sprintf("%.0f of %d sends/s and %.0f of %d recalls/s accepted, %d deletions; tries without an answer: "+
		"%d of sends, %d of recalls, %d of deletions, at those that write %v, at those that read %v; "+
		"calls that were due and waited: %d sends, %d recalls; "+
		"the generator was late %d times",
		float64(l.kept[0])/lasts.Seconds(), chaosSends, float64(l.kept[1])/lasts.Seconds(), chaosRecalls, deleted,
		l.tries[sendCalls].Load(), l.tries[recallCalls].Load(), l.tries[deleteCalls].Load(),
		l.writers.unanswered, l.readers.unanswered,
		l.heldUp[sendCalls].Load(), l.heldUp[recallCalls].Load(), l.late.Load())
}

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
