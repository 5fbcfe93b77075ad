package node

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

type requestKind int

const (
	kindAppend requestKind = iota
	kindDelete
	kindTombstone
)

// request is one write that waits for its group commit.
type request struct {
	kind     requestKind
	stream   string
	expected expectation
	events   []proposed
	answer   chan decision // receives exactly once, after the fsync; capacity 1
}

// writer is the one goroutine that decides and writes. It gathers the requests that came in while the last commit
// was being fsynced, decides them one after the other, and commits them together: that gives the order of the log,
// and one fsync for many appends.
type writer struct {
	db       *pebble.DB
	views    *views
	tail     *tail
	stats    *counters
	now      func() time.Time
	leftover func()                 // called after a commit that left something to remove
	short    func() bool            // whether there is too little space for appends
	stall    func() <-chan struct{} // closed while writes wait for space
	broken   *failure               // why the storage can be written no more

	requests chan *request
	removed  chan struct{} // says that the scavenger removed something: readers are to see a new view
	renewals chan chan error
	stop     chan struct{}
	done     chan struct{}
	failure  error // why the writer ended; readable once done is closed

	// Everything below belongs to the goroutine.
	head       uint64
	group      uint64
	young, old map[string]*streamState
	lately     *lately
	batch      *pebble.Batch
	entries    []entry
	answers    []pendingAnswer
	removals   bool
	full       *bool // whether the disk is short of space, once it was asked for this group
	gathering  gathering
}

type pendingAnswer struct {
	to     *request
	answer decision
}

type counters struct {
	appends, fsyncs, events atomic.Uint64
}

var errClosing = errors.New("the node is closing")

func newWriter(db *pebble.DB, vs *views, t *tail, stats *counters, head uint64, leftover func()) *writer {
	return &writer{
		db: db, views: vs, tail: t, stats: stats, now: time.Now, leftover: leftover,
		short: func() bool { return false }, stall: func() <-chan struct{} { return nil }, broken: newFailure(),
		requests: make(chan *request, queueLength), removed: make(chan struct{}, 1), renewals: make(chan chan error), stop: make(chan struct{}), done: make(chan struct{}),
		head: head, young: map[string]*streamState{}, old: map[string]*streamState{}, lately: newLately(),
	}
}

// renew lets readers see that something was removed; an old view would show it, and keep it on the disk.
func (w *writer) renew() {
	select {
	case w.removed <- struct{}{}:
	default:
	}
}

// renewed returns once readers see a new view, and no reader holds an older one.
func (w *writer) renewed(ctx context.Context) error {
	published := make(chan error, 1)
	select {
	case w.renewals <- published:
	case <-w.done:
		return w.ended()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := <-published; err != nil {
		return err
	}
	return w.views.drain(ctx)
}

// do hands a request to the writer and waits for its answer. A context that ends first leaves the outcome open.
func (w *writer) do(ctx context.Context, r *request) (decision, error) {
	if err := w.submit(ctx, r); err != nil {
		return decision{}, err
	}
	return w.await(ctx, r)
}

// submit hands a request to the writer. Requests that one goroutine submits are decided in their order.
func (w *writer) submit(ctx context.Context, r *request) error {
	r.answer = make(chan decision, 1)
	select {
	case w.requests <- r:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-w.done:
		return w.ended()
	case <-w.stall():
		return errStalled()
	}
}

// await waits for the answer to a request that was submitted. A context that ends first leaves the outcome open.
func (w *writer) await(ctx context.Context, r *request) (decision, error) {
	ended := w.ended
	select {
	case d := <-r.answer:
		return d, d.failure
	case <-ctx.Done():
		ended = ctx.Err
	case <-w.stall():
		ended = errStalled
	case <-w.done:
	}
	select { // an answer that came at the same time counts
	case d := <-r.answer:
		return d, d.failure
	default:
		return decision{}, ended()
	}
}

func (w *writer) ended() error {
	if w.failure != nil {
		return w.failure
	}
	if err := w.broken.get(); err != nil {
		return err
	}
	return errClosing
}

// run writes until close. An error of the storage ends it, since what is in memory then no longer stands for what is on disk.
func (w *writer) run() {
	defer close(w.done)
	defer func() {
		if w.failure != nil {
			w.broken.set(w.failure)
		}
	}()
	var carried *request
	for {
		first := carried
		carried = nil
		if first == nil {
			select {
			case first = <-w.requests:
			case <-w.removed:
				if w.failure = w.views.publish(w.head); w.failure != nil {
					return
				}
				continue
			case published := <-w.renewals:
				w.failure = w.views.publish(w.head)
				if published <- w.failure; w.failure != nil {
					return
				}
				continue
			case <-w.stop:
				w.failure = w.drain()
				return
			}
		}
		var err error
		if carried, err = w.commit(first); err != nil {
			w.failure = err
			return
		}
	}
}

// drain writes what had been queued before close.
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

// close ends the writer after what is queued.
func (w *writer) close() error {
	close(w.stop)
	<-w.done
	return w.failure
}

// commit decides a request and those that wait behind it, writes them with one fsync, and answers them. A request that
// must be decided after this commit is handed back.
func (w *writer) commit(first *request) (carried *request, err error) {
	begun := time.Now()
	w.group++
	w.batch = w.db.NewBatch()
	w.entries, w.answers, w.removals, w.full = nil, w.answers[:0], false, nil
	for next, more := first, true; more; {
		d, err := w.decide(next)
		if err != nil {
			return nil, errors.Join(err, w.batch.Close())
		}
		if d.verdict == notYet {
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
	w.gathering.done(len(w.answers), len(w.requests), time.Since(written))
	for i, a := range w.answers {
		a.to.answer <- a.answer
		w.answers[i] = pendingAnswer{}
	}
	if w.removals {
		w.leftover()
	}
	if len(w.young) >= statesKept {
		w.young, w.old = map[string]*streamState{}, w.young
	}
	return carried, nil
}

// flush commits the group, shows it to readers, and wakes subscribers.
func (w *writer) flush() error {
	if !w.batch.Empty() {
		if err := w.commitBatch(); err != nil {
			return fmt.Errorf("write the log: %w", err)
		}
		w.stats.fsyncs.Add(1)
		w.stats.events.Add(uint64(len(w.entries)))
		if err := w.views.publish(w.head); err != nil {
			return fmt.Errorf("show what was written: %w", err)
		}
		w.tail.push(w.entries)
	}
	if err := w.batch.Close(); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	return nil
}

// commitBatch commits the group in a goroutine that a failure of the storage may end or stop, so that the writer outlives it.
func (w *writer) commitBatch() error {
	done := make(chan error, 1)
	go func() { done <- w.batch.Commit(pebble.Sync) }()
	select {
	case err := <-done:
		return err
	case <-w.broken.done:
		runtime.Goexit() // the reason is kept there; run's deferred calls end the writer
		return nil
	}
}
