package allowance_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/allowance"
)

func of(total, share int64) *allowance.Allowance {
	return allowance.New(allowance.Config{Total: total, Share: share, Wait: 5 * time.Second, Waiters: 8, Refusal: "full"})
}

// alone is an organization with one project.
func alone() allowance.Owner { return allowance.Owner{Organization: uuid.New(), Project: uuid.New()} }

func isRefusal(err error) bool {
	f, ok := errors.AsType[*fault.Error](err)
	return ok && f.Kind == fault.Unavailable && f.Code == fault.CodeServiceUnavailable && f.Msg == "full"
}

func reserve(t *testing.T, h *allowance.Hold, n int64) {
	t.Helper()
	if err := h.Reserve(t.Context(), n); err != nil {
		t.Fatalf("reserve %d: %v", n, err)
	}
}

func TestReserve_ShareOfOneOrganization(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := of(100, 25)
		one, other := uuid.New(), uuid.New()
		first, second := a.Open(allowance.Owner{Organization: one}), a.Open(allowance.Owner{Organization: one})
		neighbour := a.Open(allowance.Owner{Organization: other})
		reserve(t, first, 20)
		reserve(t, second, 5)
		began := time.Now()
		if err := second.Reserve(t.Context(), 1); !isRefusal(err) || time.Since(began) != 5*time.Second {
			t.Errorf("a byte over the share: %v after %s", err, time.Since(began))
		}
		reserve(t, neighbour, 25)
		first.Return(1)
		reserve(t, second, 1)
		if a.InUse() != 50 || first.Held() != 19 || second.Held() != 6 {
			t.Errorf("in use %d, held %d and %d", a.InUse(), first.Held(), second.Held())
		}
		for range 2 {
			first.Release()
			second.Release()
			neighbour.Release()
		}
		if a.InUse() != 0 {
			t.Errorf("in use %d after all is released", a.InUse())
		}
	})
}

func TestReserve_Total(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := of(30, 25)
		first, second, third := a.Open(alone()), a.Open(alone()), a.Open(alone())
		reserve(t, first, 20)
		reserve(t, second, 10)
		served := make(chan int64, 2)
		go func() {
			if err := second.Reserve(t.Context(), 15); err == nil {
				served <- 15
			}
		}()
		synctest.Wait()
		go func() {
			if err := third.Reserve(t.Context(), 1); err == nil {
				served <- 1
			}
		}()
		synctest.Wait()
		first.Return(5)
		synctest.Wait()
		if len(served) != 0 {
			t.Error("a small reservation was served before a big one that waits for the same room")
		}
		first.Release()
		if n := <-served + <-served; n != 16 || a.InUse() != 26 {
			t.Errorf("served %d, in use %d", n, a.InUse())
		}
	})
}

func TestReserve_MoreThanTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := of(100, 25)
		org := uuid.New()
		small, huge := a.Open(allowance.Owner{Organization: org}), a.Open(allowance.Owner{Organization: org})
		reserve(t, small, 1)
		if err := huge.Reserve(t.Context(), 1000); !isRefusal(err) {
			t.Errorf("more than the share next to another: %v", err)
		}
		small.Release()
		reserve(t, huge, 1000)
		reserve(t, huge, 1000)
		if huge.Held() != 25 {
			t.Errorf("holds %d, want the share", huge.Held())
		}
	})
}

func TestReserve_TooManyWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := of(100, 25)
		org := uuid.New()
		full := a.Open(allowance.Owner{Organization: org})
		reserve(t, full, 25)
		errs := make(chan error)
		for range 2 { // a quarter of the waiters
			go func() { errs <- a.Open(allowance.Owner{Organization: org}).Reserve(t.Context(), 1) }()
		}
		synctest.Wait()
		began := time.Now()
		err := a.Open(allowance.Owner{Organization: org}).Reserve(t.Context(), 1)
		if !isRefusal(err) || time.Since(began) != 0 {
			t.Errorf("one waiter too many: %v after %s", err, time.Since(began))
		}
		reserve(t, a.Open(alone()), 25)
		full.Release()
		if err := errors.Join(<-errs, <-errs); err != nil {
			t.Error(err)
		}
	})
}

func TestReserve_EndOfContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := of(10, 10)
		full := a.Open(alone())
		reserve(t, full, 10)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := a.Open(alone()).Reserve(ctx, 10); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		short, cancelShort := context.WithTimeout(t.Context(), time.Second)
		defer cancelShort()
		if err := a.Open(alone()).Reserve(short, 1); !isRefusal(err) {
			t.Errorf("got %v", err)
		}
		full.Release()
		reserve(t, a.Open(alone()), 10)
	})
}

func TestReserve_OfContext(t *testing.T) {
	if err := allowance.Reserve(t.Context(), 1<<40); err != nil {
		t.Errorf("a context without a hold: %v", err)
	}
	a := of(100, 25)
	h := a.Open(alone())
	ctx := allowance.NewContext(t.Context(), h)
	if err := allowance.Reserve(ctx, 7); err != nil || h.Held() != 7 {
		t.Errorf("held %d, %v", h.Held(), err)
	}
	allowance.FromContext(ctx).Return(3)
	if a.InUse() != 4 {
		t.Errorf("in use %d", a.InUse())
	}
	var none *allowance.Hold
	none.Release()
}

// Any number of requests that reserve in steps end, and leave no reservation.
func TestReserve_ManyInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := allowance.New(allowance.Config{Total: 100, Share: 25, Wait: 5 * time.Second, Waiters: 64, Refusal: "full"})
		orgs := []uuid.UUID{uuid.New(), uuid.New(), uuid.New(), uuid.New(), uuid.New(), uuid.New()}
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				h := a.Open(allowance.Owner{Organization: orgs[i%len(orgs)]})
				defer h.Release()
				for range 1 + rand.IntN(4) {
					if err := h.Reserve(t.Context(), 1+rand.Int64N(15)); err != nil {
						return
					}
					if a.InUse() > 100 || h.Held() > 25 {
						t.Errorf("in use %d, held %d", a.InUse(), h.Held())
					}
				}
			})
		}
		all.Wait()
		if a.InUse() != 0 {
			t.Errorf("in use %d", a.InUse())
		}
		reserve(t, a.Open(allowance.Owner{Organization: orgs[0]}), 25)
	})
}
