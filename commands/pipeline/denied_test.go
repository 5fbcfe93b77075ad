package pipeline

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
)

// guarded is a store that denies its user rights, and counts what it denied.
type guarded struct {
	eventstore.Store

	mu     sync.Mutex
	rights map[eventstore.Right]bool
	calls  int
}

// set takes these rights from the user, and gives all others.
func (g *guarded) set(denied map[eventstore.Right]bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rights = denied
}

// denied returns how many calls were denied.
func (g *guarded) denied() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls
}

func (g *guarded) deny(right eventstore.Right, name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.rights[right] {
		return nil
	}
	g.calls++
	return eventstore.Denied(right, name, errors.New("Access Denied"))
}

func (g *guarded) Tombstone(
	ctx context.Context, name string, expected eventstore.Revision,
) (eventstore.Position, error) {
	if err := g.deny(eventstore.MayDelete, name); err != nil {
		return 0, err
	}
	return g.Store.Tombstone(ctx, name, expected)
}

func (g *guarded) Truncate(ctx context.Context, name string, before eventstore.Revision) error {
	if err := g.deny(eventstore.MayWrite, "$$"+name); err != nil {
		return err
	}
	if err := g.deny(eventstore.MayWriteMetadata, name); err != nil {
		return err
	}
	return g.Store.Truncate(ctx, name, before)
}

// The store denies the user what an erasure needs: that is counted with the right that is missing, tried again with
// pauses, and ends once the right is given.
func TestErasure_Denied(t *testing.T) {
	w := newIdleHarness(t)
	g := &guarded{Store: w.store, rights: map[eventstore.Right]bool{
		eventstore.MayDelete: true, eventstore.MayWriteMetadata: true,
	}}
	journal := commands.NewJournal(g, w.log.Codec, w.log.Logger)
	journal.Namespaces = w.log.Namespaces
	w.finishOver(journal)
	for _, id := range []string{"a", "b", "c"} {
		w.ingest(item(id, "text of "+id))
	}
	for _, ids := range [][]string{{"a", "b"}, {"c"}} {
		w.remove(ids...)
	}
	w.ok(w.write.BulkIdentities(t.Context(), w.call, []identity.Row{{Identity: "ana"}}))
	runtest.Must(t, w.over(g).DeleteIdentity(t.Context(), w.call, "ana"))
	w.passHead()
	w.clock.move(time.Hour)

	var done erasure.Report
	w.finisher.round(t.Context(), false, &done)
	denied := w.finisher.Denied()
	if denied == nil || denied.Count != 3 { // two deletions and an identity
		t.Fatalf("denied are %+v, done is %+v", denied, done)
	}
	if text := denied.Error(); !strings.Contains(text, `the right "$`) || strings.Contains(text, "\n") {
		t.Errorf("it reads %q", text)
	}
	if len(w.finisher.Stuck()) != 0 {
		t.Error("what is deleted is said to be served")
	}
	before := g.denied()
	for range 3 {
		w.finisher.round(t.Context(), false, &done)
	}
	if n := g.denied() - before; n != 0 {
		t.Errorf("%d calls were made without a pause", n)
	}
	if _, err := w.finisher.EraseNow(t.Context()); erasure.Denied(err) == nil || g.denied() == before {
		t.Errorf("asked for, %d calls: %v", g.denied()-before, err)
	}

	g.set(map[eventstore.Right]bool{eventstore.MayWriteMetadata: true})
	w.clock.move(stuckPause)
	w.finisher.round(t.Context(), false, &done)
	if denied = w.finisher.Denied(); denied == nil || denied.Count != 1 ||
		!strings.Contains(denied.Error(), `the right "$mw"`) {
		t.Errorf("with the right to delete, denied are %v", denied)
	}
	g.set(nil)
	w.clock.move(time.Hour)
	if done, err := w.finisher.EraseNow(t.Context()); err != nil || done.Left.Deletions+done.Left.Identities != 0 {
		t.Errorf("with every right: %+v, %v", done, err)
	}
	if denied = w.finisher.Denied(); denied != nil {
		t.Errorf("with every right, denied are %v", denied)
	}
}
