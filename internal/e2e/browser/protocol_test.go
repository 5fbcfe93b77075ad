package browser

import (
	"context"
	"sync"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
)

// call makes a call of the browser's protocol whose result does not matter.
func call[P, R any](ctx context.Context, command cdp.Command[P, R], params P) error {
	_, err := chromedp.Call(ctx, command, params)
	return err
}

// evaluate returns the value of an expression in the page, and waits if it is a promise.
func evaluate[T any](ctx context.Context, expression string) (T, error) {
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// faults is what pages complain of, in order.
type faults struct {
	sync.Mutex
	list []string
}

func (f *faults) add(fault string) {
	f.Lock()
	defer f.Unlock()
	f.list = append(f.list, fault)
}

// take returns what was added since the last call.
func (f *faults) take() []string {
	f.Lock()
	defer f.Unlock()
	list := f.list
	f.list = nil
	return list
}

// statuses holds the status of the last document.
type statuses struct {
	sync.Mutex
	last int64
}

func (s *statuses) set(status int64) {
	s.Lock()
	defer s.Unlock()
	s.last = status
}

func (s *statuses) get() int64 {
	s.Lock()
	defer s.Unlock()
	return s.last
}
