package esdb

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var errCommitTimeout = status.Error(codes.Aborted, "Operation timed out: Commit phase timeout.")

// An append that times out is made again with growing pauses, for 30 s in all.
func TestRepeat_Limit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made []time.Time
		_, err := repeat(t.Context(), nil, func(context.Context) (int, error) {
			made = append(made, time.Now())
			return 0, errCommitTimeout
		})
		if !errors.Is(err, errCommitTimeout) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(made[0]); took != repeatLimit {
			t.Errorf("it gave up after %s", took)
		}
		for i := 1; i < len(made); i++ {
			pause, longest := made[i].Sub(made[i-1]), min(firstRepeatPause<<(i-1), longestRepeatPause)
			if pause > longest || pause < longest/2 {
				t.Errorf("pause %d was %s, want up to %s", i, pause, longest)
			}
		}
		if len(made) < 15 {
			t.Errorf("it was made %d times", len(made))
		}
	})
}

// A try that hangs ends with the limit, and the outcome stays unknown.
func TestRepeat_LastTryHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, tries := time.Now(), 0
		_, err := repeat(t.Context(), nil, func(ctx context.Context) (int, error) {
			if tries++; tries == 1 {
				return 0, errCommitTimeout
			}
			<-ctx.Done()
			return 0, context.Cause(ctx)
		})
		if classify(err) != unclear || time.Since(began) != repeatLimit || tries != 2 {
			t.Errorf("%d tries in %s: %v", tries, time.Since(began), err)
		}
	})
}

// The first try has all the time of its caller.
func TestRepeat_FirstTryIsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		value, err := repeat(t.Context(), nil, func(ctx context.Context) (int, error) {
			<-time.After(2 * repeatLimit)
			return 7, ctx.Err()
		})
		if value != 7 || err != nil {
			t.Errorf("%d, %v", value, err)
		}
	})
}

// A pause ends at once with the context of the caller and with the store.
func TestRepeat_PauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		closed := make(chan struct{})
		for name, end := range map[string]func(){"context": cancel, "store": func() { close(closed) }} {
			var tries []time.Time
			own, stop := ctx, closed
			if name == "store" {
				own = t.Context()
			} else {
				stop = nil
			}
			ended := make(chan error)
			go func() {
				_, err := repeat(own, stop, func(context.Context) (int, error) {
					tries = append(tries, time.Now())
					return 0, errCommitTimeout
				})
				ended <- err
			}()
			synctest.Wait() // the first pause
			end()
			if err := <-ended; !errors.Is(err, errCommitTimeout) {
				t.Errorf("%s: %v", name, err)
			}
			if len(tries) != 1 || time.Since(tries[0]) != 0 {
				t.Errorf("%s: %d tries in %s", name, len(tries), time.Since(tries[0]))
			}
		}
	})
}

// What follows a try with an unknown outcome is definite only if it depends on what is stored.
func TestRepeat_LaterAnswers(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want errorKind
	}{
		{"success", nil, none},
		{"a conflict", status.Error(codes.FailedPrecondition, "WrongExpectedVersion"), wrongRevision},
		{"a deleted stream", status.Error(codes.FailedPrecondition, "Event stream 'a-1' is deleted."), deleted},
		{"a full disk", status.Error(codes.ResourceExhausted, "The disk of the event store is full: nothing was written."), unclear},
		{"access denied", status.Error(codes.PermissionDenied, "Access Denied"), unclear},
		{"a closed store", errClosed, unclear},
		{"an unreachable server", status.Error(codes.Unavailable, "Server Is Not Ready"), unreachable},
		{"no server", errNotConnected, noServer},
		{"something else", status.Error(codes.Internal, "oops"), unclear},
	} {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			_, err := repeat(t.Context(), nil, func(context.Context) (int, error) {
				if tries++; tries == 1 {
					return 0, errTimedOut
				}
				return 0, c.err
			})
			if got := classify(err); got != c.want || tries != 2 || !errors.Is(err, c.err) {
				t.Errorf("%s: %v (%d, want %d) after %d tries", c.name, err, got, c.want, tries)
			}
		})
	}
}
