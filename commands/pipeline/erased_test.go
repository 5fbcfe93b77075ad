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
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recallindex/bleve/blevetest"
)

// places are the tables of every schema, the events, the keys of the log and the files of log and
// index that hold a word. Of a word that was stemmed, its beginning is looked for.
func (w *harness) places(word string) []string {
	w.t.Helper()
	var places []string
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
	for _, file := range blevetest.Holding(w.t, w.folder, word) {
		places = append(places, "file "+file)
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
func (w *harness) stop(after int64) *commands.Service {
	d := &dying{Store: w.store}
	d.left.Store(after)
	return w.over(d)
}

// over is another process on a store.
func (w *harness) over(store eventstore.Store) *commands.Service {
	log := commands.NewJournal(store, w.log.Codec, w.log.Logger)
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
	text := func(id, content string) commands.DataPoint { return commands.DataPoint{ID: &id, Content: content} }
	note := text("note", "Ana's favourite editor is "+short+".")
	note.Label, note.Metadata = &label, []byte(`{"tag":"`+metadata+`"}`)
	sends := []uuid.UUID{}
	send := func(items ...commands.DataPoint) {
		t.Helper()
		r, err := w.write.IngestBatch(t.Context(), w.call, items, "")
		runtest.Must(t, err)
		sends = append(sends, r.IngestionID)
	}
	send(note, text("long note", strings.Repeat(long+" rests.\n", 20_000)))
	send(text("other", "Bo lives in "+kept))
	// A crash after the fan-out leaves the stage. A crash after the stage leaves a send that is not stored.
	r, err := w.stop(5).IngestBatch(t.Context(), w.call,
		[]commands.DataPoint{text("c", "Cy met "+staged), text("d", "Di met "+staged)}, "")
	runtest.Must(t, err)
	sends = append(sends, r.IngestionID)
	w.dead(w.stop(1).IngestBatch(t.Context(), w.call, []commands.DataPoint{text("e", "Ed met "+unstored)},
		""))
	w.until("all is indexed", func() bool {
		for _, id := range sends {
			s, err := w.queries.Status(t.Context(), w.call.Principal.Project, id)
			runtest.Must(t, err)
			if s.Status != "completed" {
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
		found := strings.Join(w.places(word), " ")
		for _, place := range strings.Fields(want) {
			if !strings.Contains(found, place) {
				t.Fatalf("before the deletion a word is not in %s, but in: %s", place, found)
			}
		}
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
	w.ingest(commands.DataPoint{ID: &id, Content: "Ana likes tea"})
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
	items := make([]commands.DataPoint, 300)
	ids := make([]string, len(items))
	for i := range items {
		ids[i] = fmt.Sprint("id ", i)
		items[i] = commands.DataPoint{ID: &ids[i], Content: fmt.Sprint("Ana likes tea ", i)}
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
	w.ingest(commands.DataPoint{Content: "Bo likes tea"})
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
