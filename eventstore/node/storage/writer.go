package storage

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// The bounds of one group commit, and of the stream states that the writer keeps in memory.
const (
	groupRequests = 1024
	groupBytes    = 4 << 20
	queueLength   = 1024
	statesKept    = 1 << 15
)

// Kind is the kind of a write.
type Kind int

// The kinds of writes.
const (
	KindAppend Kind = iota
	KindDelete
	KindTombstone
)

// Request is one write. It is used for one call of Submit or Do.
type Request struct {
	Kind     Kind
	Stream   string
	Expected Expectation
	Events   []Proposed
	answer   chan Decision // receives exactly once, after the fsync; capacity 1
}

// Poll returns the decision of a write that was submitted, if there is one already. A caller that
// got it must not call Await.
func (r *Request) Poll() (d Decision, decided bool, err error) {
	select {
	case d = <-r.answer:
		return d, true, d.failure
	default:
		return Decision{}, false, nil
	}
}

// writer is the goroutine that decides and writes. It collects the requests that arrive during the
// fsync of the last commit, decides them one after the other, and commits them together: that is
// the order of the log, and one fsync for many appends.
type writer struct {
	store         *store
	views         *views
	tail          *tail
	stats         *counters
	now           func() time.Time
	onRemovals    func()                 // called after a commit with something to remove
	short         func() bool            // reports whether there is too little space for appends
	stall         func() <-chan struct{} // closed while writes wait for space
	engineFailure *failure               // why the storage can no longer be written

	requests    chan *Request
	republishes chan struct{} // signalled when the scavenger removed something: publish a new view
	drains      chan chan error
	stop        chan struct{}
	done        chan struct{}
	err         error // why the writer ended; readable once done is closed

	// The fields below belong to the goroutine.
	head       uint64
	group      uint64
	young, old map[string]*streamState
	recent     *recentIDs
	batch      *pebble.Batch
	entries    []Entry
	answers    []pendingAnswer
	removals   bool
	diskShort  *bool // whether the disk is short of space; nil until checked for this group
	delay      commitDelay
}

type pendingAnswer struct {
	to     *Request
	answer Decision
}

type counters struct {
	appends, fsyncs, events atomic.Uint64
}

// The errors of calls besides those of the storage.
var (
	// ErrClosing ends the calls of an engine that closes.
	ErrClosing = errors.New("the event store is closing")
	// ErrFull refuses an append because the disk is full: nothing was written.
	ErrFull = errors.New("the disk of the event store is full: nothing was written")
	// ErrStalled ends the wait for a write: the disk is full or no file descriptor is left. The
	// write may still happen later.
	ErrStalled = errors.New("the write waits for space on the disk or for a file descriptor")
)

func newWriter(st *store, vs *views, t *tail, stats *counters, head uint64, leftover func()) *writer {
	return &writer{
		store: st, views: vs, tail: t, stats: stats, now: time.Now, onRemovals: leftover,
		short: func() bool { return false }, stall: func() <-chan struct{} { return nil }, engineFailure: newFailure(),
		requests: make(chan *Request, queueLength), republishes: make(chan struct{}, 1), drains: make(chan chan error),
		stop: make(chan struct{}), done: make(chan struct{}),
		head: head, young: map[string]*streamState{}, old: map[string]*streamState{}, recent: newRecentIDs(recentEntries),
	}
}

// republish shows readers that something was removed. An old view would still show it, and keep it
// on the disk.
func (w *writer) republish() {
	select {
	case w.republishes <- struct{}{}:
	default:
	}
}

// republishAndDrain publishes a new view and returns once no reader holds an older one.
func (w *writer) republishAndDrain(ctx context.Context) error {
	published := make(chan error, 1)
	select {
	case w.drains <- published:
	case <-w.done:
		return w.ended()
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-published:
		if err != nil {
			return err
		}
	case <-w.done: // it may have answered as its last deed
		select {
		case err := <-published:
			if err != nil {
				return err
			}
		default:
			return w.ended()
		}
	}
	return w.views.drain(ctx)
}

// do submits a request and waits for its decision. If the context ends first, the outcome is
// unknown.
func (w *writer) do(ctx context.Context, r *Request) (Decision, error) {
	if err := w.submit(ctx, r); err != nil {
		return Decision{}, err
	}
	return w.await(ctx, r)
}

// submit queues a request. Requests that one goroutine submits are decided in their order.
func (w *writer) submit(ctx context.Context, r *Request) error {
	r.answer = make(chan Decision, 1)
	select {
	case w.requests <- r:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-w.done:
		return w.ended()
	case <-w.stall():
		return ErrStalled
	}
}

// await waits for the decision of a submitted request. If the context ends first, the outcome is
// unknown.
func (w *writer) await(ctx context.Context, r *Request) (Decision, error) {
	ended := w.ended
	select {
	case d := <-r.answer:
		return d, d.failure
	case <-ctx.Done():
		ended = ctx.Err
	case <-w.stall():
		ended = func() error { return ErrStalled }
	case <-w.done:
	}
	select { // a decision that arrived at the same time counts
	case d := <-r.answer:
		return d, d.failure
	default:
		return Decision{}, ended()
	}
}

func (w *writer) ended() error {
	if w.err != nil {
		return w.err
	}
	if err := w.engineFailure.get(); err != nil {
		return err
	}
	return ErrClosing
}

// run writes until close. An error of the storage or a panic ends it, since the memory then differs
// from the disk.
func (w *writer) run() {
	defer close(w.done)
	defer func() {
		if w.err != nil {
			w.engineFailure.set(w.err)
		}
	}()
	defer w.engineFailure.recoverPanic("the writer")
	var carried *Request
	for {
		first := carried
		carried = nil
		if first == nil {
			select {
			case first = <-w.requests:
			case <-w.republishes:
				if w.err = w.views.publish(w.head); w.err != nil {
					return
				}
				continue
			case published := <-w.drains:
				w.err = w.views.publish(w.head)
				if published <- w.err; w.err != nil {
					return
				}
				continue
			case <-w.stop:
				w.err = w.drain()
				return
			case <-w.engineFailure.done:
				return
			}
		}
		var err error
		if carried, err = w.commit(first); err != nil {
			w.err = err
			return
		}
	}
}

// drain writes what was queued before close.
func (w *writer) drain() error {
	for {
		select {
		case r := <-w.requests:
			for r != nil {
				var err error
				if r, err = w.commit(r); err != nil {
					return err
				}
			}
		default:
			return nil
		}
	}
}

// close stops the writer after the queued requests.
func (w *writer) close() error {
	close(w.stop)
	<-w.done
	return w.err
}

// commit decides a request and those queued after it, writes them with one fsync, and answers them.
// It returns a request that must be decided after this commit.
func (w *writer) commit(first *Request) (carried *Request, err error) {
	begun := time.Now()
	w.group++
	w.batch = w.store.db.NewBatch()
	w.entries, w.answers, w.removals, w.diskShort = nil, w.answers[:0], false, nil
	for next, more := first, true; more; {
		d, err := w.decide(next)
		if err != nil {
			return nil, errors.Join(err, w.batch.Close())
		}
		if d.Verdict == notYet {
			carried = next
			break
		}
		w.answers = append(w.answers, pendingAnswer{to: next, answer: d})
		if len(w.answers) >= groupRequests || w.batch.Len() >= groupBytes {
			break
		}
		next = w.next(begun)
		more = next != nil
	}
	written := time.Now()
	if err := w.flush(); err != nil {
		return nil, err
	}
	w.delay.record(len(w.answers), len(w.requests), time.Since(written))
	for i, a := range w.answers {
		a.to.answer <- a.answer
		w.answers[i] = pendingAnswer{}
	}
	if w.removals {
		w.onRemovals()
	}
	if len(w.young) >= statesKept {
		w.young, w.old = map[string]*streamState{}, w.young
	}
	return carried, nil
}

// flush commits the group, publishes it to readers, and wakes subscribers.
func (w *writer) flush() error {
	if !w.batch.Empty() {
		if err := w.commitBatch(); err != nil {
			return fmt.Errorf("write the log: %w", err)
		}
		w.stats.fsyncs.Add(1)
		w.stats.events.Add(uint64(len(w.entries)))
		if err := w.views.publish(w.head); err != nil {
			return fmt.Errorf("publish a view: %w", err)
		}
		w.tail.push(w.entries)
	}
	if err := w.batch.Close(); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	return nil
}

// commitBatch commits the group in a separate goroutine, which a failure of the storage may end or
// block, so that the writer survives.
func (w *writer) commitBatch() error {
	if w.engineFailure.get() != nil {
		runtime.Goexit()
	}
	done := make(chan error, 1)
	go func() {
		defer w.engineFailure.recoverPanic("a commit")
		done <- w.store.disk.space.commit(func() error { return w.store.write(w.batch) })
	}()
	select {
	case err := <-done:
		return err
	case <-w.engineFailure.done:
		runtime.Goexit() // the reason is kept there; run's deferred calls end the writer
		return nil
	}
}

// The bounds of commitDelay.
const (
	maxCommitDelay = time.Millisecond
	// smoothing is the weight of the newest group in the expected size of the next.
	smoothing = 0.25
	// minGroup is the expected number of concurrent requests from which on a commit waits for more.
	minGroup = 2
)

// commitDelay decides how long a commit waits for more requests. An fsync costs the processors
// about as much as an append, so with several concurrent callers it pays to wait for those on their
// way. A single caller never waits.
type commitDelay struct {
	// concurrency is the smoothed number of concurrent requests: those of a group, and those queued
	// when it was committed.
	concurrency float64
	// fsync is how long the last commit took.
	fsync time.Duration
	timer *time.Timer
}

// wait returns how much longer a group of a size waits for the next request.
func (g *commitDelay) wait(size int, since time.Duration) time.Duration {
	if g.concurrency < minGroup || float64(size) >= g.concurrency {
		return 0
	}
	return min(g.fsync, maxCommitDelay) - since
}

// record updates the expectation after a commit of size requests, while queued more have arrived.
func (g *commitDelay) record(size, queued int, took time.Duration) {
	g.concurrency += smoothing * (float64(size+queued) - g.concurrency)
	g.fsync = took
}

// next returns the next request of the group that began at a time, nil if the group is complete.
func (w *writer) next(began time.Time) *Request {
	select {
	case r := <-w.requests:
		return r
	default:
	}
	d := w.delay.wait(len(w.answers), time.Since(began))
	if d <= 0 {
		return nil
	}
	if w.delay.timer == nil {
		w.delay.timer = time.NewTimer(d)
	} else {
		w.delay.timer.Reset(d)
	}
	defer w.delay.timer.Stop()
	select {
	case r := <-w.requests:
		return r
	case <-w.delay.timer.C:
		return nil
	case <-w.stop:
		return nil
	}
}
