package pipeline

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/runtest"
)

// everywhere fails the test where a word is not in all of some places, each named by a part of it.
func (w *harness) everywhere(word, want string) {
	w.t.Helper()
	found := strings.Join(w.places(word), " ")
	for _, place := range strings.Fields(want) {
		if !strings.Contains(found, place) {
			w.t.Fatalf("a word is not in %s, but in: %s", place, found)
		}
	}
}

// nowhere fails the test where a word is anywhere, or a half of it, as a compressed block may show it.
func (w *harness) nowhere(words ...string) {
	w.t.Helper()
	for n, word := range words {
		for _, part := range []string{word, word[:14], word[14:]} {
			if found := w.places(part); len(found) > 0 {
				w.t.Errorf("%q of word %d is still in %v", part, n, found)
			}
		}
	}
}

// text is that of a blob.
type text struct{ stream, text string }

// blobsOf are the blobs that the events of a record refer to, as they stand.
func (w *harness) blobsOf(name string) (blobs []text) {
	w.t.Helper()
	facts, err := w.log.ReadFrom(w.t.Context(), stream.Name(stream.Identity,
		stream.IdentityID(w.call.Principal.Project.Namespace, name)), 0)
	runtest.Must(w.t, err)
	for _, f := range facts {
		var refs []*blob.Ref
		switch e := f.Event.(type) {
		case *identity.TraitsReplaced:
			refs = append(refs, e.Record.Traits.Blob)
		case *identity.TraitsMerged:
			refs = append(refs, e.Record.Traits.Blob, e.Patch.Blob)
		}
		for _, ref := range refs {
			if ref == nil {
				continue
			}
			data, err := w.log.ReadBlob(w.t.Context(), *ref)
			runtest.Must(w.t, err)
			blobs = append(blobs, text{ref.Stream, string(data)})
		}
	}
	return blobs
}

// Once its removal is cleared, what an identity's traits said is nowhere: not in a row, an event,
// nor in a file of the log, whichever way it came in: by a write that was replaced since, in a
// blob, by a patch, by a bulk write, whose stage stays with a crash, by a write that was never
// stored. What others say stays, and so does what an identity that lives said before.
func TestRemovedIdentity_TraitsAreNowhere(t *testing.T) {
	t.Parallel()
	w := newIdleNodeHarness(t)
	word := runtest.Word
	replaced, big, patched, bigPatch, bulk, staged, unstored, lives := word(), word(), word(), word(), word(), word(),
		runtest.Word(), runtest.Word()
	large := func(word string) map[string]string {
		traits := map[string]string{}
		for n := range 300 {
			traits[fmt.Sprint("key", n)] = strings.Repeat(word+" ", 60)
		}
		return traits
	}
	put := func(name string, traits map[string]string) {
		t.Helper()
		w.ok(w.write.PutIdentity(t.Context(), w.call, name, traits))
	}
	put("ana", map[string]string{"city": replaced})
	put("ana", large(big))
	put("ana", nil)
	w.ok(w.write.PatchIdentity(t.Context(), w.call, "ana", map[string]string{"city": patched}, nil))
	w.ok(w.write.PatchIdentity(t.Context(), w.call, "ana", large(bigPatch), nil))
	w.ok(w.write.BulkIdentities(t.Context(), w.call, []identity.Row{
		{Identity: "ana", Traits: map[string]string{"city": bulk}}, {Identity: "bo", Traits: map[string]string{"city": lives}},
	}))
	put("bo", map[string]string{"city": "Porto"})
	// One dies before its commit, one within its fan-out.
	for _, died := range []struct {
		after int64
		rows  []identity.Row
	}{
		{1, []identity.Row{{Identity: "ana", Traits: map[string]string{"city": unstored}}}},
		{3, []identity.Row{{Identity: "bo"}, {Identity: "ana", Traits: map[string]string{"city": staged}}}},
	} {
		w.dead(w.stop(died.after).BulkIdentities(t.Context(), w.call, died.rows))
	}
	w.passHead()
	for word, want := range map[string]string{
		replaced: "identity.traits-replaced .log", patched: "identity.traits-merged .log",
		bulk:   "identity.bulk-row-applied .log",
		staged: "blob.chunk directory.identities .log", unstored: "blob.chunk .log", lives: "identity.bulk-row-applied .log",
	} {
		w.everywhere(word, want)
	}
	// What is long is compressed, so that its words do not show as bytes.
	blobs := w.blobsOf("ana")
	if len(blobs) != 3 || !strings.Contains(blobs[0].text, big) || !strings.Contains(blobs[1].text, bigPatch) ||
		!strings.Contains(blobs[2].text, bigPatch) {
		t.Fatalf("%d blobs, want that of a write, and of a patch with what it left", len(blobs))
	}
	// The node may remove the events by itself at any time after the removal, so they are read before it.
	ever := eventstoretest.All(t, w.store, 0)
	runtest.Must(t, w.write.DeleteIdentity(t.Context(), w.call, "ana"))
	w.passHead()
	ever = append(ever, eventstoretest.All(t, w.store, ever[len(ever)-1].Position)...)
	for _, b := range blobs {
		if _, _, err := w.store.ReadLast(t.Context(), b.stream); !errors.Is(err, eventstore.ErrDeleted) {
			t.Errorf("blob %s is not ended: %v", b.stream, err)
		}
	}
	if left, err := w.finisher.Pending(t.Context()); err != nil || left.Identities != 1 || left.FanOuts != 1 {
		t.Errorf("what waits: %+v, %v", left, err)
	}
	// While a write that was never stored may be a copy, nothing is said to be cleared; the rest goes all the same.
	done, err := w.finisher.EraseNow(t.Context())
	if err != nil || done.Identities != 0 || done.Left.Identities != 1 || done.Left.FanOuts != 0 ||
		done.Left.Blobs != 1 || done.Store != erasure.StoreScavenged {
		t.Fatalf("before the blob of the lost write is loose: %+v, %v", done, err)
	}
	w.nowhere(replaced, patched, bulk, staged)
	w.clock.move(blob.Keep + time.Second)
	if done, err = w.finisher.EraseNow(t.Context()); err != nil || done.Identities != 1 || done.Blobs != 1 ||
		done.Left.Identities != 0 {
		t.Fatalf("a day later: %+v, %v", done, err)
	}
	w.nowhere(replaced, patched, bulk, staged, unstored)
	w.everywhere(lives, "identity.bulk-row-applied")                     // in a compressed block of a file it may not show as it is
	if kept := eventstoretest.CheckRecords(t, w.store, ever); kept < 7 { // of ana, without the removal
		t.Errorf("%d records are kept", kept)
	}
}

// The background clears removals without being asked, many at once, those of a process that died
// too, and records that only after all of it.
func TestFinisher_ClearsRemovals(t *testing.T) {
	t.Parallel()
	w := newIdleNodeHarness(t)
	counting := &countingStore{}
	sound := w.finisher.Eraser.Store
	w.finisher.Eraser.Store = counting
	rows := make([]identity.Row, 256+5) // more than a page of the list
	for n := range rows {
		rows[n] = identity.Row{Identity: fmt.Sprint("identity ", n)}
	}
	rows[0].Traits = map[string]string{"city": runtest.Word()}
	w.ok(w.write.BulkIdentities(t.Context(), w.call, rows))
	for n, row := range rows {
		service := w.write
		if n == 0 {
			service = w.stop(1) // dies after the removal
		}
		runtest.Must(t, service.DeleteIdentity(t.Context(), w.call, row.Identity))
	}
	w.passHead()
	round := func() (done erasure.Report) {
		t.Helper()
		if w.finisher.round(t.Context(), false, &done); len(done.Errs()) > 0 {
			t.Fatal(done.Errs())
		}
		return done
	}
	if done := round(); done.Identities != len(rows)-1 || counting.n != 1 {
		t.Errorf("cleared %d of %d removals, in %d removals from the disk", done.Identities, len(rows), counting.n)
	}
	w.everywhere(rows[0].Traits["city"], "identity.bulk-row-applied .log")
	w.clock.move(time.Hour) // left to its own process no longer
	w.finisher.Eraser.Store = refusing{}
	var refused erasure.Report
	if w.finisher.round(t.Context(), false, &refused); refused.Identities != 0 || len(refused.Errs()) == 0 {
		t.Errorf("with a disk that refuses: %+v", refused)
	}
	w.finisher.Eraser.Store = sound
	w.clock.move(time.Hour)
	if done := round(); done.Identities != 1 || done.Store != erasure.StoreScavenged {
		t.Errorf("an hour later: %+v", done)
	}
	w.nowhere(rows[0].Traits["city"])
	if left, err := w.finisher.Pending(t.Context()); err != nil || left.Identities != 0 {
		t.Errorf("what waits: %+v, %v", left, err)
	}
	if done := round(); done.Store != "" {
		t.Errorf("with nothing to do: %+v", done)
	}
}
