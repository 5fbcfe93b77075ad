package pipeline

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve/blevetest"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// places are the tables of every schema, the events, the keys of the log, the parts of the index and the files of log
// and index that hold a word. Of a word that was stemmed, its beginning is looked for.
func (w *harness) places(word string) []string {
	places := w.holders(word)
	for _, file := range blevetest.Holding(w.t, w.folder, word) {
		places = append(places, "file "+file)
	}
	return places
}

// holders are the places but for files.
func (w *harness) holders(word string) (places []string) {
	w.t.Helper()
	rows, err := w.db.Query(w.t.Context(),
		`select quote_ident(schemaname) || '.' || quote_ident(tablename) from pg_tables where schemaname not in ('pg_catalog', 'information_schema')`)
	runtest.Must(w.t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 15 {
		w.t.Fatalf("tables %v: %v", tables, err)
	}
	for _, table := range tables {
		var found bool
		query := fmt.Sprintf(`select exists (select from %s r where strpos(lower(r::text), $1) > 0 or strpos(r::text, $2) > 0)`, table)
		runtest.Must(w.t, w.db.QueryRow(w.t.Context(), query, word, hex.EncodeToString([]byte(word))).Scan(&found))
		if found {
			places = append(places, table)
		}
	}
	for _, r := range eventstoretest.All(w.t, w.store, 0) {
		whole := bytes.Join([][]byte{r.Data, r.Meta, []byte(r.Stream), []byte(r.Type)}, nil)
		if bytes.Contains(bytes.ToLower(whole), []byte(word)) {
			places = append(places, "event "+r.Type)
		}
	}
	found, err := w.index.Search(w.t.Context(), recallindex.Query{
		Analysis: indextest.Analysis,
		Project:  w.call.Principal.Project.ID, Sources: 10, Memories: 10, Terms: recall.NewAnalyzer().Query(word),
		Audiences: []uuid.UUID{uuid.Nil},
	})
	runtest.Must(w.t, err)
	for _, part := range []recallindex.Part{recallindex.Sources, recallindex.Memories} {
		if len(found.Of(part).Hits) > 0 {
			places = append(places, "index:"+string(part))
		}
	}
	return places
}

// gone fails the test where a word is anywhere.
func (w *harness) gone(word string) {
	w.t.Helper()
	if found := w.places(word); len(found) > 0 {
		w.t.Errorf("%q is in %v", word, found)
	}
}

// stop is a process that dies after so many appends and tombstones.
func (w *harness) stop(after int) *commands.Service {
	return w.over((&victim{left: after}).over(w.store))
}

// over is another process on a store.
func (w *harness) over(store eventstore.Store) *commands.Service {
	log := engine.NewJournal(store, w.log.Codec, w.log.Logger)
	log.Now = w.clock.now
	return commands.New(commands.Config{
		Journal: log, Waiter: w.waiter, Sends: w.queries, Directory: w.directory, HashKey: make([]byte, 32),
		Limits: w.config.Limits,
	})
}

// Once its deletion is cleaned, a text is nowhere: not in a row, an event, a key, nor in a file
// of the log or of the index, whichever way it came in: inline, in a blob, as label and metadata,
// as memory, in a stage that a crash left, in a send that was never stored.
func TestErasedText_IsNowhere(t *testing.T) {
	t.Parallel()
	w := newNodeHarness(t)
	word := runtest.Word
	short, long, label, metadata, staged, unstored, kept := word(), word(), word(), word(), word(), word(), word()
	text := func(id, content string) ingest.DataPoint { return ingest.DataPoint{ID: &id, Content: content} }
	note := text("note", "Ana's favourite editor is "+short+".")
	note.Label, note.Metadata = &label, []byte(`{"tag":"`+metadata+`"}`)
	sends := []uuid.UUID{}
	send := func(items ...ingest.DataPoint) {
		t.Helper()
		r, err := w.write.IngestBatch(t.Context(), w.call, items, "")
		runtest.Must(t, err)
		sends = append(sends, r.IngestionID)
	}
	send(note, text("long note", strings.Repeat(long+" rests.\n", 20_000)))
	send(text("other", "Bo lives in "+kept))
	// A crash after the fan-out leaves the stage. A crash after the stage leaves a send that is not stored.
	r, err := w.stop(5).IngestBatch(t.Context(), w.call,
		[]ingest.DataPoint{text("c", "Cy met "+staged), text("d", "Di met "+staged)}, "")
	runtest.Must(t, err)
	sends = append(sends, r.IngestionID)
	w.dead(w.stop(1).IngestBatch(t.Context(), w.call, []ingest.DataPoint{text("e", "Ed met "+unstored)},
		""))
	w.until("all is indexed", func() bool {
		for _, id := range sends {
			if w.sendStatus(id).Status != "completed" {
				return false
			}
		}
		return true
	})
	for word, want := range map[string]string{
		short: "datapoints.revisions memories.memories datapoint.revision-accepted memory.derived .zap .log",
		long:  "blob.chunk .zap .log",
		label: "datapoints.revisions .zap .log", metadata: "datapoints.revisions .log",
		staged:   "blob.chunk datapoints.revisions .zap .log",
		unstored: "blob.chunk .log", kept: "datapoints.revisions datapoint.revision-accepted .zap .log",
	} {
		w.everywhere(word, want)
	}
	ever := eventstoretest.All(t, w.store, 0) // before the deletion, after which the node may remove events by itself
	w.remove("note", "long note", "c", "d")
	ever = append(ever, eventstoretest.All(t, w.store, ever[len(ever)-1].Position)...)
	// The stage of a send that was never stored holds nothing of what was deleted, and withholds nothing.
	done, err := w.finisher.EraseNow(t.Context())
	if err != nil || done.Deletions != 1 || done.Left.Deletions != 0 || done.Left.Blobs != 1 ||
		done.Store != erasure.StoreScavenged || done.Tables == 0 || done.Indexes == 0 {
		t.Fatalf("before the blob of the lost send is loose: %+v, %v", done, err)
	}
	for _, word := range []string{short, long, label, metadata, staged} {
		w.gone(word)
	}
	w.clock.move(blob.Keep + time.Second)
	if done, err = w.finisher.EraseNow(t.Context()); err != nil || done.Blobs != 1 || done.Left.Blobs != 0 {
		t.Fatalf("a day later: %+v, %v", done, err)
	}
	for _, word := range []string{short, long, label, metadata, staged, unstored} {
		w.gone(word[:20])
	}
	if found := strings.Join(w.places(kept), " "); !strings.Contains(found, "datapoints.revisions") ||
		!strings.Contains(found, ".zap") {
		t.Errorf("what was not deleted is in: %s", found)
	}
	if kept := eventstoretest.CheckRecords(t, w.store, ever); kept < 4*3 { // sent, derived, deleted
		t.Errorf("%d records are kept", kept)
	}
}

// A deletion is said to be cleaned only after all of it: where the disk refuses, it comes again.
func TestCleaned_RequiresRemoval(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	id := "a"
	w.ingest(ingest.DataPoint{ID: &id, Content: "Ana likes tea"})
	w.remove(id)
	sound := w.finisher.Eraser.Store
	w.finisher.Eraser.Store = refusing{}
	if done, err := w.finisher.EraseNow(t.Context()); err == nil || done.Deletions != 0 || done.Left.Deletions != 1 ||
		len(done.Trouble) == 0 {
		t.Fatalf("with a disk that refuses: %+v, %v", done, err)
	}
	w.finisher.Eraser.Store = sound
	if done, err := w.finisher.EraseNow(t.Context()); err != nil || done.Deletions != 1 || done.Left.Deletions != 0 {
		t.Fatalf("once it does not: %+v, %v", done, err)
	}
	w.finisher.Eraser.Store = erasure.Cluster
	if done, err := w.finisher.EraseNow(t.Context()); err != nil || done.Store != erasure.StoreCluster {
		t.Fatalf("of a cluster: %+v, %v", done, err)
	}
}

type refusing struct{}

func (refusing) Scavenge(context.Context) error { return fmt.Errorf("no space left on device") }

// However many deletions there are, the disk is cleaned once for all of them, and then not again for a while.
func TestErasure_ManyDeletionsAtOnce(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	counting := &countingStore{}
	w.finisher.Eraser.Store = counting
	items := make([]ingest.DataPoint, 300)
	ids := make([]string, len(items))
	for i := range items {
		ids[i] = fmt.Sprint("id ", i)
		items[i] = ingest.DataPoint{ID: &ids[i], Content: fmt.Sprint("Ana likes tea ", i)}
	}
	w.ingestBatch(items...)
	for _, id := range ids {
		w.remove(id)
	}
	var done erasure.Report
	w.finisher.round(t.Context(), false, &done)
	if len(done.Errs()) > 0 || done.Deletions != len(ids) || counting.n != 1 {
		t.Errorf("cleaned %d of %d deletions in %d removals, errors %v", done.Deletions, len(ids), counting.n, done.Errs())
	}
	w.ingest(ingest.DataPoint{Content: "Bo likes tea"})
	w.remove(datapoint.Digest([]byte("Bo likes tea")))
	w.finisher.round(t.Context(), false, &done)
	if counting.n != 1 {
		t.Error("the disk was cleaned again at once")
	}
	w.clock.move(time.Hour)
	w.finisher.round(t.Context(), false, &done)
	if counting.n != 2 || done.Deletions != len(ids)+1 {
		t.Errorf("an hour later: %d removals, %d deletions, errors %v", counting.n, done.Deletions, done.Errs())
	}
}

type countingStore struct{ n int }

func (c *countingStore) Scavenge(context.Context) error {
	c.n++
	return nil
}

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
	facts, err := w.log.ReadFrom(w.t.Context(), w.recordName(name), 0)
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
		after int
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
		w.wantEnded(t, b.stream)
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
