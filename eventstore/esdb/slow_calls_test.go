package esdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
)

// However many calls wait, one question is asked at a time, with a deadline, and not more often than
// every 2 s.
func TestSlowCalls_QuestionsAreBounded(t *testing.T) {
	for name, takes := range map[string]time.Duration{"fast answers": 0, "no answers": time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var asked []time.Time
			asking := false
			s := newSlowCalls(t.Context(), func(ctx context.Context, server string) {
				if asking || server != "a:1" {
					t.Errorf("%s: asked about %s while another question is open: %t", name, server, asking)
				}
				asking = true
				asked = append(asked, time.Now())
				select {
				case <-time.After(takes):
				case <-ctx.Done():
				}
				asking = false
			})
			began := time.Now()
			var ends []func()
			for range 100 {
				ends = append(ends, s.begin("a:1"))
				<-time.After(10 * time.Millisecond)
			}
			<-time.After(9500 * time.Millisecond)
			for _, end := range ends {
				end()
			}
			<-time.After(time.Minute)
			synctest.Wait()
			// At 2, 4, 6, 8 and 10 s.
			if len(asked) != 5 {
				t.Fatalf("%s: %d questions in 10.5 s", name, len(asked))
			}
			for i, at := range asked {
				if at.Sub(began) != time.Duration(i+1)*slowAfter {
					t.Errorf("%s: question %d was asked after %s", name, i, at.Sub(began))
				}
			}
			if s.asking || len(s.servers) != 0 {
				t.Errorf("%s: asking is %t for %v", name, s.asking, s.servers)
			}
		})
	}
}

// A call that is answered within 2 s causes no question, also if many of them follow each other.
func TestSlowCalls_FastCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowCalls(t.Context(), func(context.Context, string) { t.Error("it asked") })
		for range 100 {
			end := s.begin("a:1")
			<-time.After(slowAfter - time.Nanosecond)
			end()
		}
		<-time.After(time.Minute)
	})
}

// A slow call just after another one waits for the time of the next question. Its end, and the end
// of the store, end the wait for it.
func TestSlowCalls_NextQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		asked := 0
		s := newSlowCalls(ctx, func(context.Context, string) { asked++ })
		first := s.begin("a:1")
		<-time.After(slowAfter / 2)
		second := s.begin("b:1")
		<-time.After(slowAfter/2 + time.Millisecond)
		first()
		<-time.After(slowAfter)
		synctest.Wait()
		if asked != 2 {
			t.Errorf("%d questions", asked)
		}
		cancel()
		<-time.After(time.Minute)
		synctest.Wait()
		if asked > 3 || s.asking {
			t.Errorf("%d questions, and asking is %t", asked, s.asking)
		}
		second()
	})
}

// A question that panics ends neither the process nor the questions.
func TestSlowCalls_QuestionPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		s := newSlowCalls(t.Context(), func(context.Context, string) { asked++; panic("no answer") })
		end := s.begin("a:1")
		<-time.After(2*slowAfter + time.Millisecond)
		end()
		<-time.After(time.Minute)
		synctest.Wait()
		if asked != 2 {
			t.Errorf("%d questions", asked)
		}
	})
}

// The only server of a connection is not asked about.
func TestPool_WatchesClustersOnly(t *testing.T) {
	for connection, want := range map[string]bool{
		"esdb://127.0.0.1:1?tls=false":             false,
		"esdb+discover://127.0.0.1:1?tls=false":    true,
		"esdb://127.0.0.1:1,127.0.0.1:2?tls=false": true,
	} {
		synctest.Test(t, func(t *testing.T) {
			s, err := Open(Config{ConnectionString: connection, Logger: slog.New(slog.DiscardHandler)})
			runtest.Must(t, err)
			asked := false
			s.pool.slow.ask = func(context.Context, string) { asked = true }
			end := s.pool.watch(&link{server: "a:1"})
			<-time.After(time.Minute)
			end()
			synctest.Wait()
			if asked != want {
				t.Errorf("%s: asked %t", connection, asked)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		})
	}
}

// A leader needs the votes of most other members.
func TestIsElected(t *testing.T) {
	members := func(n int) []string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprint("member-", i)
		}
		return all
	}
	for _, c := range []struct {
		namedBy, members []string
		want             bool
	}{
		{members(1), nil, false}, // the leader has not answered
		{members(1), members(1), true},
		{members(1), members(2), false},
		{members(2), members(2), true},
		{members(2), members(4), false},
		{members(3), members(4), true},
		{append(members(1), "seed", "another seed"), members(2), false},
	} {
		if got := isElected(c.namedBy, c.members); got != c.want {
			t.Errorf("%v of %v: %t", c.namedBy, c.members, got)
		}
	}
}

// An old leader is distrusted for a while: its cluster may elect it again when it alone can be
// reached.
func TestFinder_Distrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &finder{distrustTime: distrustTime}
		if got := f.distrusted(); got != "" {
			t.Errorf("at first %s", got)
		}
		f.distrust("a:1")
		<-time.After(distrustTime)
		if got := f.distrusted(); got != "a:1" {
			t.Errorf("for a while %q", got)
		}
		<-time.After(time.Nanosecond)
		if got := f.distrusted(); got != "" {
			t.Errorf("at last %s", got)
		}
	})
}

// A call that was given up fails as a lost connection does, but a definite answer stays.
func TestClassify_LeftServer(t *testing.T) {
	err := writeError(t.Context(), "append", fmt.Errorf("%w: b:1", errLeftServer))
	for _, want := range []error{eventstore.ErrUnknown, eventstore.ErrUnavailable} {
		if !errors.Is(err, want) {
			t.Errorf("%v is not %v", err, want)
		}
	}
	if !isConnectionLost(leftServer) || !isRepeatable(leftServer) || isNotExecuted(leftServer) {
		t.Error("it is not repeated as a read or as an append, or as any write")
	}
}
