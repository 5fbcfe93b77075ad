package storage

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/runtest"
)

// A word of the erased texts is 24 letters drawn at random: compression cannot make it shorter than
// it is, and can replace it by a reference only where it stands elsewhere in the file as it is. So
// a file that holds it shows it, in its bytes or in its decompressed blocks; both are searched.
func drawWord(rng *rand.Rand) string {
	b := make([]byte, 24)
	for i := range b {
		b[i] = byte('a' + rng.IntN(26))
	}
	return string(b)
}

// secrets are texts to be erased: small and large, some of them easy to compress and some not, each
// with a word of its own.
func secrets(rng *rand.Rand) (words []string, texts []string) {
	for _, size := range []int{24, 200, 3 << 10, 40 << 10, 900 << 10} {
		for _, dense := range []bool{false, true} {
			word := drawWord(rng)
			filler := strings.Repeat("and so on and on ", size/17+1)
			if dense {
				noise := make([]byte, size)
				for i := range noise {
					noise[i] = byte(rng.IntN(256))
				}
				filler = string(noise)
			}
			words = append(words, word)
			texts = append(texts, filler[:size/2]+word+filler[:size/2])
		}
	}
	return words, texts
}

// found counts, for each file of a folder, the words that it contains, in its bytes or in its
// decompressed content.
func found(t testing.TB, dir string, words []string) map[string]int {
	t.Helper()
	out := map[string]int{}
	look := func(name string, content []byte) {
		for _, w := range words {
			if bytes.Contains(content, []byte(w)) {
				out[name]++
			}
		}
	}
	names, err := os.ReadDir(dir)
	runtest.Must(t, err)
	for _, d := range names {
		path := filepath.Join(dir, d.Name())
		content, err := os.ReadFile(path)
		if os.IsNotExist(err) { // the node runs, and compacts
			continue
		}
		runtest.Must(t, err)
		look(d.Name(), content)
		if strings.HasSuffix(d.Name(), ".sst") {
			eachStored(
				t, content,
				func(key, value []byte) { look(d.Name()+" decompressed", append(append([]byte(nil), key...), value...)) },
			)
		}
	}
	return out
}

// eachStored reads every version of every key in a table, those too that the engine would not show.
func eachStored(t testing.TB, content []byte, visit func(key, value []byte)) {
	t.Helper()
	fs := vfs.NewMem()
	f, err := fs.Create("t", vfs.WriteCategoryUnspecified)
	runtest.Must(t, err)
	runtest.Must(t, errorOf(f.Write(content)))
	runtest.Must(t, f.Close())
	if f, err = fs.Open("t"); err != nil {
		t.Fatal(err)
	}
	readable, err := sstable.NewSimpleReadable(f)
	runtest.Must(t, err)
	options := &pebble.Options{}
	options.EnsureDefaults()
	r, err := sstable.NewReader(t.Context(), readable, options.MakeReaderOptions())
	if pebble.IsCorruptionError(err) { // is being written; what it is written from is looked at, too
		return
	}
	runtest.Must(t, err)
	iter, err := r.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
	runtest.Must(t, err)
	for kv := iter.First(); kv != nil; kv = iter.Next() {
		value, _, err := kv.Value(nil)
		runtest.Must(t, err)
		visit(kv.K.UserKey, value)
	}
	runtest.Must(t, iter.Error())
	runtest.Must(t, iter.Close())
	runtest.Must(t, r.Close())
}

// copyFolder copies the files of a folder as they are, as a kill would leave them.
func copyFolder(t testing.TB, dir string) string {
	t.Helper()
	out := t.TempDir()
	names, err := os.ReadDir(dir)
	runtest.Must(t, err)
	for _, d := range names {
		from, err := os.Open(filepath.Join(dir, d.Name()))
		if os.IsNotExist(err) {
			continue
		}
		runtest.Must(t, err)
		to, err := os.Create(filepath.Join(out, d.Name()))
		runtest.Must(t, err)
		runtest.Must(t, errorOf(io.Copy(to, from)))
		runtest.Must(t, to.Close())
		runtest.Must(t, from.Close())
	}
	return out
}

// After Scavenge no file of the folder holds a byte of the events that were deleted before it. That
// is so for every kind of deletion, wherever in logs and tables the text was, during appends, reads
// and subscriptions, and after a kill.
func TestScavenge_NoBytesInFiles(t *testing.T) {
	for _, spread := range []string{"in the log", "in tables", "in old logs", "in the lowest level", "seen by a reader"} {
		t.Run(spread, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, uint64(len(spread))))
			dir := t.TempDir()
			n, c := openClient(t, Config{Dir: dir, FS: vfs.Default})
			words, texts := secrets(rng)
			told := func(stream string, expected Expectation, text string) {
				c.append(stream, expected, event{id: uuid.New(), typ: "told", data: text, raw: true})
			}
			for i, text := range texts {
				told(fmt.Sprintf("tombstoned-%d", i), none, text)
				told(fmt.Sprintf("deleted-%d", i), none, text)
				told(fmt.Sprintf("deleted-%d", i), at(0), "last words")
				told(fmt.Sprintf("cut-%d", i), none, text)
				told(fmt.Sprintf("cut-%d", i), at(0), "the rest")
				told(fmt.Sprintf("counted-%d", i), none, text)
				c.append(fmt.Sprintf("$$counted-%d", i), none, metadataEvent(`{"$maxCount":1}`))
				told(fmt.Sprintf("counted-%d", i), at(0), "the newest")
				c.append(fmt.Sprintf("$$described-%d", i), none, metadataEvent(fmt.Sprintf(`{"note":%q}`, words[i])))
				told(fmt.Sprintf("kept-%d", i), none, "kept")
			}
			switch spread {
			case "in tables":
				runtest.Must(t, n.store.db.Flush())
			case "in old logs":
				for i := range 6 { // more than the engine keeps for reuse
					told("filler", anyRevision, fmt.Sprint(i))
					runtest.Must(t, n.store.db.Flush())
				}
			case "in the lowest level":
				runtest.Must(t, n.store.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false))
			}
			if len(found(t, dir, words)) == 0 {
				t.Fatal("no file holds the texts: this test tests nothing")
			}
			var reader *view
			if spread == "seen by a reader" {
				var err error
				reader, err = n.views.acquire()
				runtest.Must(t, err)
			}
			for i := range texts {
				c.tombstone(fmt.Sprintf("tombstoned-%d", i), at(0))
				c.delete(fmt.Sprintf("deleted-%d", i), at(1))
				c.append(fmt.Sprintf("$$cut-%d", i), none, metadataEvent(`{"$tb":1}`))
				c.append(fmt.Sprintf("$$described-%d", i), at(0), metadataEvent(`{}`))
			}
			// compacts with the removals while the reader keeps the engine from dropping anything
			if spread == "seen by a reader" {
				runtest.Must(t, errorOf(n.scavenger.sweep(sweeping{all: true, bounded: true})))
				runtest.Must(t, n.store.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false))
				if len(found(t, dir, words)) == 0 {
					t.Fatal("nothing holds the texts back: this test tests nothing")
				}
			}

			live := c.subscribe(math.MaxUint64)
			ctx, cancel := context.WithCancel(t.Context())
			var traffic sync.WaitGroup
			traffic.Go(func() {
				for i := int64(-1); ctx.Err() == nil; i++ {
					resp, err := c.tryAppend(context.Background(), "meanwhile", at(i), newEvents(1)...)
					if err != nil || !stored(resp) {
						t.Errorf("append: %v, %v", resp, err)
						return
					}
					live.event()
					if events, _, err := c.tryRead(ofStream("meanwhile")); err != nil || int64(len(events)) != i+2 {
						t.Errorf("read: %d events, %v", len(events), err)
						return
					}
				}
			})
			if reader != nil {
				traffic.Go(func() {
					if err := reader.release(); err != nil {
						t.Error(err)
					}
				})
			}
			err := n.Scavenge(runtest.Context(t))
			running := found(t, dir, words)
			killed := copyFolder(t, dir)
			cancel()
			traffic.Wait()
			runtest.Must(t, err)
			if len(running) != 0 {
				t.Errorf("while the node runs, the texts are in %v", running)
			}
			if got := found(t, killed, words); len(got) != 0 {
				t.Errorf("after a kill the texts are in %v", got)
			}
			again := open(t, Config{Dir: killed, FS: vfs.Default})
			if got := found(t, killed, words); len(got) != 0 {
				t.Errorf("after the next start the texts are in %v", got)
			}
			ac := clientOf(t, again)
			for i := range texts {
				for stream, want := range map[string]string{"cut": "the rest", "counted": "the newest", "kept": "kept"} {
					events := ac.read(ofStream(fmt.Sprintf("%s-%d", stream, i)))
					if len(events) != 1 || events[0].data != want {
						t.Errorf("%s-%d: %v", stream, i, events)
					}
				}
			}
			if keys, _, err := again.scavenger.holes(); len(keys) != 0 || err != nil {
				t.Errorf("still to be rewritten: %d, %v", len(keys), err)
			}
		})
	}
}
