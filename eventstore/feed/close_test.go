package feed_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/eventstore/feed"
)

func TestClose_PageInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil)
		r.append(1)
		messages := r.subscribe(r.ctx, "access")
		msg, _ := r.take(messages)
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.close()
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Error("closed with a page out")
		case <-messages:
			t.Error("the channel was closed, or gave another page")
		default:
		}
		if err := msg.Context().Err(); err != nil {
			t.Errorf("the message was ended: %v", err)
		}
		msg.Ack()
		<-done
		if _, open := <-messages; open {
			t.Error("the channel is still open")
		}
		if _, err := r.feed.Subscribe(r.ctx, "access"); !errors.Is(err, feed.ErrClosed) {
			t.Errorf("subscribe after close: %v", err)
		}
	})
}

func TestSubscribe_ContextEnds(t *testing.T) {
	r := newFixture(t, nil)
	r.append(1)
	ctx, cancel := context.WithCancel(r.ctx)
	busy, idle := r.subscribe(ctx, "busy"), r.subscribe(ctx, "idle")
	r.ack(idle)
	msg, _ := r.take(busy)
	stays := r.subscribe(r.ctx, "stays")
	r.ack(stays)
	cancel()
	r.closed(idle)
	<-msg.Context().Done()
	msg.Nack()
	r.closed(busy)
	r.append(1)
	if page := r.ack(stays); len(page.Events) != 1 {
		t.Errorf("%d events", len(page.Events))
	}
}

func TestSubscribe_AfterLastTopicEnded(t *testing.T) {
	r := newFixture(t, nil)
	for i := range 5 {
		ctx, cancel := context.WithCancel(r.ctx)
		messages := r.subscribe(ctx, "access")
		r.append(1)
		page := r.ack(messages)
		if diff := cmp.Diff(1, len(page.Events)); diff != "" {
			t.Errorf("round %d: %s", i, diff)
		}
		r.setCheckpoint("access", page.Next)
		cancel()
		r.closed(messages)
	}
}
