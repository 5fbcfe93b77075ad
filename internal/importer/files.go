package importer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/panics"
)

// Files is one run over the batches of a spool, each with the idempotency key of its estimate: a batch that was sent
// before, by whichever run, changes nothing.
type Files struct {
	To    Sender
	Spool *Spool
	State *FilesState
	// Parallel is how many batches are in flight at once; 0 is 4.
	Parallel int
	// Moved is called after each acknowledged batch, from one goroutine. It may be nil.
	Moved func(FilesTotal)
}

// FilesTotal is what is acknowledged of an import, by this run and earlier ones.
type FilesTotal struct {
	Points, Unchanged, Batches int
	Bytes                      int64
	// Sent counts the data points of this run, SentUnchanged those of them that the server already had.
	Sent, SentUnchanged, SentBatches int
	ProjectID                        int64
	LastIngestion                    string
	// Left are the data points that the service refused for themselves: every run leaves them out.
	Left []LeftOut
}

// Total returns how much of a spool is acknowledged.
func (f Files) Total() FilesTotal {
	t := FilesTotal{ProjectID: f.State.ProjectID, LastIngestion: f.State.LastIngestion}
	for _, b := range f.Spool.batches {
		if done, sent := f.State.sent[b.key]; sent && !done.isOpen() {
			t.add(b, done)
		}
	}
	return t
}

// add counts an acknowledged batch.
func (t *FilesTotal) add(b planned, done sentBatch) {
	t.Points, t.Unchanged = t.Points+b.points-len(done.left), t.Unchanged+done.unchanged
	t.Batches, t.Bytes = t.Batches+1, t.Bytes+b.bytes
	t.Left = append(t.Left, done.left...)
}

// Bytes is the size of all contents of a spool.
func (s *Spool) Bytes() (n int64) {
	for _, b := range s.batches {
		n += b.bytes
	}
	return n
}

// flownBatch is a batch with its outcome.
type flownBatch struct {
	planned
	items []spooled
	sentItems
	err error
}

// Run sends what was not acknowledged yet, in the order of time. Batches that are in flight when one is refused are
// still awaited.
func (f Files) Run(ctx context.Context) (FilesTotal, error) {
	total, results, flying := f.Total(), make(chan *flownBatch), 0
	var failed error
	land := func() {
		b := <-results
		flying--
		if err := f.land(b, &total); err != nil && failed == nil {
			failed = err
		}
	}
	for _, b := range f.Spool.inOrder() {
		if done, sent := f.State.sent[b.key]; sent && !done.isOpen() {
			continue
		}
		for flying >= cmp.Or(f.Parallel, 4) {
			land()
		}
		if failed == nil {
			failed = ctx.Err()
		}
		if failed != nil {
			break
		}
		items, err := f.Spool.read(b)
		if err != nil {
			failed = err
			break
		}
		flying++
		go func() {
			sent := &flownBatch{planned: b, items: items}
			raw := make([]json.RawMessage, len(items))
			for i, item := range items {
				raw[i] = item.Item
			}
			sent.err = panics.Call(ctx, slog.Default(), "sending a batch panicked", func() (err error) {
				sent.sentItems, err = sendItems(ctx, f.To, raw, b.key)
				return err
			})
			results <- sent
		}()
	}
	for flying > 0 {
		land()
	}
	return total, failed
}

// land records the outcome of a batch.
func (f Files) land(b *flownBatch, total *FilesTotal) error {
	if b.err != nil {
		return b.explain()
	}
	done := sentBatch{unchanged: b.unchanged(), left: b.left}
	for i := range done.left {
		done.left[i].Path = b.items[done.left[i].Item].Path
	}
	if err := f.State.add(b.key, done, b.receipt); err != nil {
		return err
	}
	total.add(b.planned, done)
	total.Sent, total.SentUnchanged = total.Sent+b.points-len(done.left), total.SentUnchanged+done.unchanged
	total.SentBatches++
	total.ProjectID, total.LastIngestion = f.State.ProjectID, f.State.LastIngestion
	if f.Moved != nil {
		f.Moved(*total)
	}
	return nil
}

// explain names the file that a refused item came from.
func (b *flownBatch) explain() error {
	refused, ok := errors.AsType[*client.APIError](b.err)
	if !ok {
		return b.err
	}
	if m := namedItem.FindStringSubmatch(refused.Message); m != nil {
		if i, err := strconv.Atoi(m[1]); err == nil && i < len(b.items) {
			return fmt.Errorf("a data point of %s was refused: %w", b.items[i].Path, b.err)
		}
	}
	return b.err
}
