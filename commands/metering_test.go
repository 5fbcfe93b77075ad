package commands_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/work"
)

// counted has no counts to flush, and records when it is called.
type counted struct {
	start  time.Time
	takes  []time.Duration
	due    []work.Due
	cancel []bool // whether the context of a take was over
	err    error
}

func (c *counted) Take(ctx context.Context, due work.Due) ([]work.Charge, bool, error) {
	c.takes, c.cancel = append(c.takes, time.Since(c.start)), append(c.cancel, ctx.Err() != nil)
	c.due = append(c.due, due)
	return nil, false, c.err
}

func (c *counted) Begin(context.Context, uuid.UUID, eventstore.Revision) (eventstore.Revision, bool, error) {
	return 0, false, nil
}

func (c *counted) DropCharges(context.Context, ...uuid.UUID) error { return nil }

func (c *counted) DropSeen(context.Context) error { return nil }

type atHead struct{}

func (atHead) Wait(context.Context, eventstore.Position, ...string) error { return nil }

func TestMetering_FlushesDueCountsAndAllAtTheEnd(t *testing.T) {
	codec := eventstoretest.Codec(t)
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		c := &counted{start: time.Now(), err: errors.New("no database")} // a failed flush is retried
		m := &tenancy.Metering{
			Journal: engine.NewJournal(eventstoretest.NewMemory(), codec, log),
			Pending: c,
			Waiter:  atHead{},
			Logger:  log,
			Now:     time.Now,
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		timer := time.NewTimer(75 * time.Second)
		<-timer.C
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		want := []time.Duration{30 * time.Second, time.Minute, 75 * time.Second}
		if !slices.Equal(c.takes, want) {
			t.Errorf("flushed at %v, want %v", c.takes, want)
		}
		later := work.Due{Sum: 10 * time.Minute, Seen: time.Hour}
		if !slices.Equal(c.due, []work.Due{later, later, {}}) {
			t.Errorf("it flushed what was due by %v", c.due)
		}
		for _, over := range c.cancel {
			if over {
				t.Error("the context of a flush had ended")
			}
		}
	})
}
