package commands_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/todo"
)

// counted has nothing to take, and notes when it is asked.
type counted struct {
	start  time.Time
	takes  []time.Duration
	cancel []bool // whether the context of a take was over
	err    error
}

func (c *counted) Take(ctx context.Context) ([]todo.Charge, error) {
	c.takes, c.cancel = append(c.takes, time.Since(c.start)), append(c.cancel, ctx.Err() != nil)
	return nil, c.err
}

func (c *counted) Begin(context.Context, uuid.UUID, eventstore.Revision) (eventstore.Revision, bool, error) {
	return 0, false, nil
}

func (c *counted) DropCharges(context.Context, ...uuid.UUID) error { return nil }

func (c *counted) DropSeen(context.Context) error { return nil }

type atHead struct{}

func (atHead) Wait(context.Context, eventstore.Position, ...string) error { return nil }

func TestMeteringFlushesEveryTenSecondsAndAtTheEnd(t *testing.T) {
	codec, err := eventstore.NewCodec(domain.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		c := &counted{start: time.Now(), err: errors.New("no database")} // a flush that fails is tried again
		m := &commands.Metering{Log: commands.NewLog(eventstoretest.NewMemory(), codec, log), Counted: c, Waiter: atHead{}, Logger: log, Now: time.Now}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		timer := time.NewTimer(25 * time.Second)
		<-timer.C
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		want := []time.Duration{10 * time.Second, 20 * time.Second, 25 * time.Second}
		if len(c.takes) != 3 || c.takes[0] != want[0] || c.takes[1] != want[1] || c.takes[2] != want[2] {
			t.Errorf("flushed at %v, want %v", c.takes, want)
		}
		for _, over := range c.cancel {
			if over {
				t.Error("a flush had no time")
			}
		}
	})
}
