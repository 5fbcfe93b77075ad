package runtest_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

func TestParts_EndInTheOppositeOrder(t *testing.T) {
	var ended []string
	t.Run("parts", func(t *testing.T) {
		for _, name := range []string{"first", "second"} {
			runtest.Part(t, func(ctx context.Context) error {
				<-ctx.Done()
				ended = append(ended, name)
				return nil
			})
		}
	})
	if len(ended) != 2 || ended[0] != "second" || ended[1] != "first" {
		t.Errorf("ended %v", ended)
	}
}

func TestFreeAddr_CanBeListenedOn(t *testing.T) {
	l, err := net.Listen("tcp", runtest.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestOutput_KeepsEveryWrite(t *testing.T) {
	var (
		out  runtest.Output
		wait sync.WaitGroup
	)
	for range 4 {
		wait.Go(func() {
			for range 100 {
				if _, err := out.Write([]byte("ab")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	if len(out.String()) != 800 || out.Tail(3) != "bab" || out.Tail(1000) != out.String() {
		t.Errorf("%d bytes, at the end %q", len(out.String()), out.Tail(3))
	}
}
