package node

import "sync"

// failure is why the node can write no more, once it cannot.
type failure struct {
	once sync.Once
	done chan struct{}
	err  error // readable once done is closed
}

func newFailure() *failure { return &failure{done: make(chan struct{})} }

// set keeps the first reason.
func (f *failure) set(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.done)
	})
}

func (f *failure) get() error {
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}

// Failed is closed once the node can write no more and will not by itself: the disk failed under it, and what is on
// it is known only after a new start. Appends and deletions are refused from then on, without a definite answer for
// those that were under way; reads go on as far as they can. A disk that is merely full is no failure.
func (n *Node) Failed() <-chan struct{} { return n.store.failure.done }

// Err says why Failed was closed; nil before.
func (n *Node) Err() error { return n.store.failure.get() }
