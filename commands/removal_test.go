package commands_test

import (
	"context"
	"errors"
	"testing"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
)

// late is a Waiter for projections that have applied events up to a position only.
type late struct{ applied eventstore.Position }

func (l *late) Wait(_ context.Context, position eventstore.Position, _ ...string) error {
	if position > l.applied {
		return errors.New("not applied in time")
	}
	return nil
}

// A caller who repeats a removal that was stored and is not visible yet must not read that it is done.
func TestRemovals_RepeatedBeforeTheyAreVisible(t *testing.T) {
	w, _ := withWebhooks(t)
	webhook := w.createWebhook(anyText)
	key, err := w.CreateKey(t.Context(), w.call, "default", "app")
	if err != nil {
		t.Fatal(err)
	}
	w.ingest(text("a", "one"), "")
	w.ingest(text("b", "two"), "")
	w.ingest(text("c", "three"), "")
	send := w.ingest(text("d", "four"), "")
	w.put(fixedOf("leads"))
	w.putIdentity(w.call, "ana", nil)
	head, err := w.store.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		remove func() error
		// done is the code of a repetition, "" if that succeeds.
		done string
	}{
		{"one data point", func() error {
			_, err := w.DeleteDataPoints(t.Context(), w.call, []string{"a"})
			return err
		}, fault.CodeDataPointNotFound},
		{"data points", func() error {
			_, err := w.DeleteDataPoints(t.Context(), w.call, []string{"b", "c"})
			return err
		}, fault.CodeDataPointNotFound},
		{"a send", func() error { return w.DeleteSend(t.Context(), w.call, send.IngestionID) }, ""},
		{"an audience", func() error { return w.DeleteAudience(t.Context(), w.call, "leads") }, fault.CodeNotFound},
		{"an identity", func() error { return w.DeleteIdentity(t.Context(), w.call, "ana") }, fault.CodeNotFound},
		{"a key", func() error { return w.RevokeKey(t.Context(), w.call, "default", key.ID) }, fault.CodeNotFound},
		{"a webhook", func() error { return w.DeleteWebhook(t.Context(), w.call, webhook.ID) }, fault.CodeNotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.configure(func(config *commands.Config) { config.Waiter = &late{applied: head} })
			for range 3 {
				f := wantFault(t, c.remove(), fault.CodeServiceUnavailable)
				if f.Data["committed"] != true {
					t.Errorf("data %v", f.Data)
				}
			}
			w.configure(func(config *commands.Config) { config.Waiter = noWait{} })
			if err := c.remove(); c.done != "" {
				wantFault(t, err, c.done)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}
