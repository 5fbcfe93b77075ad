package allowance_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/allowance"
)

// silent reserves n of an organization, and waits for a silent peer until the hold is revoked.
func silent(t *testing.T, a *allowance.Allowance, o allowance.Owner, n int64) (revoked chan struct{}) {
	t.Helper()
	revoked = make(chan struct{})
	h := a.Open(o)
	reserve(t, h, n)
	h.Await(func() { close(revoked) })
	go func() {
		select {
		case <-revoked:
			if h.Moved(0) {
				t.Error("a revoked hold goes on")
			}
		case <-t.Context().Done():
		}
		h.Release()
	}()
	return revoked
}

// Four organizations that fill the total and whose peers are silent keep nobody out.
func TestAwait_SilentHoldsGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := of(100, 25)
		for range 4 {
			organization := alone()
			for range 5 {
				silent(t, a, organization, 5)
			}
		}
		for _, n := range []int64{1, 10, 25} {
			h := a.Open(alone())
			reserve(t, h, n)
			h.Release()
		}
		if left := a.InUse(); left < 100-5-10-15-25 {
			t.Errorf("%d are left of what is silent: more was taken than was needed", left)
		}
	})
}

func TestAwait_RevokesNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := of(100, 50)
		// An organization has its share alone, silent or not.
		own := alone()
		first := silent(t, a, own, 50)
		if err := a.Open(own).Reserve(t.Context(), 1); !isRefusal(err) {
			t.Errorf("beyond the own share: %v", err)
		}
		// Who holds less is not revoked for who holds more.
		small, large := silent(t, a, alone(), 10), a.Open(alone())
		reserve(t, large, 40)
		if err := large.Reserve(t.Context(), 5); err != nil {
			t.Errorf("%v", err)
		}
		select {
		case <-small:
			t.Error("the smallest was revoked")
		case <-first:
		default:
			t.Error("the largest was not revoked")
		}
	})
}

// A peer that moves, and a hold at work, are waited for.
func TestAwait_MovingPeersStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := of(100, 100)
		moving := a.Open(alone())
		reserve(t, moving, 100)
		done := make(chan bool)
		go func() {
			moves := true
			for range 100 {
				moving.Await(func() { moves = false })
				<-time.After(100 * time.Millisecond)
				moves = moving.Moved(allowance.IdleStep) && moves
			}
			done <- moves
		}()
		if err := a.Open(allowance.Owner{Organization: uuid.New()}).Reserve(t.Context(), 1); !isRefusal(err) {
			t.Errorf("%v", err)
		}
		if !<-done {
			t.Error("a peer that moves was revoked")
		}
		if err := a.Open(alone()).Reserve(t.Context(), 1); !isRefusal(err) {
			t.Errorf("next to a hold at work: %v", err)
		}
		moving.Release()
	})
}
